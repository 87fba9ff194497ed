"""The qualified names of a model's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.modules import named_modules

_is_uninitialised: Callable[[Any], bool] = getattr(nn.parameter, "is_lazy", lambda _tensor: False)


def is_lazy(tensor: Any) -> bool:
    """Whether the tensor gets its shape only from the first forward."""
    return _is_uninitialised(tensor)


Named = tuple[str, nn.Module | None, torch.Tensor]
"""A parameter's or buffer's qualified name, its module where that is known, and the tensor."""


def named_tensors(model: nn.Module) -> tuple[Iterable[Named], Iterable[Named]]:
    """The model's parameters, and its buffers, by each of their names, in torch's order."""
    kind = type(model)
    parameters = _in_slots(model, "_parameters")
    buffers = _in_slots(model, "_buffers")
    # Wrappers that shard a model answer with the names that its user gave.
    if kind.named_parameters is not nn.Module.named_parameters:
        parameters = _with_owners(model, model.named_parameters(remove_duplicate=False))
    if kind.named_buffers is not nn.Module.named_buffers:
        buffers = _with_owners(model, model.named_buffers(remove_duplicate=False))
    return parameters, buffers


def _in_slots(model: nn.Module, slots: str) -> Iterator[Named]:
    for prefix, module in named_modules(model):
        for name, tensor in getattr(module, slots).items():
            if tensor is not None:
                yield f"{prefix}.{name}" if prefix else name, module, tensor


def _with_owners(model: nn.Module, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[Named]:
    owners = dict(named_modules(model))
    for name, tensor in named:
        yield name, owners.get(name.rpartition(".")[0]), tensor
