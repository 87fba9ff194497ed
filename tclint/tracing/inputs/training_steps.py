"""The training step of a LightningModule: what it is called with, how it is traced for the forward.

Nothing of Lightning is imported: a module with `training_step` and `configure_optimizers` is one.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import function_of
from tclint.tracing.inputs.given import CallInputs, described
from tclint.tracing.session.trace import record
from tclint.tracing.values.sites import SiteFinder

_META = torch.device("meta")
_RUNS = 5
"""Guesses at the forward's inputs that are run to see what it returns."""


def trains_in_steps(model: nn.Module) -> bool:
    """Whether the model is one of Lightning's that is to be trained."""
    kind = type(model)
    return model.training and all(
        callable(getattr(kind, name, None)) for name in ("training_step", "configure_optimizers")
    )


@contextlib.contextmanager
def training_step_as_forward(model: Any) -> Iterator[None]:
    """For the length of the block, a call of the model runs its training step, which may call the forward."""
    attributes = model.__dict__
    before = {"forward": attributes["forward"]} if "forward" in attributes else {}

    def training_step(batch: Any) -> Any:
        del attributes["forward"]
        attributes.update(before)
        try:
            return model.training_step(batch, *([0] * _further_arguments(model)))
        finally:
            attributes["forward"] = training_step

    attributes["forward"] = training_step
    try:
        yield
    finally:
        del attributes["forward"]
        attributes.update(before)


def batch_inputs(model: nn.Module, inputs: CallInputs, sites: SiteFinder) -> CallInputs:
    """Batches for the training step, likeliest first.

    Args:
        inputs: of the forward where they were inferred; else the parts of the batch, or its first ones.
    """
    batches: list[Any] = []
    if inputs.source != "inferred":
        batches.append(_whole(model, inputs))
    for guess in (inputs, *inputs.alternatives)[:_RUNS]:
        with contextlib.suppress(Exception):
            returned = record(model, guess.args, guess.kwargs, sites).returned
            batches += _batches(model, [*guess.args, *guess.kwargs.values()], returned)
            break
    else:
        parts, keys = _form(model)
        # Without a forward that tells the targets: as words are those of a language model.
        given = [*inputs.args, *inputs.kwargs.values()] * max(len(keys), parts, 1)
        given = [torch.empty_like(one) if isinstance(one, torch.Tensor) else one for one in given]
        if inputs.source == "inferred" and given and (keys or parts > 1):
            batches.append(dict(zip(keys, given, strict=False)) if keys else given[:parts])
        batches.append(_whole(model, inputs))
    found = [
        dataclasses.replace(
            inputs,
            args=(batch,),
            kwargs={},
            assumptions=(
                *inputs.assumptions[:-1],
                Assumption(f"training_step was traced, on batch = {described(batch)}"),
            ),
            alternatives=(),
        )
        for batch in batches
    ]
    return dataclasses.replace(found[0], alternatives=tuple(found[1:]))


def _further_arguments(model: Any) -> int:
    """Behind the batch: its index, and that of a loader or an optimizer."""
    parameters = inspect.signature(model.training_step).parameters.values()
    return sum(one.default is one.empty and one.kind == one.POSITIONAL_OR_KEYWORD for one in parameters) - 1


def _whole(model: Any, inputs: CallInputs) -> Any:
    """The batch of given inputs: named as the step names it, as reports print its parts, or by its parts."""
    name = next(iter(inspect.signature(model.training_step).parameters), "")
    if not inputs.args and list(inputs.kwargs) == [name]:
        return inputs.kwargs[name]
    if inputs.kwargs:
        return dict(inputs.kwargs)
    return inputs.args[0] if len(inputs.args) == 1 else list(inputs.args)


def _batches(model: Any, given: list[Any], returned: Any) -> Iterator[Any]:
    """The forward's inputs with targets that fit its result, in the form that the step's source shows."""
    parts, keys = _form(model)
    missing = max(len(keys) or parts or 2, len(given)) - len(given)
    for target in _targets(given, returned):
        values = [*given, *([target] * missing)]
        if keys:
            yield dict(zip(keys, values, strict=False))
        elif parts or missing:
            yield values
    yield given[0] if len(given) == 1 else list(given)


def _form(model: Any) -> tuple[int, list[str]]:
    """How many parts the step takes its batch apart into, or by which keys; 0 and none: unknown."""
    function = function_of(type(model).training_step)
    if function is None or len(function.args.args) < 2:
        return 0, []
    name, parts, keys = function.args.args[1].arg, 0, dict[str, tuple[int, int]]()
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and _is_named(node.value, name)
            and isinstance(node.targets[0], ast.Tuple)
        ):
            parts = max(parts, len(node.targets[0].elts))
        if isinstance(node, ast.Subscript) and _is_named(node.value, name):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                place = node.lineno, node.col_offset
                keys[key] = min(keys.get(key, place), place)
            elif isinstance(key, int) and key >= 0:
                parts = max(parts, key + 1)
    return parts, sorted(keys, key=keys.__getitem__)


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _targets(given: list[Any], returned: Any) -> Iterator[torch.Tensor]:
    """What losses compare a result with: classes, words, or values of its shape."""
    result = returned[0] if isinstance(returned, (tuple, list)) and returned else returned
    if not isinstance(result, torch.Tensor):
        return
    shape, first = tuple(result.shape), given[0]
    are_tokens = isinstance(first, torch.Tensor) and first.dtype == torch.int64
    classes = [(shape[0], *shape[2:]), shape[:-1]] if len(shape) > 1 else []
    for size in reversed(classes) if are_tokens else classes:
        yield torch.empty(size, dtype=torch.int64, device=_META)
    yield torch.empty(shape, dtype=result.dtype, device=_META)
