"""A model's weights during one run: on meta, by name, and afterwards as they were."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.constants import MAX_REAL_BUFFER_FLOATS
from tclint.tracing.meta_kernels import to_meta
from tclint.tracing.modules import is_constructed_here, named_modules
from tclint.tracing.origin import Origin, clear_origin, named_weights, origin_of, set_origin
from tclint.tracing.run_weights import RunWeights, lazy_clone

_Slots = dict[str, Any]
_is_uninitialised: Callable[[Any], bool] = getattr(nn.parameter, "is_lazy", lambda _tensor: False)


def is_lazy(tensor: Any) -> bool:
    """Whether the tensor gets its shape only from the first forward."""
    return _is_uninitialised(tensor)


@contextlib.contextmanager
def weights_on_meta(model: nn.Module, *, inference: bool = False) -> Iterator[RunWeights]:
    """Name a model's weights for the length of the block, and let none of them hold large values.

    Weights that are not on meta are swapped for meta tensors of the same strides. Tied tensors stay tied,
    requires_grad is kept. Integer and small float buffers keep their values. A forward may write into
    buffers and put others in their place: on exit everything is as it was.

    In inference mode, a model that was built by `on_meta` is used as it is, and stays on meta: nobody needs
    the values of the few small weights that have some.

    Args:
        inference: the run is in inference mode, where a view of a buffer must not be tracked by autograd.
    """
    run = RunWeights()

    def in_place(buffer: torch.Tensor) -> torch.Tensor:
        if _is_large(buffer):
            return _buffer_copy(buffer)
        run.add(buffer)
        return buffer

    before: list[Any] = []  # flat, because there are thousands: slots, name, tensor, ...
    swapped: dict[int, tuple[Any, Any]] = {}
    noted: list[tuple[torch.Tensor, Origin]] = []
    try:
        modules = list({id(module): module for _, module in named_modules(model)}.values())
        if inference and all(is_constructed_here(module) for module in modules):
            for module in modules:
                _keep(module._parameters, _meta_parameter, swapped, before)
                _keep(module._buffers, in_place, swapped, before)
        else:
            for module in modules:
                _swap(module._parameters, _meta_parameter, swapped, before)
                with torch.inference_mode(inference):
                    _swap(module._buffers, _buffer_copy, swapped, before)
        modules.clear()
        swapped.clear()
        run.names = _names(model, noted)
        with named_weights(run.names):
            yield run
    finally:
        for at in range(0, len(before), 3):
            slots, name, tensor = before[at : at + 3]
            slots[name] = tensor
            clear_origin(tensor)
        for tensor, origin in noted:
            set_origin(tensor, origin)
        run.restore()


def _swap(
    slots: _Slots, stand_in: Callable[[Any], Any], swapped: dict[int, tuple[Any, Any]], before: list[Any]
) -> None:
    """Put something in the place of each tensor, the same wherever the tensor is, and note what was there."""
    for name, tensor in list(slots.items()) if slots else ():
        if tensor is not None and not is_lazy(tensor):
            before += (slots, name, tensor)
            slots[name] = _stand_in_once(tensor, stand_in, swapped)


def _keep(
    slots: _Slots, stand_in: Callable[[Any], Any], swapped: dict[int, tuple[Any, Any]], before: list[Any]
) -> None:
    """As `_swap`, for good: what is noted is what takes the place. Meta tensors stay."""
    for name, tensor in list(slots.items()) if slots else ():
        if tensor is not None and not is_lazy(tensor):
            kept = tensor if tensor.is_meta else _stand_in_once(tensor, stand_in, swapped)
            before += (slots, name, kept)
            if kept is not tensor:
                slots[name] = kept


def _stand_in_once(tensor: Any, stand_in: Callable[[Any], Any], swapped: dict[int, tuple[Any, Any]]) -> Any:
    if id(tensor) not in swapped:
        swapped[id(tensor)] = tensor, stand_in(tensor)  # alive, so that its id is not another's
    return swapped[id(tensor)][1]


def _names(model: nn.Module, noted: list[tuple[torch.Tensor, Origin]]) -> dict[int, Any]:
    """The first qualified name of each weight by its id.

    Weights of which more is known get their name there, on a copy; `noted` receives what was known.
    """
    names: dict[int, Any] = {}
    seen: set[int] = set()
    for name, _, tensor in itertools.chain(*named_tensors(model)):
        key = id(tensor)
        origin = origin_of(tensor)
        if origin is None:
            names.setdefault(key, name)
        elif key not in seen:
            seen.add(key)
            noted.append((tensor, origin))
            origin = copy.copy(origin)
            origin.name_parameter(name)
            set_origin(tensor, origin)
    return names


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
                # Interned: the trace's tensors, and the graph's list of parameters, name each of them.
                yield sys.intern(f"{prefix}.{name}" if prefix else name), module, tensor


def _with_owners(model: nn.Module, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[Named]:
    owners = dict(named_modules(model))
    for name, tensor in named:
        yield name, owners.get(name.rpartition(".")[0]), tensor


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


def _is_large(buffer: torch.Tensor) -> bool:
    return bool(
        (buffer.is_floating_point() or buffer.is_complex())
        and buffer.dim() > 0
        and buffer.numel() > MAX_REAL_BUFFER_FLOATS
    )


def _buffer_copy(buffer: torch.Tensor) -> torch.Tensor:
    if buffer.is_meta:
        copied = buffer.detach()
    elif buffer.layout != torch.strided:
        return buffer
    else:
        copied = to_meta(buffer) if _is_large(buffer) else lazy_clone(buffer.detach())
    copied.__dict__.update(buffer.__dict__)
    return copied
