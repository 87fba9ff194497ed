"""The record of a program: its events in order, with their values, regions, loops and conditions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import takewhile

from tclint.source.run.conditions import exclude
from tclint.source.run.values import Atom, Event, Loop, Path, Thing, Value, options_of


class Record:
    """The events of one program, and questions about their order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._by_kind: dict[tuple[str, ...], list[Event]] = {}
        self._with_subject: dict[tuple[str, ...], dict[Thing, list[Event]]] = {}
        self._inside: dict[Event, list[Event]] = {}
        self._indexed = 0
        self.required: set[Atom] = set()
        """Test outcomes without which the program ends with an error."""
        self.cut: dict[tuple[str, str], None] = {}
        """(path, name) of the functions that were not followed because the budget was used up."""

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in order."""
        if self._indexed != len(self.events):
            self.reindex()
        found = self._by_kind.get(kinds)
        if found is None:
            merged = [event for kind in kinds for event in self._by_kind.get((kind,), ())]
            found = self._by_kind[kinds] = sorted(merged, key=_index)
        return found

    def on(self, value: Value | None, *kinds: str) -> list[Event]:
        """Events of these kinds whose subject may be a value, in order."""
        self.of(*kinds)
        things = [item for item, _ in options_of(value) if isinstance(item, Thing)] if value else []
        found = [self._on_thing(thing, kinds) for thing in things]
        if len(found) == 1:
            return found[0]
        return sorted({event for events in found for event in events}, key=_index)

    def _on_thing(self, thing: Thing, kinds: tuple[str, ...]) -> list[Event]:
        if kinds not in self._with_subject:
            by_thing = self._with_subject[kinds] = {}
            for event in self.of(*kinds):
                for option, _ in options_of(event.subject) if event.subject is not None else ():
                    if isinstance(option, Thing):
                        by_thing.setdefault(option, []).append(event)
        return self._with_subject[kinds].get(thing, [])

    def reindex(self) -> None:
        """Rebuild the index by kind, since some events get their kind after the whole program has run."""
        self._by_kind.clear()
        self._with_subject.clear()
        self._inside.clear()
        for event in self.events:
            self._by_kind.setdefault((event.kind,), []).append(event)
            for forward in event.around:
                self._inside.setdefault(forward, []).append(event)
        self._indexed = len(self.events)

    def inside(self, forward: Event) -> list[Event]:
        """The events during a forward, in order."""
        self.of()
        return self._inside.get(forward, [])

    def before(self, event: Event, *kinds: str, on: Value | None = None) -> Iterator[Event]:
        """Events that can happen before this one in the same run, latest first.

        Args:
            on: only those whose subject may be this.
        """
        events = self.of(*kinds) if on is None else self.on(on, *kinds)
        for position in range(bisect_left(events, event.index, key=_index) - 1, -1, -1):
            other = events[position]
            if other.run != event.run:
                break
            if not exclude(other.path, event.path):
                yield other

    def after(self, event: Event, *kinds: str, on: Value | None = None) -> Iterator[Event]:
        """Events that can happen after this one in the same run, earliest first.

        Args:
            on: only those whose subject may be this.
        """
        events = self.of(*kinds) if on is None else self.on(on, *kinds)
        for position in range(bisect_right(events, event.index, key=_index), len(events)):
            other = events[position]
            if other.run != event.run:
                break
            if not exclude(other.path, event.path):
                yield other

    def between(self, first: Event, second: Event, *kinds: str, on: Value | None = None) -> list[Event]:
        """Events that can happen between two others in a run that does both, in order.

        Args:
            on: only those whose subject may be this.
        """
        later = takewhile(lambda other: other.index < second.index, self.after(first, *kinds, on=on))
        return [other for other in later if not exclude(other.path, second.path)]


def _index(event: Event) -> int:
    return event.index


def conditions_in(event: Event, loop: Loop) -> Path:
    """The tests that an event depends on within one round of a loop around it."""
    return event.path[loop.depth :]
