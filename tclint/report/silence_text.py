"""What `tclint explain CODE --at FILE:LINE` prints."""

from __future__ import annotations

import os

from tclint.core.rule import Rule
from tclint.core.terminal import WIDTH
from tclint.core.text import printable, wrapped
from tclint.engine.silence import Answer


def silence_text(rule: type[Rule], answer: Answer, path: str, line: int) -> str:
    """The answer as text: what the rule reports on the line, why it is silent, and what happens there."""
    where = f"{path}:{line}"
    lines: list[str] = []
    for finding in answer.findings:
        lines += wrapped(f"{rule.code} ({rule.name}) reports {where}: {finding.message}", WIDTH)
    for reason in answer.reasons if not answer.findings else ():
        lines += wrapped(f"{rule.code} ({rule.name}) is silent about {where}: {reason}.", WIDTH)
    if not lines:
        lines += wrapped(f"{rule.code} ({rule.name}) found nothing on {where} that it asks about.", WIDTH)
    if answer.happens:
        started = os.path.relpath(answer.root)
        head = "What the program does there" + (f", started from {started}" if started != path else "")
        lines += [
            "",
            f"{head}:",
            *(part for item in answer.happens for part in wrapped(item, WIDTH, "  ", "    ")),
        ]
    else:
        lines += ["", *wrapped(_NOT_RUN, WIDTH)]
    return "\n".join(printable(text) for text in lines) + "\n"


_NOT_RUN = (
    "Nothing that rules ask about happens on this line: it is no call, or no way that tclint could follow "
    "through the program leads there."
)
