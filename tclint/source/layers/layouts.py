"""What rules on memory formats share: conversions as programs write them, sizes and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import has_star, keyword, positional, unpacks_positions
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Other,
    dotted,
    method_of,
)

LAST = "torch.channels_last"
LAST_3D = "torch.channels_last_3d"
RANK = {LAST: 4, LAST_3D: 5}
_KEEP_SIZES = ("cuda", "to", "half", "float", "contiguous", "clone", "requires_grad_")
_SIZED = ("rand", "randn", "zeros", "ones", "empty")
"""Functions of torch that take their result's sizes as arguments."""


class Conversion(NamedTuple):
    """`x.to(memory_format=...)` or `x.contiguous(memory_format=...)`."""

    function: Function
    event: CallEvent
    receiver: Expression
    method: str
    layout: str | None
    """LAST or LAST_3D; None when decided at run time."""


def conversions(context: SourceContext) -> Iterator[Conversion]:
    for function, event, _ in context.program.methods("to", "contiguous"):
        given = keyword(event.call, "memory_format")
        receiver, method = method_of(event.call)
        if given is None or receiver is None:
            continue
        possible = context.resolver.evaluate(function, given)
        layouts = {getattr(value, "qualified", None) for value in possible.values}
        if layouts & {"torch.contiguous_format", "torch.preserve_format"} and len(layouts) == 1:
            continue
        layout = layouts.pop() if possible.complete and len(layouts) == 1 else None
        yield Conversion(function, event, receiver, method, layout if layout in RANK else None)


def mentions(context: SourceContext) -> int:
    """How often the file's code says channels_last."""
    code = (line.split("#", 1)[0] for line in context.lines())
    return sum(line.count("channels_last") for line in code)


def base_of(context: SourceContext, function: Function, expression: Expression) -> Expression:
    """`Net()` of `Net().cuda().to(...)`, `x` of `x.cuda()`."""
    while isinstance(expression, Call):
        receiver, _ = method_of(expression)
        if receiver is None or context.resolver.called(function, expression):
            return expression
        expression = receiver
    return expression


def sizes_of(
    context: SourceContext, function: Function, expression: Expression, depth: int = 4
) -> tuple[int | None, ...] | None:
    """The sizes of a tensor made by a function of torch; None where its rank is unknown."""
    if depth <= 0:
        return None
    if isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        made = [
            (scope, item)
            for scope, item in found
            if dotted(base_of(context, scope, item.value)) != expression.dotted
        ]
        if not complete or len(made) != 1 or made[0][1].operator or made[0][1].unpacked:
            return None
        return sizes_of(context, made[0][0], made[0][1].value, depth - 1)
    if not isinstance(expression, Call):
        return None
    receiver, method = method_of(expression)
    if receiver is not None and not context.resolver.called(function, expression):
        return sizes_of(context, function, receiver, depth - 1) if method in _KEEP_SIZES else None
    if not any(
        name in {f"torch.{maker}" for maker in _SIZED}
        for name in context.resolver.called(function, expression)
    ):
        return None
    given = tuple(argument.value for argument in positional(expression))
    if unpacks_positions(expression) or not given:
        return None
    if len(given) == 1:
        if not isinstance(given[0], Collection) or given[0].kind not in ("tuple", "list"):
            return None
        given = given[0].items
        if any(getattr(item, "kind", "") == "star" for item in given):
            return None
    sizes = []
    for item in given:
        possible = context.resolver.evaluate(function, item)
        value = possible.only
        sizes.append(value if isinstance(value, int) else None)
    return tuple(sizes)


def batch_copy(context: SourceContext, function: Function, call: Call) -> Call | None:
    """The one copy to the GPU that makes the only argument of a model's call: `model(images.cuda())`, or
    `images = images.to(device)` before it."""
    if len(call.arguments) != 1 or call.arguments[0].keyword or call.arguments[0].star:
        return None
    value = call.arguments[0].value
    if isinstance(value, Name):
        made = [
            part
            for item in context.resolver.assignments(function, value.dotted)
            if (part := _part_for(item, value.dotted)) is not None
        ]
        if len(made) != 1:
            return None
        value = made[0]
    if not isinstance(value, Call) or keyword(value, "memory_format") is not None or has_star(value):
        return None
    receiver, method = method_of(value)
    return value if method in ("to", "cuda") and dotted(receiver or Literal(None)) else None


def _part_for(item: Assignment, name: str) -> Expression | None:
    """What an assignment gives a name; None for the item of a loop or of a batch that is taken apart."""
    if isinstance(item.value, Other) and item.value.kind == "iterate":
        return None
    if item.unpacked:
        value = item.value
        if isinstance(value, Collection) and len(value.items) == len(item.targets):
            return value.items[item.targets.index(name)]
        return None
    return item.value
