"""16-bit casts of models that are trained, and names that say who keeps float32 copies of their weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.source.tables import CallEvent, dotted, method_of

if TYPE_CHECKING:
    from tclint.source.casts import ModelCast
    from tclint.source.context import SourceContext

MASTER_WEIGHTS = re.compile(r"fp16_?optim|master|megatron|bitsandbytes|halfoptim")
"""Identifiers, in lower case, of optimizers that update float32 masters of 16-bit weights."""


def trained_casts(context: SourceContext) -> Iterator[tuple[ModelCast, int]]:
    """16-bit casts of models that an optimizer gets and that stay so -> (cast, the optimizer's site)."""
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
        undone = any(
            later.name == cast.name
            and later.site > cast.site
            and later.dtype in ("float32", "float64")
            and later.function == cast.function
            for later in casts
        )
        in_loop = any(function.blocks[block].kind == "loop" for block in function.enclosing(cast.block))
        after = cast.function == scope and cast.site > optimizer and in_loop
        if not undone and not after:
            yield cast, optimizer


def _of_callers(context: SourceContext, cast: ModelCast) -> Iterator[tuple[int, int]]:
    """The optimizers that got the parameters of a model which callers pass to the function that casts it
    and then trains it."""
    function = context.tables.functions[cast.function]
    if not any(
        isinstance(event, CallEvent)
        and method_of(event.call)[1] == "backward"
        and event.call.site > cast.site
        for event in function.events
    ):
        return
    for caller, value in context.scaling.passed(function, cast.name):
        for scope, site in context.casts.trained.get(dotted(value), ()):
            if scope == caller.index:
                yield scope, site
