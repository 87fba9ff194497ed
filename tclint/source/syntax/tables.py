"""The tables of one file as plain data: no syntax-tree object reaches a rule.

An expression is one of the small tuples below. A `node_id` is a number that stands for a place in the file;
`SourceContext.location` turns it into lines and columns, and only then are positions computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias
from typing import Literal as Choices


class Literal(NamedTuple):
    """A number, string, bytes, True, False, None or Ellipsis."""

    value: object


class Name(NamedTuple):
    """A name with the attributes taken from it, as written: 'loss', 'self.loss', 'torch.float16'."""

    dotted: str


class Attribute(NamedTuple):
    """An attribute of something that is not a Name: `f(x).loss`."""

    value: Expression
    name: str


class Argument(NamedTuple):
    value: Expression
    keyword: str = ""
    star: str = ""
    """'*' or '**' for unpacked arguments."""


class Call(NamedTuple):
    function: Expression
    arguments: tuple[Argument, ...]
    node_id: int


class Choice(NamedTuple):
    """`first if condition else second`."""

    condition: Expression
    first: Expression
    second: Expression


class Operation(NamedTuple):
    """'+', '*', 'and', 'not', '==', 'is not', ...; 'neg' is the unary minus."""

    operator: str
    operands: tuple[Expression, ...]


class Subscript(NamedTuple):
    value: Expression
    key: Expression


class Collection(NamedTuple):
    """A tuple, list, set or dict display; `keys` only for a dict (None where `**other` is unpacked)."""

    kind: Choices["tuple", "list", "set", "dict"]
    items: tuple[Expression, ...]
    keys: tuple[Expression | None, ...] = ()


class Closure(NamedTuple):
    """A lambda; `function` is the index of its record."""

    function: int


class Other(NamedTuple):
    """Any other expression; the parts are the expressions that it reads. `kind`: 'comprehension', 'iterate'
    (an item of the first part), 'enter' (the value that a with item binds), 'declared' (a field with a type
    and no value), 'star', 'await', 'yield', 'string', 'slice', 'pair' (the key and the value of a dict),
    ..."""

    kind: str
    parts: tuple[Expression, ...] = ()
    block: int = -1
    """The 'each' block of a comprehension's innermost loop."""


Expression: TypeAlias = (
    Literal | Name | Attribute | Call | Choice | Operation | Subscript | Collection | Closure | Other
)

BlockKind = Choices[
    "body", "if", "else", "loop", "loop_else", "each", "try", "except", "try_else", "finally", "with", "case"
]
"""'each' is a loop of a comprehension."""


class WithItem(NamedTuple):
    value: Expression
    name: str
    """Dotted name after `as`, or ''."""
    node_id: int


class Block(NamedTuple):
    """A run of statements under one condition; block 0 of a function is its body."""

    kind: BlockKind
    parent: int
    """Index of the enclosing block; -1 for block 0."""
    node_id: int
    statement: int
    """Blocks of one if/try/match statement share this number."""
    condition: Expression | None = None
    """The condition of an 'if', its 'else', a 'while' loop or a case's guard; for an 'each' the element that
    it makes, or the 'pair' of a dict."""
    items: tuple[WithItem, ...] = ()
    """The context managers of a 'with'."""


class CallEvent(NamedTuple):
    call: Call
    block: int


class Assignment(NamedTuple):
    """`targets` are dotted names; a tuple on the left gives one Assignment with all of its names."""

    targets: tuple[str, ...]
    value: Expression
    block: int
    node_id: int
    operator: str = ""
    """'*' for `*=`; '' for a plain assignment."""
    unpacked: bool = False
    """Whether the targets share the value's items, as in `a, b = value`."""
    into: Expression | None = None
    """The target as written where it is no plain name: `losses["a"]`, `(a, (b, c))`, `items[0].grad`."""


class Return(NamedTuple):
    value: Expression
    block: int
    node_id: int
    is_yield: bool = False


class Discard(NamedTuple):
    """A call that is a statement of its own, so that its result is thrown away."""

    node_id: int
    """The number of the call's node."""
    block: int


class Jump(NamedTuple):
    """'break', 'continue' or 'raise'."""

    kind: str
    block: int


class Definition(NamedTuple):
    """A function or class is defined here."""

    function: int
    block: int


Event: TypeAlias = CallEvent | Assignment | Discard | Return | Jump | Definition


class Parameter(NamedTuple):
    name: str
    default: Expression | None
    annotation: Expression | None
    star: str = ""


class Import(NamedTuple):
    """`name` in this scope stands for `qualified`; '*' imports have name '*' and the module's name."""

    name: str
    qualified: str
    block: int
    node_id: int = -1
    """The import statement; -1 for a name that a star import brings."""


