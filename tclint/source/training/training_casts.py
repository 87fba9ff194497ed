"""16-bit casts of models that are trained, and names that say who keeps float32 copies of their weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.facts.casts import ModelCast
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Name,
    dotted,
    method_of,
    render,
)

MASTER_WEIGHTS = re.compile(r"fp16_?optim|master|megatron|bitsandbytes|halfoptim")
"""Identifiers, in lower case, of optimizers that update float32 masters of 16-bit weights."""


def trained_casts(context: SourceContext) -> Iterator[tuple[ModelCast, int]]:
    """16-bit casts of models that an optimizer gets and that stay so -> (cast, the optimizer's node id)."""
    casts = (*context.casts.model_casts, *context.casts.loaded_in_half, *context.casts.returned)
    for cast in casts:
        if cast.dtype not in ("float16", "bfloat16"):
            continue
        optimizers = context.casts.trained.get(cast.name, ())
        if not cast.name.startswith("self."):
            optimizers = tuple(item for item in optimizers if item[0] == cast.function)
        optimizers = optimizers or tuple(_of_callers(context, cast))
        if not optimizers:
            continue
        scope, optimizer = optimizers[0]
        function = context.tables.functions[cast.function]
        if not context.amp.gradients_on(function, cast.block):
            continue
        if _wrapped_later(function, cast):
            continue
        undone = any(
            later.name == cast.name
            and later.node_id > cast.node_id
            and later.dtype in ("float32", "float64")
            and later.function == cast.function
            for later in casts
        )
        in_loop = any(function.blocks[block].kind == "loop" for block in function.enclosing(cast.block))
        after = cast.function == scope and cast.node_id > optimizer and in_loop
        if not undone and not after:
            yield cast, optimizer


def _of_callers(context: SourceContext, cast: ModelCast) -> Iterator[tuple[int, int]]:
    """The optimizers that got the parameters of a model which callers pass to the function that casts it
    and then trains it."""
    function = context.tables.functions[cast.function]
    if not any(
        method_of(event.call)[1] == "backward" and event.call.node_id > cast.node_id
        for event in function.calls
    ):
        return
    for caller, value in context.resolver.passed(function, cast.name):
        for scope, node_id in context.casts.trained.get(dotted(value), ()):
            if scope == caller.index:
                yield scope, node_id


def _wrapped_later(function: Function, cast: ModelCast) -> bool:
    """`model = get_peft_model(model, ...)` after the cast: what is trained are the adapters' parameters."""
    return any(
        isinstance(event, Assignment)
        and event.node_id > cast.node_id
        and cast.name in event.targets
        and isinstance(event.value, Call)
        and any(word in render(event.value.function).lower() for word in ("peft", "lora", "adapter"))
        for event in function.events
    )


def half_input(function: Function, given: Expression, call: CallEvent) -> Call | None:
    """The cast to 16 bits of what a call gets: `x.half()`, or `x` after `x = x.half()`."""
    if _casts_to_half(given):
        return given if isinstance(given, Call) else None
    if not isinstance(given, Name):
        return None
    around = function.enclosing(call.block)
    value: Expression | None = None
    for event in function.assignments:
        if event.node_id >= call.call.node_id:
            continue
        if given.dotted in event.targets:
            value = None
            if event.block in around and not event.operator:
                value = _assigned_to(given.dotted, event)
    return value if isinstance(value, Call) and _casts_to_half(value) else None


def _assigned_to(name: str, event: Assignment) -> Expression | None:
    if not event.unpacked:
        return event.value
    if isinstance(event.value, Collection) and len(event.value.items) == len(event.targets):
        return event.value.items[event.targets.index(name)]
    return None


def _casts_to_half(expression: Expression) -> bool:
    return (
        isinstance(expression, Call)
        and method_of(expression)[0] is not None
        and method_of(expression)[1] in ("half", "bfloat16")
        and not expression.arguments
    )
