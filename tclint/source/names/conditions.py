"""Tests around code: what holds wherever a block runs, and which blocks exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.syntax.tables import (
    Block,
    Call,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Operation,
    Return,
    render,
)


class Condition(NamedTuple):
    """A test that holds (or does not) wherever a block runs, in one spelling."""

    text: str
    holds: bool


def conditions_of(function: Function, block: int) -> tuple[Condition, ...]:
    """Tests that hold wherever a block runs."""
    found: list[Condition] = []
    for index in function.enclosing(block):
        found.extend(_block_conditions(function.blocks[index]))
    return tuple(found)


def left_between(function: Function, first: int, second: int) -> bool:
    """The run leaves the function or the loop's round between a block and a later one."""
    left = set(function.enclosing(first)).difference(function.enclosing(second))
    return bool(left) and any(
        event.block in left
        for event in function.events
        if (isinstance(event, Return) and not event.is_yield)
        or (isinstance(event, Jump) and event.kind != "break")
    )


def guards_before(function: Function, block: int, node_id: int) -> tuple[Condition, ...]:
    """Tests that failed where a place is reached: `if test: continue` (or return) stands before it."""
    around = set(function.enclosing(block))
    exits = {
        event.block
        for event in function.events
        if (isinstance(event, Return) and not event.is_yield)
        or (isinstance(event, Jump) and event.kind == "continue")
    }
    found: list[Condition] = []
    for index in sorted(exits - around):
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
    one, other = function.enclosing(first), function.enclosing(second)
    statements = {function.blocks[index].statement: index for index in one}
    for index in other:
        block = function.blocks[index]
        twin = statements.get(block.statement)
        if twin is None or twin == index:
            continue
        kinds = {block.kind, function.blocks[twin].kind}
        if kinds in ({"if", "else"}, {"case"}):
            return True
    return exclusive(conditions_of(function, first), conditions_of(function, second))


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
