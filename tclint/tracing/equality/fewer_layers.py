"""Models that are too large to run: built without memory, and run with the first layers of their stacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tclint.graph.weights.plan import WeightPlan
from tclint.tracing.equality.runs import CannotTell
from tclint.tracing.patches.modules import named_modules

KEPT = 2
"""Layers of a stack: the first may be another one, and one has to follow on a layer of its kind."""


def shorten(model: nn.Module, plan: WeightPlan) -> tuple[WeightPlan, str]:
    """Take away all but the first layers of each stack of equal ones.

    Args:
        model: on meta; gets memory for what is left of it.
        plan: of the padding.

    Returns:
        the plan of what is left, and which layers these are: 'the first 2 of 48 layers of h'.

    Raises:
        CannotTell: there is no such stack, or a tensor has no values that could be made up.
    """
    removed: list[str] = []
    told: list[str] = []
    for name, module in list(named_modules(model)):
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(module) <= KEPT:
            continue
        if any(name.startswith(prefix) for prefix in removed):
            continue
        kinds = [_kind(layer) for layer in module]
        if any(kind != kinds[1] for kind in kinds[KEPT:]):
            continue
        prefix = f"{name}." if name else ""
        removed += [f"{prefix}{number}." for number in range(KEPT, len(module))]
        told.append(f"the first {KEPT} of {len(module)} layers of {name or 'the model'}")
        del module[KEPT:]
    if not told:
        raise CannotTell("it is too large to run, and has no stack of equal layers to shorten")
    _give_memory(model)
    tensors = tuple(
        tensor
        for tensor in plan
        if not all(any(name.startswith(prefix) for prefix in removed) for name in tensor.names)
    )
    return replace(plan, tensors=tensors), " and ".join(told)


def _kind(layer: nn.Module) -> Any:
    tensors = (*layer.named_parameters(), *layer.named_buffers())
    return type(layer), [(name, tensor.shape) for name, tensor in tensors]


def _give_memory(model: nn.Module) -> None:
    made: dict[int, nn.Parameter] = {}
    for slots, name, tensor in _meta_tensors(model):
        if isinstance(tensor, nn.Parameter):
            if id(tensor) not in made:
                values = torch.empty(tensor.shape, dtype=tensor.dtype)
                made[id(tensor)] = nn.Parameter(values, requires_grad=tensor.requires_grad)
            slots[name] = made[id(tensor)]
        elif name in ("running_mean", "running_var"):
            slots[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
        else:
            raise CannotTell(f"it is too large to run, and the values of {name} come only with all of it")


def _meta_tensors(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    for _, module in named_modules(model):
        for slots in (module._parameters, module._buffers):
            for name, tensor in list(slots.items()):
                if tensor is not None and tensor.is_meta:
                    yield slots, name, tensor
