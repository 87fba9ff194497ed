"""Builds a model without its memory, and puts the weights of a built model on meta for one run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.garbage import without_garbage_collection
from tclint.graph import Parameter
from tclint.tracing.constants import MAX_REAL_BUFFER_FLOATS
from tclint.tracing.devices import DeviceRewriter
from tclint.tracing.dtypes import dtype_name
from tclint.tracing.environment import without_gpu, without_initialisation
from tclint.tracing.meta_kernels import to_meta
from tclint.tracing.modules import (
    NamedModules,
    construct_site_of,
    named_modules,
    remembered_construction,
)
from tclint.tracing.origin import ensure_origin
from tclint.tracing.recorder import Recorder
from tclint.tracing.sites import SiteFinder

_Slot = tuple[dict[str, Any], str, Any]


def on_meta(build: Callable[[], Any], sites: SiteFinder) -> Any:
    """What `build()` returns, with large tensors on meta and weight initialisation skipped."""
    recorder = Recorder(sites)
    with (
        without_garbage_collection(),
        remembered_construction(sites),
        without_gpu(),
        without_initialisation(),
        recorder,
        DeviceRewriter(recorder.assumptions.add),
    ):
        return build()


@contextlib.contextmanager
def weights_on_meta(modules: NamedModules, *, inference: bool = False) -> Iterator[None]:
    """Swap a model's weights for meta tensors of the same strides, and put them back on exit.

    Tied tensors stay tied, requires_grad is kept. Integer and small float buffers keep their values, as
    copies, because a forward may write into them.

    Args:
        inference: the run is in inference mode, where a view of a buffer must not be tracked by autograd.
    """
    replaced: list[_Slot] = []
    swapped: dict[int, Any] = {}
    distinct = list({id(module): module for _, module in modules}.values())
    _swap([module._parameters for module in distinct], _meta_parameter, swapped, replaced)
    with torch.inference_mode(inference):
        _swap([module._buffers for module in distinct], _buffer_copy, swapped, replaced)
    try:
        yield
    finally:
        for slots, name, tensor in replaced:
            slots[name] = tensor


def _swap(
    owners: list[dict[str, Any]],
    stand_in: Callable[[Any], Any],
    swapped: dict[int, Any],
    replaced: list[_Slot],
) -> None:
    """Put something in the place of each tensor, the same wherever the tensor is, and note what was there."""
    for slots in owners:
        for name, tensor in list(slots.items()) if slots else ():
            if tensor is None or is_lazy(tensor):
                continue
            replaced.append((slots, name, tensor))
            made = swapped.get(id(tensor))
            if made is None:
                made = swapped[id(tensor)] = stand_in(tensor)
            slots[name] = made


def name_weights(model: nn.Module, modules: NamedModules) -> None:
    """Mark parameters and buffers with their first qualified name."""
    seen: set[int] = set()
    for name, tensor in itertools.chain(*_named_tensors(model, modules)):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            ensure_origin(tensor).name_parameter(name)


def list_parameters(model: nn.Module) -> tuple[Parameter, ...]:
    """Parameters, then buffers, by first name; further names of a tensor are its aliases."""
    modules = named_modules(model)
    owners = dict(modules)
    names: dict[int, list[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    are_buffers: dict[int, bool] = {}
    for named, is_buffer in zip(_named_tensors(model, modules), (False, True), strict=True):
        for name, tensor in named:
            if not is_lazy(tensor):
                names.setdefault(id(tensor), []).append(name)
                tensors[id(tensor)] = tensor
                are_buffers.setdefault(id(tensor), is_buffer)
    listed: list[Parameter] = []
    for key, (first, *others) in names.items():
        tensor, is_buffer = tensors[key], are_buffers[key]
        owner = owners.get(first.rpartition(".")[0])
        listed.append(
            Parameter(
                name=first,
                shape=tuple(tensor.shape),
                dtype=dtype_name(tensor.dtype),
                trainable=not is_buffer and tensor.requires_grad,
                is_buffer=is_buffer,
                aliases=tuple(others),
                construct_site=construct_site_of(owner).site if owner is not None else None,
            )
        )
    return tuple(listed)


_Named = Iterable[tuple[str, torch.Tensor]]


def _named_tensors(model: nn.Module, modules: NamedModules) -> tuple[_Named, _Named]:
    """The model's parameters and buffers by each of their names, in torch's order."""
    kind = type(model)
    parameters: _Named = (
        (f"{prefix}.{name}" if prefix else name, tensor)
        for prefix, module in modules
        for name, tensor in module._parameters.items()
        if tensor is not None
    )
    buffers: _Named = (
        (f"{prefix}.{name}" if prefix else name, tensor)
        for prefix, module in modules
        for name, tensor in module._buffers.items()
        if tensor is not None
    )
    # Wrappers that shard a model answer with the names that its user gave.
    if kind.named_parameters is not nn.Module.named_parameters:
        parameters = model.named_parameters(remove_duplicate=False)
    if kind.named_buffers is not nn.Module.named_buffers:
        buffers = model.named_buffers(remove_duplicate=False)
    return parameters, buffers


_is_uninitialised: Callable[[Any], bool] = getattr(nn.parameter, "is_lazy", lambda _tensor: False)


def is_lazy(tensor: Any) -> bool:
    """Whether the tensor gets its shape only from the first forward."""
    return _is_uninitialised(tensor)


def _meta_parameter(parameter: torch.Tensor) -> Any:
    if parameter.is_meta:
        stand_in = parameter.detach()
    elif parameter.layout == torch.strided:
        stand_in = to_meta(parameter)
    else:
        return parameter
    made = nn.Parameter(stand_in, requires_grad=parameter.requires_grad)
    # User code hangs attributes on parameters (`no_weight_decay`).
    made.__dict__.update(parameter.__dict__)
    return made


# Copies only when written to (torch >= 2.3): masks of many layers would double the memory.
_lazy_clone: Callable[[torch.Tensor], torch.Tensor] = getattr(torch, "_lazy_clone", torch.clone)


def _buffer_copy(buffer: torch.Tensor) -> torch.Tensor:
    if buffer.is_meta:
        copy = buffer.detach()
    elif buffer.layout != torch.strided:
        return buffer
    elif (
        (buffer.is_floating_point() or buffer.is_complex())
        and buffer.dim() > 0
        and buffer.numel() > MAX_REAL_BUFFER_FLOATS
    ):
        copy = to_meta(buffer)
    else:
        copy = _lazy_clone(buffer.detach())
    copy.__dict__.update(buffer.__dict__)
    return copy
