"""Which rules a file concerns, decided on its bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

MAX_SOURCE_BYTES = 1_000_000
"""Larger Python files are generated or hold data; parsing one would take seconds."""


class Triggered(Protocol):
    """What is needed of a rule here: what a file must hold for it."""

    @property
    def triggers(self) -> tuple[str, ...]: ...
    @property
    def requires(self) -> tuple[str, ...]: ...
    @property
    def pattern(self) -> re.Pattern[bytes] | None: ...


_Rule = TypeVar("_Rule", bound=Triggered)


def applicable(rules: Sequence[_Rule], data: bytes) -> list[_Rule]:
    """The rules that could find something in the file."""
    return [
        rule
        for rule in rules
        if all(token.encode() in data for token in rule.requires)
        and any(token.encode() in data for token in rule.triggers)
        and (rule.pattern is None or rule.pattern.search(data) is not None)
    ]
