"""The state of a run, and how branches of it are run and joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from tclint.source.project.launchers import Launch
from tclint.source.run.conditions import exclude, refined
from tclint.source.run.files import File
from tclint.source.run.interpreter.store import Store
from tclint.source.run.library import Library, Spec
from tclint.source.run.record import Record
from tclint.source.run.values import (
    Atom,
    Constant,
    Event,
    Frame,
    Option,
    Path,
    Place,
    Region,
    Round,
    Symbol,
    Thing,
    Union,
    Value,
    join,
    options_of,
)
from tclint.source.syntax.positions import Span
from tclint.source.syntax.tables import Call, Expression

MOST_EVENTS = 60_000
"""Default limit on the events of one program; one entry point may use half of them, and the program itself
all but those that are kept for code that it does not reach."""
_KEPT = 6
"""The program itself leaves this fraction (1/6) of its events to code that it does not reach."""
_SMALL_CALL = 3_000
"""A call may use this many events without leaving any to the code after it."""
_LEFT = 1_500
"""The most events that a call leaves to the code after it."""


class Project(Protocol):
    """Finds the files of the project."""

    def module(self, importer: File, name: str) -> File | None:
        """The project's file that `importer` imports under a module name; None if the project has none."""
        ...

    def settings(self, importer: File, name: str) -> Value | None:
        """The contents of a configuration file that `importer` names; None if it is not found."""
        ...

    def data(self, path: str) -> bytes | None:
        """What a file holds; None where it cannot be read."""
        ...

    def holding(self, script: File, keys: Collection[str]) -> list[Value]:
        """The contents of the project's configuration files that have all of some keys at the top."""
        ...

    def launches_of(self, script: File, *, on_pages: bool = False) -> list[Launch]:
        """The commands of shell scripts, or those that pages show, that start a script."""
        ...

    def place_in(self, path: str, span: Span) -> Place:
        """A place in a text that is no Python."""
        ...

    def may_define(self, importer: File, module: str, name: str) -> bool:
        """Whether `from module import *` may define a name, as far as can be told without running the
        module."""
        ...

    def registering(self, importer: File, name: str) -> Iterator[File]:
        """The files that a file leads to in which something may be registered under a name."""
        ...

    def imported(
        self, importer: File, paths: Collection[str], described: Collection[str] = ()
    ) -> Iterator[File]:
        """The files that a file imports, by other names than those, and that either have an effect when they
        are imported or are among `paths`."""
        ...


