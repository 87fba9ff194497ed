"""What a script says, one expression at a time: calls, options and their defaults, conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tclint.source.context import SourceContext
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    dotted,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a script says."""

    setting: str
    """A field of Settings."""
    value: Any
    path: str
    line: int
    words: str
    """What is written there: 'autocast in bfloat16'."""


def stated_at(context: SourceContext, setting: str, value: object, node_id: int, words: str) -> Evidence:
    return Evidence(setting, value, context.path, context.location(node_id).line, words)


def consensus(found: list[Evidence]) -> Evidence | None:
    """The first of statements that agree; None where they do not, or there are none."""
    return found[0] if len({stated.value for stated in found}) == 1 else None


def calls(context: SourceContext) -> Iterator[tuple[Function, CallEvent]]:
    for function in context.tables.functions:
        for event in function.events:
            if isinstance(event, CallEvent):
                yield function, event


def runs_always(function: Function, block: int, context: SourceContext) -> bool:
    """No branch decides at run time whether the block runs, an option at its default counted as decided."""
    for index in function.enclosing(block):
        enclosing = function.blocks[index]
        if enclosing.kind in ("except", "case", "try_else", "loop_else"):
            return False
        if enclosing.kind in ("if", "else") and enclosing.condition is not None:
            if dotted(enclosing.condition) == "__name__" or "__name__" in repr(enclosing.condition):
                continue
            tested = _decided(context, function, enclosing.condition)
            if tested is None or tested != (enclosing.kind == "if"):
                return False
    return True


def options_above(context: SourceContext, function: Function, block: int) -> str:
    """', by the default of args.name' for a block that runs because of an option's default; else ''."""
    found = []
    for index in function.enclosing(block):
        condition = function.blocks[index].condition
        if isinstance(condition, Operation) and condition.operator == "not":
            condition = condition.operands[0]
        if condition is None or not _is_option(condition):
            continue
        if not context.resolver.evaluate(function, condition).certain:
            found.append(dotted(condition))
    return f", by the default of {' and '.join(found)}" if found else ""


def _decided(context: SourceContext, function: Function, condition: Expression) -> bool | None:
    if isinstance(condition, Operation) and condition.operator == "not":
        inner = _decided(context, function, condition.operands[0])
        return None if inner is None else not inner
    value = context.resolver.evaluate(function, condition)
    if value.certain or (_is_option(condition) and len(value.values) == 1):
        return bool(value.values[0])
    return None


def _is_option(expression: Expression | None) -> bool:
    """`args.name`, `config.name`: what the resolver knows of one is its default."""
    return isinstance(expression, Name) and "." in expression.dotted


def argument_of(call: Call, keyword: str, position: int | None = None) -> Expression | None:
    for index, argument in enumerate(call.arguments):
        if argument.keyword == keyword or (position == index and not argument.keyword and not argument.star):
            return argument.value
    return None


def certain(context: SourceContext, function: Function, expression: Expression | None) -> object:
    if expression is None:
        return None
    value = context.resolver.evaluate(function, expression)
    return value.only


def with_default(
    context: SourceContext, function: Function, expression: Expression | None
) -> tuple[object, str]:
    """The value of an expression or the default of an option, and words for the latter; else None."""
    value = certain(context, function, expression)
    if value is None and expression is not None and _is_option(expression):
        possible = context.resolver.evaluate(function, expression).values
        if len(possible) == 1:
            return possible[0], f", the default of {dotted(expression)}"
    return value, ""


def holds_on_gpu(context: SourceContext, function: Function, expression: Expression, depth: int = 4) -> bool:
    """`device == "cuda"`, `torch.cuda.is_available()`, names of such, and what is true anyway."""
    if depth and isinstance(expression, Operation):
        if expression.operator == "and":
            parts = expression.operands
            return all(holds_on_gpu(context, function, part, depth - 1) for part in parts)
        return expression.operator == "==" and Literal("cuda") in expression.operands
    if isinstance(expression, Call):
        return "torch.cuda.is_available" in context.resolver.called(function, expression)
    if depth and isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        if found and complete:
            return all(holds_on_gpu(context, scope, item.value, depth - 1) for scope, item in found)
    return certain(context, function, expression) is True


def assignments(context: SourceContext) -> Iterator[tuple[Function, Assignment]]:
    for function in context.tables.functions:
        for event in function.events:
            if isinstance(event, Assignment):
                yield function, event
