"""Small questions about calls, expressions, words and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tclint.source.syntax.tables import (
    Argument,
    Attribute,
    Block,
    Call,
    Choice,
    Closure,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Operation,
    Return,
    Subscript,
    method_of,
    parts_of,
    render,
)


class Condition(NamedTuple):
    """A test that holds (or does not) wherever a block runs, in one spelling."""

    text: str
    holds: bool


def conditions_of(function: Function, block: int) -> tuple[Condition, ...]:
    """Tests that hold wherever a block runs."""
    question = ("conditions", block)
    known: tuple[Condition, ...] | None = function.known.get(question)
    if known is None:
        around = function.blocks[block].parent
        outer = conditions_of(function, around) if around >= 0 else ()
        known = function.known[question] = (*_block_conditions(function.blocks[block]), *outer)
    return known


def _exits(function: Function, *kinds: str) -> frozenset[int]:
    """Blocks in which a function is left, or a loop's round is by these jumps."""
    known: frozenset[int] | None = function.known.get(kinds)
    if known is None:
        known = function.known[kinds] = frozenset(
            event.block
            for event in function.events
            if (isinstance(event, Return) and not event.is_yield)
            or (isinstance(event, Jump) and event.kind in kinds)
        )
    return known


def left_between(function: Function, first: int, second: int) -> bool:
    """The run leaves the function or the loop's round between a block and a later one."""
    exits = _exits(function, "continue", "raise")
    return bool(exits) and not exits.isdisjoint(
        set(function.enclosing(first)).difference(function.enclosing(second))
    )


def guards_before(function: Function, block: int, node_id: int) -> tuple[Condition, ...]:
    """Tests that failed where a place is reached: `if test: continue` (or return) stands before it."""
    around = set(function.enclosing(block))
    found: list[Condition] = []
    for index in sorted(_exits(function, "continue") - around):
        left = function.blocks[index]
        if (
            left.kind == "if"
            and left.parent in around
            and left.node_id < node_id
            and left.condition is not None
        ):
            found.extend(simple_conditions(left.condition, False))
    return tuple(found)


def mutually_exclusive(function: Function, first: int, second: int) -> bool:
    """Whether one run of the code never passes through both blocks."""
    one, other = _branches(function, first), _branches(function, second)
    for statement, index in one.items():
        twin = other.get(statement, index)
        if twin != index:
            kinds = {function.blocks[index].kind, function.blocks[twin].kind}
            if kinds in ({"if", "else"}, {"case"}):
                return True
    return exclusive(conditions_of(function, first), conditions_of(function, second))


def _branches(function: Function, block: int) -> dict[int, int]:
    """Statement -> branch of it, of those that a block and the blocks around it are."""
    question = ("branches", block)
    known: dict[int, int] | None = function.known.get(question)
    if known is None:
        known = function.known[question] = {
            function.blocks[index].statement: index
            for index in function.enclosing(block)
            if function.blocks[index].kind in ("if", "else", "case")
        }
    return known


def exclusive(first: tuple[Condition, ...], second: tuple[Condition, ...]) -> bool:
    """Whether one side demands what the other forbids."""
    return any(Condition(condition.text, not condition.holds) in second for condition in first)


def _block_conditions(block: Block) -> Iterator[Condition]:
    if block.condition is None:
        return
    if block.kind in ("if", "case", "loop"):
        yield from simple_conditions(block.condition, True)
    elif block.kind == "else":
        yield from simple_conditions(block.condition, False)


def simple_conditions(expression: Expression, holds: bool) -> Iterator[Condition]:
    """Split a test into tests that must each hold (or not), without `not` and `!=`."""
    match expression:
        case Operation("not", (operand,)):
            yield from simple_conditions(operand, not holds)
        case Operation("and", operands) if holds:
            for operand in operands:
                yield from simple_conditions(operand, True)
        case Operation("or", operands) if not holds:
            for operand in operands:
                yield from simple_conditions(operand, False)
        case Operation("!=" | "is not" | "not in" as symbol, operands):
            positive = {"!=": "==", "is not": "is", "not in": "in"}[symbol]
            yield from simple_conditions(Operation(positive, operands), not holds)
        case Operation("==" | "is", (operand, Literal(bool() as value))):
            yield from simple_conditions(operand, holds is value)
        case Call(Name("bool"), (argument,), _):
            yield from simple_conditions(argument.value, holds)
        case _:
            yield Condition(render(expression), holds)


