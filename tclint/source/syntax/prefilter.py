"""Which files are worth parsing, decided on their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Prefilter:
    """The union of what some rules need to see in a file."""

    needs: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...], re.Pattern[bytes] | None], ...]
    """Per distinct need: any of the first tokens, all of the second, and a match of the pattern."""

    @classmethod
    def of(cls, rules: Iterable[Triggered]) -> Prefilter:
        needs = (
            (
                tuple(trigger.encode() for trigger in rule.triggers),
                tuple(token.encode() for token in rule.requires),
                rule.pattern,
            )
            for rule in rules
        )
        return cls(tuple(dict.fromkeys(needs)))

    def passes(self, data: bytes) -> bool:
        """Whether some rule could find something in the file."""
        return any(_holds(data, *need) for need in self.needs)


def applicable(rules: Sequence[_Rule], data: bytes) -> list[_Rule]:
    """The rules that could find something in the file."""
    return [rule for rule in rules if Prefilter.of((rule,)).passes(data)]


def _holds(
    data: bytes, triggers: tuple[bytes, ...], required: tuple[bytes, ...], pattern: re.Pattern[bytes] | None
) -> bool:
    return (
        all(token in data for token in required)
        and any(trigger in data for trigger in triggers)
        and (pattern is None or pattern.search(data) is not None)
    )
