"""Decides from a file's bytes which rules concern it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

MAX_SOURCE_BYTES = 1_000_000
"""Larger Python files are generated or hold data; parsing one would take seconds."""


_MAKES_ANYTHING = "instantiate("
"""Hydra's, of what a configuration names."""


class Triggered(Protocol):
    """The fields of a rule that say what a file must contain for it."""

    @property
    def triggers(self) -> tuple[str, ...]: ...
    @property
    def requires(self) -> tuple[str, ...]: ...
    @property
    def pattern(self) -> re.Pattern[bytes] | None: ...


_Rule = TypeVar("_Rule", bound=Triggered)


def applicable(rules: Sequence[_Rule], data: bytes) -> list[_Rule]:
    """The rules that could find something in the file."""
    held: dict[str, bool] = {}

    def holds(token: str) -> bool:
        if token not in held:
            held[token] = token.encode() in data
        return held[token]

    return [
        rule
        for rule in rules
        if all(map(holds, rule.requires))
        and any(map(holds, (*rule.triggers, _MAKES_ANYTHING)))
        and (rule.pattern is None or rule.pattern.search(data) is not None)
    ]
