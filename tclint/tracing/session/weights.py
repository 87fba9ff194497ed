"""A model's weights during one run: on meta, by name, and afterwards as they were."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from tclint.tracing.patches.modules import named_modules
from tclint.tracing.record.placeholder_weights import buffer_copy, meta_parameter
from tclint.tracing.values.origin import ValueOrigin, clear_origin, named_weights, origin_of, set_origin

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


_Slots = dict[str, Any]


class _Place(NamedTuple):
    """Where a weight stood before the run."""

    slots: _Slots
    name: str
    tensor: torch.Tensor
    metadata: tuple[Any, ...] | None
    """The metadata of a meta tensor that is used as it is; None where another took its place."""


@contextlib.contextmanager
def weights_on_meta(model: nn.Module, *, inference: bool = False) -> Iterator[dict[int, str]]:
    """Name a model's weights for the length of the block, and let none of them hold large values.

    Weights that are not on meta are swapped for meta tensors of the same strides. Tied tensors stay tied,
    requires_grad is kept. Integer and small float buffers keep their values, as copies, because a forward may
    write into them. On exit every weight stands in its place again, with the shape that it had.

    Args:
        inference: the run is in inference mode. There weights on meta are used as they are; elsewhere a
            backward pass would leave its gradients on them. A view of a swapped buffer must not be tracked
            by autograd.

    Yields:
        The weights' first qualified names by their ids.
    """
    before: list[_Place] = []
    # Stand-ins stay alive, because a forward may put others in their place: no other tensor gets their ids.
    swapped: dict[int, tuple[Any, Any]] = {}
    noted: list[tuple[torch.Tensor, ValueOrigin]] = []
    temporary: list[torch.Tensor] = []
    modules = list({id(module): module for _, module in named_modules(model)}.values())
    try:
        for module in modules:
            before += _swapped(module._parameters, meta_parameter, swapped, keeps_meta=inference)
        with torch.inference_mode(inference):
            for module in modules:
                before += _swapped(module._buffers, buffer_copy, swapped, keeps_meta=inference)
        names = _names(model, noted, temporary)
        with named_weights(names):
            yield names
    finally:
        for slots, name, tensor, metadata in before:
            slots[name] = tensor
            if metadata is not None:
                clear_origin(tensor)
                if metadata != _metadata(tensor):
                    _set_back(tensor, metadata)
        for tensor, origin in noted:
            set_origin(tensor, origin)


def _swapped(
    slots: _Slots, stand_in: Callable[[Any], Any], swapped: dict[int, tuple[Any, Any]], *, keeps_meta: bool
) -> Iterator[_Place]:
    """Put something in the place of each tensor, the same wherever the tensor is.

    Args:
        keeps_meta: meta tensors stay in their places.
    """
    for name, tensor in list(slots.items()):
        if tensor is None or is_lazy(tensor):
            continue
        if keeps_meta and tensor.is_meta:
            yield _Place(slots, name, tensor, _metadata(tensor))
        else:
            yield _Place(slots, name, tensor, None)
            slots[name] = _stand_in_once(tensor, stand_in, swapped)


def _metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return tuple(tensor.shape), strides, tensor.dtype, tensor.requires_grad


def _set_back(tensor: torch.Tensor, metadata: tuple[Any, ...]) -> None:
    """Give a meta tensor that a forward changed the metadata that it had."""
    shape, strides, dtype, requires_grad = metadata
    with torch.no_grad():
        if strides is not None and metadata[:3] != _metadata(tensor)[:3]:
            tensor.data = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    tensor.requires_grad_(requires_grad)


def _stand_in_once(tensor: Any, stand_in: Callable[[Any], Any], swapped: dict[int, tuple[Any, Any]]) -> Any:
    if id(tensor) not in swapped:
        swapped[id(tensor)] = tensor, stand_in(tensor)  # alive, so that its id is not another's
    return swapped[id(tensor)][1]


def _names(
    model: nn.Module, noted: list[tuple[torch.Tensor, ValueOrigin]], temporary: list[torch.Tensor]
) -> dict[int, str]:
    """The first qualified name of each weight by its id.

    Args:
        noted: receives weights of which more is known, with that; they get their name there, on a copy.
        temporary: receives what is in no module, so that no other tensor gets its id.
    """
    names: dict[int, str] = {}
    seen: set[int] = set()
    kind = type(model)
    overrides = (
        kind.named_parameters is not nn.Module.named_parameters
        or kind.named_buffers is not nn.Module.named_buffers
    )
    for name, _, tensor in itertools.chain(*named_tensors(model)):
        if overrides:
            temporary.append(tensor)
        key = id(tensor)
        origin = origin_of(tensor)
        if origin is None:
            names.setdefault(key, name)
        elif key not in seen:
            seen.add(key)
            noted.append((tensor, origin))
            origin = copy.copy(origin)
            origin.forget_maker()
            origin.name_parameter(name)
            set_origin(tensor, origin)
    return names