class Core:
    """The state that all parts of the interpreter share."""

    def __init__(self, project: Project, library: Library, events: int = MOST_EVENTS) -> None:
        self.project = project
        self.events = events
        """The most events that the program may have."""
        self.library = library
        self.record = Record()
        self.store = Store()
        self.launches: list[Launch] | None = []
        """The commands that start the program, where it was asked what they pass; None: they do not count."""
        self.unnamed: dict[Place, Thing] = {}
        """Call that reads a configuration file which only the command line names -> what stands for it."""
        self.settled: dict[Place, Value] = {}
        """Such a call -> what one of the project's files holds."""
        self.frames: dict[File, Frame] = {}
        """The variables of each file whose module body has been started."""
        self.frame: Frame = None  # type: ignore[assignment]  # set when a file is entered
        self.path: Path = ()
        self.loops: tuple[Round, ...] = ()
        self.regions: tuple[Region, ...] = ()
        self.stack: tuple[Place, ...] = ()
        self.inside: Event | None = None
        """The innermost forward that is running."""
        self.node_id = 0
        """Id of the current syntax node; an operation without a node of its own is placed there."""
        self.run_number = 0
        """The number of the entry point that is running."""
        self.most_events = events - events // _KEPT
        """The number of events at which the running call or entry point is cut off."""
        self.ran: set[tuple[str, int]] = set()
        """Functions that have run: (path, index)."""
        self.watched = ""
        """The qualified name of functions whose calls are events of their own, of kind 'enter'."""
        self._operations: dict[tuple[str, tuple[Value, ...]], Thing] = {}
        self._unions: dict[tuple[Option, ...], Union] = {}
        """Options that tests choose between -> the union of them."""
        self._entry_path = 0

    # -- events

    @property
    def here(self) -> Place:
        return Place(self.frame.file, self.frame.function, self.node_id)

    def happen(
        self,
        kind: str,
        name: str,
        subject: Value | None,
        arguments: dict[str, Value],
        call: Call | None = None,
    ) -> Event:
        """Record an event at the current place."""
        node_id = call.node_id if call is not None else self.node_id
        event = Event(
            kind,
            name,
            subject,
            arguments,
            Place(self.frame.file, self.frame.function, node_id),
            self.stack,
            self.path,
            self.loops,
            self.regions,
            len(self.record.events),
            self.run_number,
            call,
            self.inside,
        )
        if isinstance(subject, Thing) and subject.fields:
            event.changed = {key: item for key, item in subject.fields.items() if str(key)[:1] == "@"}
        self.record.events.append(event)
        return event

    @property
    def exhausted(self) -> bool:
        """Whether the running call or entry point has used up its events."""
        return len(self.record.events) >= self.most_events

    def share(self) -> int:
        """The number of events at which a call is cut off: a large call leaves some to the code after it. The
        code after a call has few calls of its own, so that a forward deep in a chain of calls is not cut
        while most of the program's events are left."""
        done = len(self.record.events)
        left = self.most_events - done
        return done + max(left - min(left // 3, _LEFT), min(left, _SMALL_CALL))

    # -- values

    def unknown(self, name: str = "", made: Event | None = None) -> Thing:
        return Thing("", name, made)

    def chosen_outside(self, by: Value) -> Thing:
        """An unknown value that something outside the program chooses: 'rank', 'command line'."""
        found = Thing("", "outside")
        found.fields["@chosen by"] = by
        return found

    def operate(self, operator: str, operands: tuple[Value, ...], name: str = "") -> Thing:
        """The result of an operation on unknown values; the same operation gives the same thing each time."""
        key = (operator, operands)
        found = self._operations.get(key)
        if found is None:
            found = self._operations[key] = Thing("", name, operation=(operator, operands))
        return found

    def from_outside(self, operator: str, operands: tuple[Value, ...]) -> Thing | None:
        """The result of an operation with an operand that is chosen outside the program; the result counts as
        chosen there too. None if there is no such operand."""
        for operand in operands:
            if isinstance(operand, Thing) and "@chosen by" in operand.fields:
                made = self.operate(operator, operands)
                made.fields.update({key: item for key, item in operand.fields.items() if key[:1] == "@"})
                return made
        return None

    def refine(self, value: Value) -> Value:
        """A value without the alternatives that the current path excludes."""
        return refined(value, self.path) if isinstance(value, Union) else value

    # -- branches

    def alternatives(self, ways: list[tuple[Path, Callable[[], Value]]]) -> Value:
        """Run each alternative from the same state, under its tests, and join the results."""
        possible = [(guard, way) for guard, way in ways if not exclude(guard, self.path)]
        if not possible:
            possible = ways[:1]
        if len(possible) == 1:
            guard, way = possible[0]
            before = self.path
            self.path = (*before, *guard)
            try:
                return way()
            finally:
                self.path = before
        results: list[Option] = []
        branches = []
        before = self.path
        for guard, way in possible:
            mark = self.store.start()
            self.path = (*before, *guard)
            try:
                results.append(Option(way(), guard))
            finally:
                self.path = before
                branches.append((self.store.undo(mark), guard))
        self.store.merge(branches)
        result = join(results)
        if isinstance(result, Union) and all(option.guard for option in result.options):
            # What is read again is the same value, as tests of it have to be.
            return self._unions.setdefault(result.options, result)
        return result

    def each(self, value: Value, ask: Callable[[Value], Value]) -> Value:
        """Apply `ask` to every alternative of a value and join the results."""
        if not isinstance(value, Union):
            return ask(value)
        options = [
            option for option in value.options if not exclude(option.guard, self.path)
        ] or value.options
        ways = []
        for option in options:
            guard = option.guard or _choice(value, option)
            ways.append((guard, lambda inner=option.value: ask(inner)))
        return self.alternatives(ways)  # type: ignore[arg-type]

    # -- what parts that stand on this one do

    def evaluate(self, expression: Expression) -> Value:
        raise NotImplementedError

    def symbol(self, name: str) -> Value:
        raise NotImplementedError

    def import_(self, file: File, qualified: str) -> Value:
        raise NotImplementedError

    def starred(self, frame: Frame, name: str, seen: frozenset[File] = frozenset()) -> Value | None:
        raise NotImplementedError

    def is_tensor(self, value: Value) -> bool:
        raise NotImplementedError

    def is_mask(self, value: Value) -> bool:
        raise NotImplementedError

    def tensor(
        self,
        kind: str,
        name: str,
        subject: Value | None,
        arguments: dict[str, Value],
        call: Call | None = None,
    ) -> Thing:
        raise NotImplementedError

    def wait(self, name: str, value: Value, call: Call | None = None) -> list[Event]:
        raise NotImplementedError

    def attribute_of_tensor(self, value: Thing, name: str) -> Value:
        raise NotImplementedError

    def attribute_of_module(self, module: Thing, name: str) -> Value | None:
        raise NotImplementedError

    def attribute_of_super(self, value: Thing, name: str) -> Value:
        raise NotImplementedError

    def element_of_thing(self, value: Thing) -> Value:
        raise NotImplementedError

    def call_value(
        self,
        value: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call | None = None,
    ) -> Value:
        raise NotImplementedError

    def call_method(
        self,
        receiver: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        raise NotImplementedError

    def call_symbol(self, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        raise NotImplementedError

    def call_spec(
        self,
        spec: Spec,
        name: str,
        receiver: Thing | None,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        raise NotImplementedError

    def bound(
        self, parameters: tuple[str, ...], arguments: list[Value], keywords: dict[str, Value]
    ) -> dict[str, Value]:
        raise NotImplementedError

    def run_module(self, file: File) -> None:
        raise NotImplementedError

    def arguments(self) -> Value | None:
        raise NotImplementedError

    # -- small questions

    def part_of_path(self, value: Value, name: str) -> Value | None:
        raise NotImplementedError

    def text_of(self, value: Value | None) -> str | None:
        """The one string that a value is."""
        return value.value if isinstance(value, Constant) and isinstance(value.value, str) else None

    def symbols(self, value: Value | None) -> list[str]:
        """The library names that a value can be."""
        if value is None:
            return []
        return [option.name for option, _ in options_of(value) if isinstance(option, Symbol)]


def _choice(union: Union, option: Option) -> Path:
    """The test that a union is this option, for options without tests of their own."""
    return (Atom("is", union, option.value, True),)