@dataclass(frozen=True)
class Function:
    """The module's body (index 0), a function, a lambda or a class body, with its events in order."""

    index: int
    kind: Choices["module", "function", "lambda", "class"]
    name: str
    qualified_name: str
    """'Trainer.step.closure'; '' for the module."""
    parent: int
    """The enclosing scope; -1 for the module."""
    node_id: int
    parameters: tuple[Parameter, ...] = ()
    decorators: tuple[Expression, ...] = ()
    bases: tuple[Expression, ...] = ()
    """The bases of a class."""
    blocks: tuple[Block, ...] = ()
    events: tuple[Event, ...] = ()
    imports: tuple[Import, ...] = ()
    outer_names: frozenset[str] = frozenset()
    """Names declared `global` or `nonlocal`."""

    def __hash__(self) -> int:
        # The default hash reads every event, and places, which contain functions, are keys of many tables.
        return hash((self.index, self.node_id, self.qualified_name))

    @property
    def calls(self) -> Iterator[CallEvent]:
        return (event for event in self.events if isinstance(event, CallEvent))

    @property
    def assignments(self) -> Iterator[Assignment]:
        return (event for event in self.events if isinstance(event, Assignment))

    @cached_property
    def known(self) -> dict[object, Any]:
        """Remembered answers about this function, by question."""
        return {}

    def enclosing(self, block: int) -> tuple[int, ...]:
        """The block and those around it, innermost first."""
        chain: tuple[int, ...] | None = self.known.get(block)
        if chain is None:
            outer = self.blocks[block].parent if block >= 0 else -1
            chain = self.known[block] = (block, *self.enclosing(outer)) if block >= 0 else ()
        return chain

    def within(self, block: int) -> list[Event]:
        """The events of a block and of those within it, in order."""
        by_block: dict[int, list[Event]] | None = self.known.get("within")
        if by_block is None:
            by_block = self.known["within"] = {}
            for event in self.events:
                for outer in self.enclosing(event.block):
                    by_block.setdefault(outer, []).append(event)
        return by_block.get(block, [])

    def assigned_in(self, block: int) -> set[str]:
        """Names that are assigned in a block or in those within it."""
        question = ("assigned", block)
        if question not in self.known:
            self.known[question] = {
                target
                for event in self.within(block)
                if isinstance(event, Assignment)
                for target in event.targets
            }
        names: set[str] = self.known[question]
        return names


@dataclass(frozen=True)
class Tables:
    """All that is known of one file; picklable, and made from the text alone."""

    functions: tuple[Function, ...]
    identifiers: frozenset[str]
    """Every name, attribute, parameter and keyword, and strings that look like one."""
    node_ids: int = field(default=0)
    """The number of node ids."""

    @property
    def module(self) -> Function:
        return self.functions[0]

    @property
    def calls(self) -> Iterator[tuple[Function, CallEvent]]:
        """Every call of the file, with the function that makes it."""
        return ((function, event) for function in self.functions for event in function.calls)

    @property
    def assignments(self) -> Iterator[tuple[Function, Assignment]]:
        """Every assignment of the file, with its function."""
        return ((function, event) for function in self.functions for event in function.assignments)

    @cached_property
    def children(self) -> dict[int, dict[str, tuple[int, ...]]]:
        """Scope index -> name -> functions and classes defined directly in it, in order."""
        found: dict[int, dict[str, tuple[int, ...]]] = {}
        for function in self.functions[1:]:
            if function.kind != "lambda":
                names = found.setdefault(function.parent, {})
                names[function.name] = (*names.get(function.name, ()), function.index)
        return found


def dotted(expression: Expression) -> str:
    """The name as written, or '' for anything that is not a Name."""
    return expression.dotted if isinstance(expression, Name) else ""


def method_of(call: Call) -> tuple[Expression | None, str]:
    """(receiver, method) of `receiver.method(...)`; (None, name) of `name(...)`; (None, '') otherwise."""
    function = call.function
    if isinstance(function, Attribute):
        return function.value, function.name
    if isinstance(function, Name):
        head, dot, last = function.dotted.rpartition(".")
        return (Name(head), last) if dot else (None, last)
    return None, ""


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Direct subexpressions."""
    match expression:
        case Attribute(value, _):
            return (value,)
        case Call(function, arguments, _):
            return (function, *(argument.value for argument in arguments))
        case Choice(condition, first, second):
            return (condition, first, second)
        case Operation(_, operands):
            return operands
        case Subscript(value, key):
            return (value, key)
        case Collection(_, items, keys):
            return (*items, *(key for key in keys if key is not None))
        case Other(_, parts):
            return parts
        case _:
            return ()


def parts_within(expression: Expression) -> Iterator[Expression]:
    """An expression and all its parts, outermost first."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(parts_of(part))


def render(expression: Expression) -> str:
    """Source-like text in one spelling, to compare conditions and to quote in messages."""
    match expression:
        case Literal(value):
            return repr(value) if value is not ... else "..."
        case Name(name):
            return name
        case Attribute(value, name):
            return f"{render(value)}.{name}"
        case Call(function, arguments, _):
            shown = (
                argument.star + (f"{argument.keyword}=" if argument.keyword else "") + render(argument.value)
                for argument in arguments
            )
            return f"{render(function)}({', '.join(shown)})"
        case Choice(condition, first, second):
            return f"{render(first)} if {render(condition)} else {render(second)}"
        case Operation("neg", (operand,)):
            return f"-{render(operand)}"
        case Operation("not", (operand,)):
            return f"not {render(operand)}"
        case Operation(operator, operands):
            return "(" + f" {operator} ".join(render(operand) for operand in operands) + ")"
        case Subscript(value, key):
            return f"{render(value)}[{render(key)}]"
        case Collection(kind, items, _):
            return f"{kind}({', '.join(render(item) for item in items)})"
        case Closure(_):
            return "lambda"
        case Other("slice", parts):
            return f"<slice {', '.join(render(part) for part in parts if part != Literal(None))}>"
        case Other(kind, parts):
            return f"<{kind} {', '.join(render(part) for part in parts)}>"
