"""What a program does, in order: events with their values, regions, loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tclint.source.run.conditions import exclude
from tclint.source.run.values import Path, Value
from tclint.source.syntax.tables import Call

if TYPE_CHECKING:
    from tclint.source.run.files import File
    from tclint.source.syntax.tables import Function


class Place(NamedTuple):
    """Where something stands: a file, a function of it, and what a node id stands for."""

    file: File
    function: Function
    node_id: int


class Loop:
    """A loop that runs."""

    __slots__ = ("depth", "over", "place")

    def __init__(self, place: Place, over: Value | None, depth: int) -> None:
        self.place = place
        self.over = over
        """What it iterates over; None of a `while` loop."""
        self.depth = depth
        """Tests that hold around it: the first so many of an event's path."""


class Round(NamedTuple):
    """One round of a loop; bodies run twice, so that what the first leaves behind is seen by the second."""

    loop: Loop
    number: int


class Region:
    """A context that is entered: autocast, no_grad, accumulation, or one that is not known."""

    __slots__ = ("context", "path", "place")

    def __init__(self, context: Value, place: Place, path: Path) -> None:
        self.context = context
        self.place = place
        self.path = path


@dataclass(slots=True, eq=False)
class Event:
    """Something that a program does: a call, an operation on tensors, a setting of a library's variable."""

    kind: str
    """As library tables name it ('backward', 'step', 'clip', ...); 'call', 'op', 'set' for the rest."""
    name: str
    """Full name of what is called; '.item' of a method, '+' of an operator."""
    subject: Value | None
    """What a method is called on."""
    arguments: dict[str, Value]
    """By parameter where these are known, else by position: '0', '1', ..."""
    place: Place
    stack: tuple[Place, ...]
    """The calls that led there, outermost first."""
    path: Path
    loops: tuple[Round, ...]
    regions: tuple[Region, ...]
    index: int
    call: Call | None = None
    """As written; None of what is no call."""
    result: Value | None = None
    changed: dict[str, Value] = field(default_factory=dict)
    """What was known of the subject when it happened: '@dtype', '@device', ..."""

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.stack, self.place)

    @property
    def loop(self) -> Loop | None:
        """The innermost loop around it."""
        return self.loops[-1].loop if self.loops else None

    @property
    def first(self) -> Value | None:
        """Its first argument."""
        return next(iter(self.arguments.values()), None)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads: the subject and the arguments."""
        if self.subject is None:
            return tuple(self.arguments.values())
        return (self.subject, *self.arguments.values())

    def __repr__(self) -> str:
        return f"<{self.index} {self.kind} {self.name}>"


class Record:
    """The events of one program, and questions about their order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._by_kind: dict[str, list[Event]] = {}
        self._indexed = 0
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
        for other in reversed(self.of(*kinds)):
            if other.index < event.index and not exclude(other.path, event.path):
                yield other

    def after(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Events that one run can do later than this one, the next first."""
        for other in self.of(*kinds):
            if other.index > event.index and not exclude(other.path, event.path):
                yield other

    def between(self, first: Event, second: Event, *kinds: str) -> list[Event]:
        """Events that a run which does both can do between them, in order."""
        return [
            other
            for other in self.after(first, *kinds)
            if other.index < second.index and not exclude(other.path, second.path)
        ]


def shares_round(one: Event, other: Event, loop: Loop) -> bool:
    """Whether both happen in the same round of a loop around them."""
    return any(round_ in other.loops for round_ in one.loops if round_.loop is loop)


def conditions_in(event: Event, loop: Loop) -> Path:
    """Tests that an event depends on within a round of a loop around it."""
    return event.path[loop.depth :]
