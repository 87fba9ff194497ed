"""Abstract values and events: what a training program's objects are and what it does, as far as its text
tells.

A value is a constant, a name of a library, a function or class of the project, a thing (an object with an
identity: a module, a scaler, a tensor, a list, or something unknown), or a union of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tclint.source.run.files import File
from tclint.source.syntax.tables import Call, Discard, Function, method_of, parts_within, render

_HOLDERS = frozenset({"list", "tuple", "dict", "module"})
_PROPERTIES = frozenset({"device", "dtype", "shape", "ndim", "layout", "is_cuda", "requires_grad"})
MOST_OPTIONS = 8
"""The most alternatives that a union keeps; an unknown value stands for the rest."""


class Value:
    """Base of all values. Things compare by identity, constants and symbols by what they stand for."""

    __slots__ = ()


class Constant(Value):
    """A number, a string, True, False, None, ..."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        # 1 == True, yet they are different values.
        return (
            isinstance(other, Constant)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((Constant, type(self.value).__name__, self.value))

    def __repr__(self) -> str:
        return repr(self.value)


class Device(Constant):
    """A `torch.device`, known by its type; it equals the plain constant and differs from it only by class."""

    __slots__ = ()


class Setting(Constant):
    """A constant from a configuration file, with its place there; it equals the plain constant."""

    __slots__ = ("place",)

    def __init__(self, value: object, place: Place) -> None:
        super().__init__(value)
        self.place = place


class Symbol(Value):
    """Something that a library defines, by its full name: `torch.float16`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Symbol, self.name))

    def __repr__(self) -> str:
        return self.name


class Atom(NamedTuple):
    """A test in the program together with its outcome."""

    test: str
    """'truth', '==', 'is' or 'in'."""
    subject: Value
    other: object
    """What the subject is compared with; None for 'truth'."""
    holds: bool

    @property
    def opposite(self) -> Atom:
        return Atom(self.test, self.subject, self.other, not self.holds)


Path = tuple[Atom, ...]
"""The outcomes of the tests that lead to a point of the program, outermost first."""


class Option(NamedTuple):
    """One alternative of a union."""

    value: Value
    guard: Path
    """The tests under which the union has this value, as far as they are known."""


class Union(Value):
    """One of several values, none of which is a union itself."""

    __slots__ = ("options",)

    def __init__(self, options: tuple[Option, ...]) -> None:
        self.options = options

    def __repr__(self) -> str:
        return f"<{' | '.join(repr(option.value) for option in self.options)}>"


class FunctionValue(Value):
    """A function of the project with its enclosing scope; a method is bound to its object."""

    __slots__ = ("file", "frame", "function", "owner", "receiver", "regions")

    def __init__(
        self,
        file: File,
        function: Function,
        frame: Frame,
        owner: ClassValue | None = None,
        receiver: Value | None = None,
        regions: tuple[Value, ...] = (),
    ) -> None:
        self.file = file
        self.function = function
        self.frame = frame
        """The scope that defines it."""
        self.owner = owner
        """The class in whose body it stands."""
        self.receiver = receiver
        self.regions = regions
        """Contexts in which its decorators run each call, such as `@torch.no_grad()`."""

    def bound_to(self, receiver: Value) -> FunctionValue:
        return FunctionValue(self.file, self.function, self.frame, self.owner, receiver, self.regions)

    def within(self, context: Value) -> FunctionValue:
        """The function as a context decorates it: `torch.no_grad()(function)`."""
        regions = (*self.regions, context)
        return FunctionValue(self.file, self.function, self.frame, self.owner, self.receiver, regions)

    def __repr__(self) -> str:
        return f"<function {self.function.qualified_name}>"


class ClassValue(Value):
    """A class of the project, or a library class that a summary defines in Python."""

    __slots__ = ("bases", "file", "function", "is_dataclass", "namespace")

    def __init__(self, file: File, function: Function, bases: tuple[Value, ...]) -> None:
        self.file = file
        self.function = function
        self.bases = bases
        self.namespace: dict[str, Value] = {}
        self.is_dataclass = False

    def lineage(self) -> Iterator[ClassValue]:
        """The class and its known bases, in the order in which attributes are looked up."""
        yield self
        for base in self.bases:
            for option, _ in options_of(base):
                if isinstance(option, ClassValue):
                    yield from option.lineage()

    def library_bases(self) -> Iterator[Symbol]:
        """The bases, direct or inherited, that libraries define."""
        for item in self.lineage():
            for base in item.bases:
                for option, _ in options_of(base):
                    if isinstance(option, Symbol):
                        yield option

    @property
    def is_derived(self) -> bool:
        """Whether it may have methods that the project does not define."""
        return self.is_open or any(base.name != "builtins.object" for base in self.library_bases())

    @property
    def is_open(self) -> bool:
        """Whether any base is unknown."""
        return any(
            not isinstance(option, ClassValue | Symbol)
            for item in self.lineage()
            for base in item.bases
            for option, _ in options_of(base)
        )

    def find(self, name: str) -> Value | None:
        for item in self.lineage():
            found = item.namespace.get(name)
            if found is not None:
                return found
        return None

    def __repr__(self) -> str:
        return f"<class {self.function.qualified_name}>"


class ModuleValue(Value):
    """A file of the project, as `import` gives it."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleValue) and other.file is self.file

    def __hash__(self) -> int:
        return hash(self.file)

    def __repr__(self) -> str:
        return f"<module {self.file.name}>"


class Thing(Value):
    """An object with an identity; its fields and the record's events tell how it changes."""

    __slots__ = ("cls", "fields", "kind", "made", "name", "operation")

    def __init__(
        self,
        kind: str = "",
        name: str = "",
        made: Event | None = None,
        cls: ClassValue | None = None,
        operation: tuple[str, tuple[Value, ...]] | None = None,
    ) -> None:
        self.kind = kind
        """'module', 'optimizer', 'scaler', 'loader', 'tensor', 'list', ...; '' for something unknown."""
        self.name = name
        """The library class that it is an instance of; for an unknown thing a name that only messages use."""
        self.made = made
        """The event that made it."""
        self.cls = cls
        """The class of the project that it is an instance of."""
        self.operation = operation
        """Operator and operands, if Python computes it from unknown values."""
        self.fields: dict[Any, Value] = {}
        """Attributes by name; items as ('item', key). A container has its length under '[]', items at unknown
        positions under '[*]', and '[~]' if there may be more or fewer items. Keys with '@', such as
        '@device', hold state that is not an attribute."""

    @property
    def is_unknown(self) -> bool:
        return not self.kind and self.cls is None

    @property
    def is_property(self) -> bool:
        """Whether it is a property of something, such as `x.device`, and not a part of its contents."""
        operator, operands = self.operation or ("", ())
        return operator == "." and isinstance(operands[1], Constant) and operands[1].value in _PROPERTIES

    def __repr__(self) -> str:
        cls = self.cls.function.qualified_name if self.cls is not None else ""
        return f"<{self.kind or 'unknown'} {self.name or cls}>"


class Frame:
    """The variables of a running function, of a module or of a class body."""

    __slots__ = (
        *("caller", "cls", "depth", "file", "function", "names", "outer", "receiver", "results", "returns"),
        "yields",
    )

    def __init__(self, file: File, function: Function, outer: Frame | None) -> None:
        self.file = file
        self.function = function
        self.outer = outer
        self.caller: Frame | None = None
        self.names: dict[str, Value] = {}
        self.results: dict[Any, Value] = {}
        """Values in the current round of the loop: of calls by node id, of comprehensions by block."""
        self.returns: list[Option] = []
        self.yields: list[Value] = []
        self.receiver: Value | None = None
        self.cls: ClassValue | None = None
        self.depth = 0
        """The number of loops around the call."""


class Place(NamedTuple):
    """A position in the program: a file, one of its functions, and the id of a syntax node."""

    file: File
    function: Function
    node_id: int


class Loop:
    """A loop that runs."""

    __slots__ = ("depth", "lasts_while", "over", "place", "rounds", "source", "stops")

    def __init__(self, place: Place, over: Value | None, depth: int, rounds: int = 0) -> None:
        self.place = place
        self.rounds = rounds
        """The number of rounds if all of them are run one by one; 0 if it is unknown."""
        self.stops = False
        """Whether a round may be left early."""
        self.lasts_while: set[Atom] = set()
        """Test outcomes without which a `return` ends it, so that they hold in all rounds but the last."""
        self.over = over
        """What it iterates over; None for a `while` loop."""
        self.depth = depth
        """The number of tests around the loop: that many tests at the start of an event's path are outside
        it."""
        self.source: Loop | None = None
        """The loop inside a generator that yields this loop's items; the two advance together."""


class Round(NamedTuple):
    """One round of a loop. Bodies run twice, so that the second round sees what the first leaves behind."""

    loop: Loop
    number: int


class Region:
    """A context manager that has been entered: autocast, no_grad, accumulation, or an unknown one."""

    __slots__ = ("context", "entered", "path", "place")

    def __init__(self, context: Value, place: Place, path: Path) -> None:
        self.context = context
        self.place = place
        self.path = path
        self.entered: Event | None = None


@dataclass(slots=True, eq=False)
class Event:
    """Something that a program does: a call, an operation on tensors, an assignment to a library's
    variable."""

    kind: str
    """The kind that the library tables give ('backward', 'step', 'clip', ...), else 'call', 'op' or 'set'."""
    name: str
    """Full name of the callee; '.item' for a method, '+' for an operator."""
    subject: Value | None
    """The object whose method is called."""
    arguments: dict[str, Value]
    """By parameter name where the parameters are known, else by position: '0', '1', ..."""
    place: Place
    stack: tuple[Place, ...]
    """The calls that led to it, outermost first."""
    path: Path
    loops: tuple[Round, ...]
    regions: tuple[Region, ...]
    index: int
    run: int = 0
    """The number of the entry point that led to it; events of different entry points have no order."""
    call: Call | None = None
    """The call as written; None if the event is not a call."""
    inside: Event | None = None
    """The innermost forward of a module during which it happens."""
    result: Value | None = None
    changed: dict[str, Value] = field(default_factory=dict)
    """The subject's '@' fields at the time of the event: '@dtype', '@device', ..."""
    unless: str = ""
    """The argument with which a wait would not be, as the library tables name it: 'output_size',
    'validate_args=False'."""
    precedes_error: bool = False
    """Whether its branch ends with an exception, as where an error message is put together."""

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.stack, self.place)

    @property
    def is_discarded(self) -> bool:
        """Whether it is a call that is a statement of its own, so that its result is thrown away."""
        discards = (item for item in self.place.function.events if isinstance(item, Discard))
        return any(item.node_id == self.place.node_id for item in discards)

    @property
    def around(self) -> Iterator[Event]:
        """The forwards during which it happens, innermost first."""
        event = self.inside
        while event is not None:
            yield event
            event = event.inside

    @property
    def loop(self) -> Loop | None:
        """The innermost loop around it."""
        return self.loops[-1].loop if self.loops else None

    @property
    def first(self) -> Value | None:
        """Its first argument."""
        return next(iter(self.arguments.values()), None)

    @property
    def receiver_name(self) -> str:
        """The object whose method the call calls, as written: `optimizer` in `optimizer.step()`; else ''."""
        receiver = method_of(self.call)[0] if self.call is not None else None
        return render(receiver) if receiver is not None else ""

    @property
    def callee_name(self) -> str:
        """What is called, as written: `model` in `model(x)`; '' if the event is no call."""
        return render(self.call.function) if self.call is not None else ""

    @property
    def argument_text(self) -> str:
        """The call's first argument, as written; '' if it has none."""
        arguments = self.call.arguments if self.call is not None else ()
        return render(arguments[0].value) if arguments else ""

    @property
    def assigned_name(self) -> str:
        """The name to which a statement assigns the call's result; '' if there is none."""
        for item in self.place.function.assignments:
            calls = (part for part in parts_within(item.value) if isinstance(part, Call))
            if any(call.node_id == self.place.node_id for call in calls) and len(item.targets) == 1:
                return item.targets[0]
        return ""

    def shares_rounds(self, other: Event) -> bool:
        """Whether this and another event happen in the same rounds of the loops around both."""
        mine = {round_.loop: round_.number for round_ in self.loops}
        return all(mine.get(round_.loop, round_.number) == round_.number for round_ in other.loops)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads: the subject and the arguments."""
        if self.subject is None:
            return tuple(self.arguments.values())
        return (self.subject, *self.arguments.values())

    def __repr__(self) -> str:
        return f"<{self.index} {self.kind} {self.name}>"


NONE = Constant(None)
"""None, for comparing values with."""
TRUE = Constant(True)
"""True, for comparing values with."""
FALSE = Constant(False)
"""False, for comparing values with."""
NEVER = Thing("never")
"""The result of a call that ends the program."""


def options_of(value: Value) -> tuple[Option, ...]:
    """The alternatives of a value; a value that is not a union is its own only alternative."""
    return value.options if isinstance(value, Union) else (Option(value, ()),)


def join(options: list[Option]) -> Value:
    """The union of several values.

    A value that occurs in several options keeps only the tests that they share.
    """
    first = options[0].value
    if len(options) == 1 or (not isinstance(first, Union) and all(value is first for value, _ in options)):
        return first
    found: dict[Value, Path] = {}
    for value, guard in options:
        for inner, more in options_of(value):
            both = guard + more if more else guard
            known = found.get(inner)
            if known is None:
                found[inner] = both
            elif known:
                found[inner] = tuple(atom for atom in known if atom in both)
    if len(found) == 1:
        return next(iter(found))
    if len(found) > MOST_OPTIONS:
        kept = [(value, guard) for value, guard in found.items() if not _is_plain(value)]
        if len(kept) >= MOST_OPTIONS:
            kept = kept[: MOST_OPTIONS - 1]
        return Union((*(Option(value, guard) for value, guard in kept), Option(Thing(), ())))
    # An existing union with the same alternatives is reused, so that tests of it are tests of the same value.
    for value, _ in options:
        if isinstance(value, Union) and len(value.options) == len(found):
            return value
    return Union(tuple(Option(value, guard) for value, guard in found.items()))


def either(*values: Value) -> Value:
    """The union of several values, without tests that choose between them."""
    return join([Option(value, ()) for value in values])


def _is_plain(value: Value) -> bool:
    return isinstance(value, Constant) or (isinstance(value, Thing) and value.is_unknown)


def modules_in(module: Thing, *, only_sure: bool = False) -> Iterator[Thing]:
    """A module and the modules in it.

    Args:
        only_sure: leave out modules that are only one alternative of a union.
    """
    seen: set[Value] = set()
    pending: list[Value] = [module]
    while pending:
        value = pending.pop()
        for item, _ in () if only_sure and isinstance(value, Union) else options_of(value):
            if isinstance(item, Thing) and item.kind in _HOLDERS and item not in seen:
                seen.add(item)
                pending.extend(
                    held for key, held in item.fields.items() if str(key)[:1] != "@" or key == "@part"
                )
                if item.kind == "module":
                    yield item


def duplicate(value: Value, made: Event | None, done: dict[Value, Thing] | None = None) -> Value:
    """A deep copy of a value: modules and containers are copied, all other values are shared."""
    done = {} if done is None else done
    if isinstance(value, Union):
        return Union(tuple(Option(duplicate(item, made, done), guard) for item, guard in value.options))
    if not isinstance(value, Thing) or value.kind not in _HOLDERS:
        return value
    if value not in done:
        copied = done[value] = Thing(value.kind, value.name, made, value.cls, value.operation)
        copied.fields = {key: duplicate(item, made, done) for key, item in value.fields.items()}
    return done[value]


def root_of(thing: Thing) -> Thing:
    """The object at the start of a chain of attributes or items: `model` for `model.encoder`."""
    while thing.operation is not None and thing.operation[0] in (".", "[]"):
        owner = thing.operation[1][0]
        if not isinstance(owner, Thing):
            break
        thing = owner
    return thing


def constants_of(value: Value) -> tuple[object, ...] | None:
    """The constants that a value can be; None if it can be anything else."""
    found = []
    for option, _ in options_of(value):
        if not isinstance(option, Constant):
            return None
        found.append(option.value)
    return tuple(found)


def integers_of(value: Value | None) -> tuple[int, ...]:
    """The integers that a value can be; empty if it can be anything else."""
    found = constants_of(value) if value is not None else None
    numbers = tuple(item for item in found or () if type(item) is int)
    return numbers if found is not None and len(numbers) == len(found) else ()


def constant_of(value: Value | None) -> object:
    """The value of a constant; None for any other value (and for the constant None)."""
    return value.value if isinstance(value, Constant) else None
