"""What a script says, one expression at a time: calls, options and their defaults, conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tclint.source.context import SourceContext
from tclint.source.syntax.tables import (
    Call,
    Choice,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Subscript,
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
        if condition is not None and (words := with_default(context, function, condition)[1]):
            found.append(words.removeprefix(DEFAULT))
    return f", by the default of {' and '.join(found)}" if found else ""


def _decided(context: SourceContext, function: Function, condition: Expression) -> bool | None:
    if isinstance(condition, Operation) and condition.operator == "not":
        inner = _decided(context, function, condition.operands[0])
        return None if inner is None else not inner
    possible = context.resolver.evaluate(function, condition)
    if possible.certain:
        return bool(possible.values[0])
    value, words = with_default(context, function, condition)
    return bool(value) if words else None


DEFAULT = ", the default of "
_OVERRIDES = ", which the script lets be overridden"


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
    context: SourceContext, function: Function, expression: Expression | None, depth: int = 4
) -> tuple[object, str]:
    """The value of an expression, or its default, and words for the latter; (None, "") for neither.

    Defaults are those of options (`args.name`), of parameters, where no call in the file passes something
    else, and of a module's constants that the script overrides through exec() or globals().
    """
    value = certain(context, function, expression)
    if value is not None or not isinstance(expression, Name) or not depth:
        return value, ""
    scope = context.resolver.owner(function, expression.dotted)
    passed = [] if scope is None else list(context.resolver.passed(scope, expression.dotted))
    if passed:
        given = [with_default(context, caller, argument, depth - 1) for caller, argument in passed]
        same = len({repr(value) for value, _ in given}) == 1
        return given[0] if same else (None, "")
    possible = context.resolver.evaluate(function, expression).values
    if len(possible) != 1:
        return None, ""
    is_global = scope is not None and scope.index == 0 and "." not in expression.dotted
    return possible[0], f"{DEFAULT}{expression.dotted}{_OVERRIDES if is_global else ''}"


def value_on_gpu(
    context: SourceContext, function: Function, expression: Expression | None, depth: int = 4
) -> tuple[object, str]:
    """As `with_default`, with every choice decided as on a GPU that has bfloat16."""
    value, words = with_default(context, function, expression)
    if value is not None or not depth:
        return value, words
    if isinstance(expression, Choice) and holds_on_gpu(context, function, expression.condition):
        return value_on_gpu(context, function, expression.first, depth - 1)
    if isinstance(expression, Subscript) and isinstance(expression.value, Collection):
        key, words = value_on_gpu(context, function, expression.key, depth - 1)
        for item, name in zip(expression.value.items, expression.value.keys, strict=False):
            if key is not None and name == Literal(key):
                return certain(context, function, item), words
    if isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        if len(found) == 1 and not found[0][1].operator and not found[0][1].unpacked:
            value, words = value_on_gpu(context, found[0][0], found[0][1].value, depth - 1)
            if value is not None and not words and not complete:
                words = f"{DEFAULT}{expression.dotted}{_OVERRIDES}"
            return value, words
    return None, ""


def given(
    context: SourceContext, function: Function, call: Call, keyword: str, position: int | None = None
) -> tuple[Function, Expression | None]:
    """An argument of a call, and where it is written: in the call, or in a dict that it unpacks."""
    value = argument_of(call, keyword, position)
    for argument in call.arguments:
        unpacked = _dict_of(context, function, argument.value) if argument.star == "**" else None
        if value is None and unpacked is not None and keyword in unpacked[1]:
            return unpacked[0], unpacked[1][keyword]
    return function, value


def unpacks_unknown(context: SourceContext, function: Function, call: Call) -> bool:
    """Whether a call has arguments that are not in the file."""
    return any(
        argument.star == "*"
        or (argument.star == "**" and _dict_of(context, function, argument.value) is None)
        for argument in call.arguments
    )


def _dict_of(
    context: SourceContext, function: Function, expression: Expression
) -> tuple[Function, dict[object, Expression]] | None:
    """The items of a dict display, of dict(...), or of a name of one, and where they are written."""
    if isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        if len(found) != 1 or not complete:
            return None
        function, expression = found[0][0], found[0][1].value
    if isinstance(expression, Call) and dotted(expression.function) == "dict":
        return function, {item.keyword: item.value for item in expression.arguments}
    if isinstance(expression, Collection) and expression.kind == "dict":
        keys = [key.value if isinstance(key, Literal) else None for key in expression.keys]
        return function, dict(zip(keys, expression.items, strict=True))
    return None


def holds_on_gpu(context: SourceContext, function: Function, expression: Expression, depth: int = 4) -> bool:
    """`device == "cuda"`, `torch.cuda.is_available()`, names of such, and what is true anyway."""
    if depth and isinstance(expression, Operation):
        if expression.operator == "and":
            parts = expression.operands
            return all(holds_on_gpu(context, function, part, depth - 1) for part in parts)
        return expression.operator == "==" and Literal("cuda") in expression.operands
    if isinstance(expression, Call):
        called = context.resolver.called(function, expression)
        return not {"torch.cuda.is_available", "torch.cuda.is_bf16_supported"}.isdisjoint(called)
    if depth and isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        if found and complete:
            return all(holds_on_gpu(context, scope, item.value, depth - 1) for scope, item in found)
    return certain(context, function, expression) is True
