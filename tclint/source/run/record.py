"""What a program does, in order: events with their values, regions, loops and conditions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tclint.source.run.conditions import exclude
from tclint.source.run.values import Atom, Event, Loop, Path


class Record:
    """The events of one program, and questions about their order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._by_kind: dict[str, list[Event]] = {}
        self._indexed = 0
        self.required: set[Atom] = set()
        """Tests without which the program ends with an error."""
        self.cut: set[str] = set()
        """What the budget cut off: functions that were not followed."""

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in order."""
        if self._indexed != len(self.events):
            self.reindex()
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        found = [event for kind in kinds for event in self._by_kind.get(kind, ())]
        return sorted(found, key=lambda event: event.index)

    def reindex(self) -> None:
        """Sort events by kind anew: some get theirs when the whole program is known."""
        self._by_kind = {}
        for event in self.events:
            self._by_kind.setdefault(event.kind, []).append(event)
        self._indexed = len(self.events)

    def before(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Events that one run can do earlier than this one, the latest first."""
        events = self.of(*kinds)
        for position in range(bisect_left(events, event.index, key=_index) - 1, -1, -1):
            other = events[position]
            if other.run != event.run:
                break
            if not exclude(other.path, event.path):
                yield other

    def after(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Events that one run can do later than this one, the next first."""
        events = self.of(*kinds)
        for position in range(bisect_right(events, event.index, key=_index), len(events)):
            other = events[position]
            if other.run != event.run:
                break
            if not exclude(other.path, event.path):
                yield other

    def between(self, first: Event, second: Event, *kinds: str) -> list[Event]:
        """Events that a run which does both can do between them, in order."""
        return [
            other
            for other in self.after(first, *kinds)
            if other.index < second.index and not exclude(other.path, second.path)
        ]


def _index(event: Event) -> int:
    return event.index


def shares_round(one: Event, other: Event, loop: Loop) -> bool:
    """Whether both happen in the same round of a loop around them."""
    return any(round_ in other.loops for round_ in one.loops if round_.loop is loop)


def conditions_in(event: Event, loop: Loop) -> Path:
    """Tests that an event depends on within a round of a loop around it."""
    return event.path[loop.depth :]
