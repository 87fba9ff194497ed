"""Which files are worth parsing, decided on their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tclint.rule import SourceRule

MAX_SOURCE_BYTES = 1_000_000
"""Larger Python files are generated or hold data; parsing one would take seconds."""


@dataclass(frozen=True, slots=True)
class Prefilter:
    """The union of what some rules need to see in a file."""

    needs: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...]], ...]
    """Per distinct need: any of the first tokens, and all of the second."""

    @classmethod
    def of(cls, rules: Iterable[SourceRule]) -> Prefilter:
        needs = {
            (
                tuple(trigger.encode() for trigger in rule.triggers),
                tuple(token.encode() for token in rule.requires),
            )
            for rule in rules
        }
        return cls(tuple(sorted(needs)))

    def passes(self, data: bytes) -> bool:
        """Whether some rule could find something in the file."""
        return any(_holds(data, triggers, required) for triggers, required in self.needs)


def applicable(rules: Sequence[SourceRule], data: bytes) -> list[SourceRule]:
    """The rules that could find something in the file."""
    return [rule for rule in rules if Prefilter.of((rule,)).passes(data)]


def _holds(data: bytes, triggers: tuple[bytes, ...], required: tuple[bytes, ...]) -> bool:
    return any(trigger in data for trigger in triggers) and all(token in data for token in required)