ON_GPU = re.compile(rb"cuda|accelerat|[Ff]abric|deepspeed|lightning|\bdevice\b|get_device")
"""A file without any of these says nothing of a GPU: neither of CUDA nor of what chooses the device."""


class Called(NamedTuple):
    """A call of something with a known qualified name."""

    qualified: str
    call: Call
    function: Function
    block: int
    position: int


def words(text: str) -> frozenset[str]:
    """A set of words, written in one string."""
    return frozenset(text.split())


def keyword(call: Call, name: str, position: int = -1) -> Expression | None:
    """A keyword argument, or the positional one in its place."""
    for argument in call.arguments:
        if argument.keyword == name:
            return argument.value
    if position >= 0:
        positional = [argument for argument in call.arguments if not argument.keyword]
        if len(positional) > position and not any(argument.star for argument in positional[: position + 1]):
            return positional[position].value
    return None


def bound(call: Call, parameters: Sequence[str]) -> dict[str, Expression]:
    """What a call passes by parameter; those are named in the order in which arguments fill them."""
    found: dict[str, Expression] = {}
    for position, argument in enumerate(call.arguments):
        name = argument.keyword or (parameters[position] if position < len(parameters) else "")
        if name and not argument.star:
            found.setdefault(name, argument.value)
    return found


def has_star(call: Call) -> bool:
    """`*args` or `**kwargs` may bring any argument."""
    return any(argument.star for argument in call.arguments)


def positional(call: Call) -> tuple[Argument, ...]:
    return tuple(argument for argument in call.arguments if not argument.keyword and not argument.star)


def root_name(expression: Expression) -> str:
    """`batch` of `batch["image"][0]` or `batch.image`; '' without a name at the root."""
    while isinstance(expression, Subscript | Attribute):
        expression = expression.value
    return expression.dotted.split(".", 1)[0] if isinstance(expression, Name) else ""


def contains(expression: Expression, test: Callable[[Expression], bool]) -> bool:
    """Whether some part of an expression passes a test."""
    return test(expression) or any(contains(part, test) for part in parts_of(expression))


def unpacks_positions(call: Call) -> bool:
    """`*args` may fill any position; `**kwargs` names nothing that the call gives itself."""
    return any(argument.star == "*" for argument in call.arguments)


def names_in(expression: Expression) -> set[str]:
    """Dotted names that an expression reads."""
    found: set[str] = set()
    pending: list[Expression] = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.add(part.dotted)
        elif not isinstance(part, Closure):
            pending.extend(parts_of(part))
    return found


def is_test_path(path: str) -> bool:
    """Whether a file is a test by its name or the folder it lies in."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )


def any_word(text: str, parts: Iterable[str]) -> bool:
    lowered = text.lower()
    return any(part in lowered for part in parts)


WRAPPERS = words(
    "DataParallel DistributedDataParallel DDP DP FullyShardedDataParallel FSDP convert_sync_batchnorm "
    "convert_syncbn_model compile prepare"
)
"""Last parts of the names of what is called like the module that it is given."""
PLACING = words(
    "cuda to cpu train eval half bfloat16 float double requires_grad_ apply module share_memory to_empty"
)
"""Methods of modules that return the module."""


def inner_model(call: Call) -> Expression | None:
    """`Net()` of `DDP(Net())` and of `Net().cuda()`; None of other calls."""
    receiver, method = method_of(call)
    if method in WRAPPERS:
        return keyword(call, "module", 0) or keyword(call, "model")
    return receiver if method in PLACING else None


def makers(value: Expression | None) -> Iterator[Call]:
    """The calls that may make a model, outermost first: `DDP(Net().cuda())`, `Net().cuda()`, `Net()`."""
    while isinstance(value, Call):
        yield value
        value = inner_model(value)


def unplaced(value: Expression) -> Expression:
    """`nn.BCELoss()` of `nn.BCELoss().cuda()`."""
    return list(makers(value))[-1] if isinstance(value, Call) else value


def leaves(expression: Expression) -> Iterator[Expression]:
    """What a value can be: both branches of a choice, the operands of `or` and `and`."""
    match expression:
        case Choice(_, first, second):
            yield from leaves(first)
            yield from leaves(second)
        case Operation("or" | "and", operands):
            for operand in operands:
                yield from leaves(operand)
        case _:
            yield expression
