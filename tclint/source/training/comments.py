"""Comments beside run-time settings, where people say why they set them."""

from __future__ import annotations

import re

from tclint.source.context import SourceContext
from tclint.source.facts.switches import Switch


def comment_says(
    context: SourceContext,
    switch: Switch,
    says: re.Pattern[str],
    *,
    over: re.Pattern[str],
    lines_above: int | None = None,
) -> bool:
    """Whether a comment beside a switch, or above it and the lines that may lie between, says something.

    Args:
        over: what lines between the comment and the switch begin with.
        lines_above: how many lines are looked at; None: as many as there are.
    """
    lines = context.lines()
    number = context.location(switch.node_id).line - 1
    if says.search(lines[number]):
        return True
    for line in reversed(lines[:number][-lines_above if lines_above else None :]):
        if line.lstrip().startswith("#") and says.search(line):
            return True
        if not over.match(line):
            return False
    return False
