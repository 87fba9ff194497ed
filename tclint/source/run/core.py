"""The state of a run, and how branches of it are run and joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from tclint.source.project.launchers import Launch
from tclint.source.run.conditions import exclude, refined
from tclint.source.run.files import File
from tclint.source.run.library import Library, Spec
from tclint.source.run.record import Record
from tclint.source.run.store import Store
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
"""Of one program, where nothing else is set; one entry point has half of them."""
_SMALL_CALL = 3_000
"""Events of a call that need not be shared out."""
DEEPEST = 40


class Project(Protocol):
    """Where files of the project are found."""

    def module(self, importer: File, name: str) -> File | None:
        """The file that a module name means where `importer` imports it; None: not one of the project."""
        ...

    def settings(self, importer: File, name: str) -> Value | None:
        """What a configuration file holds that `importer` names; None where none is found."""
        ...

    def data(self, path: str) -> bytes | None:
        """What a file holds; None where it cannot be read."""
        ...

    def launches_of(self, script: File) -> list[Launch]:
        """The commands of shell scripts that start a script."""
        ...

    def place_in(self, path: str, span: Span) -> Place:
        """A place in a text that is no Python."""
        ...

    def may_define(self, importer: File, module: str, name: str) -> bool:
        """Whether `from module import *` may bring a name, as far as can be told without running it."""
        ...

    def imported(self, importer: File, paths: Collection[str]) -> Iterator[File]:
        """The files that the imports of a file lead to and that do something when they are imported, or are
        among `paths`."""
        ...


class Core:
    """What every part of the interpreter works on."""

    def __init__(self, project: Project, library: Library, events: int = MOST_EVENTS) -> None:
        self.project = project
        self.events = events
        """How many there may be in all."""
        self.library = library
        self.record = Record()
        self.store = Store()
        self.launches: list[Launch] | None = []
        """The commands that start the program, where it was asked what they pass; None: they do not count."""
        self.frames: dict[File, Frame] = {}
        """The variables of modules that run, or have run."""
        self.frame: Frame = None  # type: ignore[assignment]  # set when a file is entered
        self.path: Path = ()
        self.loops: tuple[Round, ...] = ()
        self.regions: tuple[Region, ...] = ()
        self.stack: tuple[Place, ...] = ()
        self.inside: Event | None = None
        """The forward that runs."""
        self.node_id = 0
        """Of what runs, where an operation has none of its own."""
        self.run_number = 0
        """Of the entry point that runs."""
        self.most_events = events // 2
        """How many events there may be when what runs ends."""
        self.ran: set[tuple[str, int]] = set()
        """Functions that have run: (path, index)."""
        self._operations: dict[tuple[str, tuple[Value, ...]], Thing] = {}
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
        """Note something that the program does here."""
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
        """Whether what runs has used up what it may do."""
        return len(self.record.events) >= self.most_events

    def share(self) -> int:
        """How many events there may be when a call ends: a large one leaves some to what comes after it."""
        done = len(self.record.events)
        left = self.most_events - done
        return done + max(left * 2 // 3, min(left, _SMALL_CALL))

    # -- values

    def unknown(self, name: str = "", made: Event | None = None) -> Thing:
        return Thing("", name, made)

    def chosen_outside(self, by: Value) -> Thing:
        """What something outside of the program chooses: 'rank', 'command line'."""
        found = Thing("", "outside")
        found.fields["@chosen by"] = by
        return found

    def operate(self, operator: str, operands: tuple[Value, ...], name: str = "") -> Thing:
        """What an operation gives of values that are not known: the same for the same ones."""
        key = (operator, operands)
        found = self._operations.get(key)
        if found is None:
            found = self._operations[key] = Thing("", name, operation=(operator, operands))
        return found

    def refine(self, value: Value) -> Value:
        """A value where the run stands."""
        return refined(value, self.path) if isinstance(value, Union) else value

    # -- branches

    def alternatives(self, ways: list[tuple[Path, Callable[[], Value]]]) -> Value:
        """Run each of several ways from the same state, under its tests, and join what comes out."""
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
        return join(results)

    def each(self, value: Value, ask: Callable[[Value], Value]) -> Value:
        """What comes out for every alternative of a value."""
        if not isinstance(value, Union):
            return ask(value)
        options = [
            option for option in value.options if not exclude(option.guard, self.path)
        ] or value.options
        # Beside something that is known, something else adds nothing but that.
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

    def starred(self, frame: Frame, name: str) -> Value | None:
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

    def text_of(self, value: Value | None) -> str | None:
        """The one string that a value is."""
        return value.value if isinstance(value, Constant) and isinstance(value.value, str) else None

    def symbols(self, value: Value | None) -> list[str]:
        """Names of libraries that a value can be."""
        if value is None:
            return []
        return [option.name for option, _ in options_of(value) if isinstance(option, Symbol)]


def _choice(union: Union, option: Option) -> Path:
    """That a union is one of its options: nothing else can be told of it where no test chooses."""
    return (Atom("is", union, option.value, True),)
