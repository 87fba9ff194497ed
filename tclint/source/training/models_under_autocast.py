"""Models that training code calls under autocast: in its regions, in forward methods, with Accelerate."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.facts.autocasts import Autocast, Region
from tclint.source.layers.configurations import switched_off
from tclint.source.layers.convolutional import Models
from tclint.source.layers.library_models import Built
from tclint.source.names.queries import conditions_of, keyword
from tclint.source.syntax.tables import Call, CallEvent, Function, dotted
from tclint.source.training.across_files import functions_that_train

NOT_TRAINED = re.compile(r"loss|crit|lpips|vgg|percep|teacher|ema\b|_ema|inception|metric")
"""In names, in lower case, of networks that run beside the one that is trained."""
_EVALUATES = re.compile(r"eval|valid|test|infer|predict|sample|generate")
_CALLED_INSIDE = 2
"""Functions of the file followed from an autocast region to the call of the model."""
_ACCELERATED = {"fp16": "float16", "bf16": "bfloat16"}
"""Accelerate's names of precisions."""


def models_called(context: SourceContext) -> Iterator[tuple[Region, Function, Call, str]]:
    """Calls that training code makes under autocast, with what they call, in order."""
    training = functions_that_train(context)
    for function in context.tables.functions:
        for region in context.amp.autocasts.regions(function):
            autocast = region.autocast
            if autocast.enabled is False or not region.on_cuda or not context.program.on_cuda:
                continue
            if autocast.dtype not in ("float16", "bfloat16", None):
                continue
            asked = autocast.conditions + conditions_of(function, region.block)
            if switched_off(context, function, asked):
                continue
            if function.name == "forward":
                yield from _instances_called(context, region, training)
            if not context.amp.gradients_on(function, region.block) or not _trains(
                context, function, training
            ):
                continue
            for inside, call, name in _called(context, function, region.block, _CALLED_INSIDE):
                yield region, inside, call, name

    yield from _accelerated(context, training)


def _instances_called(
    context: SourceContext, region: Region, training: set[int]
) -> Iterator[tuple[Region, Function, Call, str]]:
    """Calls of models whose class enters autocast in its own forward."""
    forward = context.tables.functions[region.function]
    owner = context.tables.functions[forward.parent] if forward.parent >= 0 else None
    if owner is None or owner.kind != "class":
        return
    models = Models(context)
    for function, call, name in _calls_in_training(context, training):
        for made in models.made(function, name):
            if isinstance(made, Built) and made.name == owner.name and made.context is context:
                yield region, function, call, name


def _accelerated(context: SourceContext, training: set[int]) -> Iterator[tuple[Region, Function, Call, str]]:
    """Calls of models in programs whose Accelerator runs them under autocast."""
    for made in context.program.calls("accelerate.Accelerator"):
        given = keyword(made.call, "mixed_precision")
        if given is None:
            continue
        possible = context.resolver.evaluate(made.function, given)
        dtype = _ACCELERATED.get(str(possible.values[0])) if len(possible.values) == 1 else None
        if dtype is None:
            continue
        always = True if possible.complete else None
        autocast = Autocast("accelerate.Accelerator", ("cuda",), dtype, True, always, (), made.call.node_id)
        region = Region(made.function.index, made.block, autocast, made.call.node_id)
        for function, call, name in _calls_in_training(context, training):
            yield region, function, call, name


def _calls_in_training(context: SourceContext, training: set[int]) -> Iterator[tuple[Function, Call, str]]:
    for index in sorted(training):
        function = context.tables.functions[index]
        for found, call, name in _called(context, function, 0, 0):
            if context.amp.gradients_on(found, _block_of(found, call)):
                yield found, call, name


def _block_of(function: Function, call: Call) -> int:
    return next(
        (event.block for event in function.calls if event.call.node_id == call.node_id),
        0,
    )


def _trains(context: SourceContext, function: Function, training: set[int], depth: int = 3) -> bool:
    """The function goes backward, or is called from one that does."""
    if function.index in training:
        return True
    if function.kind == "lambda" or depth <= 0 or _EVALUATES.search(function.name.lower()):
        return False
    return any(
        _trains(context, caller, training, depth - 1)
        for caller, _ in context.resolver.callers.get(function.index, ())
    )


def _modes_set(context: SourceContext) -> set[str]:
    return {
        dotted(event.call.function) for _, event, _ in context.program.methods("eval", "train", "parameters")
    }


def _only_evaluates(context: SourceContext, name: str) -> bool:
    """The file calls `name.eval()` and never `name.train()`: a network that is used, not trained."""
    methods = context.once(_modes_set)
    return f"{name}.eval" in methods and not {f"{name}.train", f"{name}.parameters"} & methods


def _called(
    context: SourceContext, function: Function, block: int, depth: int
) -> Iterator[tuple[Function, Call, str]]:
    for event in function.within(block):
        if not isinstance(event, CallEvent):
            continue
        name = dotted(event.call.function).removesuffix(".forward").removesuffix(".module")
        if not name or context.resolver.qualified(function, name) or NOT_TRAINED.search(name.lower()):
            continue
        if _only_evaluates(context, name):
            continue
        local = context.resolver.local_functions(function, event.call.function)
        if not local:
            yield function, event.call, name
        elif depth > 0:
            for helper in local:
                if helper.kind == "function" and helper.index != function.index:
                    yield from _called(context, helper, 0, depth - 1)
