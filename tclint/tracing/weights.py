"""A model's weights during one run: on meta, by name, and afterwards as they were."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.constants import MAX_REAL_BUFFER_FLOATS
from tclint.tracing.equal_constants import lazy_clone
from tclint.tracing.meta_kernels import to_meta
from tclint.tracing.modules import construct_site_of, named_modules
from tclint.tracing.origin import Origin, clear_origin, named_weights, origin_of, set_origin
from tclint.tracing.sites import SiteFinder

_Slots = dict[str, Any]
_is_uninitialised: Callable[[Any], bool] = getattr(nn.parameter, "is_lazy", lambda _tensor: False)


def is_lazy(tensor: Any) -> bool:
    """Whether the tensor gets its shape only from the first forward."""
    return _is_uninitialised(tensor)


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
    before: list[Any] = []  # flat, because there are thousands: slots, name, tensor, metadata, ...
    # Stand-ins stay alive, because a forward may put others in their place: no other tensor gets their ids.
    swapped: dict[int, tuple[Any, Any]] = {}
    kinds: dict[Any, Any] = {}
    noted: list[tuple[torch.Tensor, Origin]] = []
    temporary: list[torch.Tensor] = []
    modules = list({id(module): module for _, module in named_modules(model)}.values())
    try:
        for module in modules:
            _swap(module._parameters, _meta_parameter, swapped, before, kinds if inference else None)
        with torch.inference_mode(inference):
            for module in modules:
                counter = module._buffers.get(_COUNTER) if _is_idle_norm(module) else None
                _swap(module._buffers, _buffer_copy, swapped, before, kinds if inference else None, counter)
        modules.clear()
        names = _names(model, noted, temporary)
        with named_weights(names):
            yield names
    finally:
        for at in range(0, len(before), 4):
            slots, name, tensor, metadata = before[at : at + 4]
            slots[name] = tensor
            if metadata is not None:
                clear_origin(tensor)
                if metadata != _metadata(tensor):
                    _set_back(tensor, metadata)
        for tensor, origin in noted:
            set_origin(tensor, origin)


def drop_values(built: Any, sites: SiteFinder) -> None:
    """Put on meta, for good, what no run asks for: weights, and statistics of norms, that have values.

    Args:
        built: what a build returned. Of modules that were there before, nothing is touched.
        sites: found where the build's modules were constructed.
    """
    model = built[0] if isinstance(built, tuple) and built else built
    if not issubclass(type(model), nn.Module):  # an object may say that it is of another class
        return
    known = sites.ids()
    modules = list({id(module): module for _, module in named_modules(model)}.values())
    made_here = [module for module in modules if id(construct_site_of(module).site) in known]
    places = Counter(id(tensor) for module in modules for _, _, tensor in _with_values(module))
    own = Counter(id(tensor) for module in made_here for _, _, tensor in _with_values(module))
    swapped: dict[int, Any] = {}
    for wants_buffers in (False, True):  # parameters first: a tied one stays one
        for module in made_here:
            for slots, name, tensor in _with_values(module):
                is_buffer = slots is module._buffers
                if is_buffer is not wants_buffers or places[id(tensor)] > own[id(tensor)]:
                    continue
                made = swapped.get(id(tensor))
                if made is None and is_buffer and not _is_unread(module, name, tensor):
                    continue
                if made is None:
                    made = _meta_buffer(tensor) if is_buffer else _meta_parameter(tensor)
                    if own[id(tensor)] > 1:  # still somewhere, so that its id is not another's
                        swapped[id(tensor)] = made
                slots[name] = made


def _with_values(module: nn.Module) -> Iterator[tuple[_Slots, str, torch.Tensor]]:
    """The module's dense weights that are not on meta, with their places."""
    for slots in (module._parameters, module._buffers):
        for name, tensor in list(slots.items()):
            if tensor is None or is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided:
                continue
            yield slots, name, tensor


def _is_unread(module: nn.Module, name: str, buffer: torch.Tensor) -> bool:
    return _is_large(buffer) or (name in _STATISTICS and isinstance(module, _NORMS))


_NORMS = nn.modules.batchnorm._NormBase
_COUNTER = "num_batches_tracked"
_STATISTICS = ("running_mean", "running_var")


def _is_idle_norm(module: nn.Module) -> bool:
    """Whether the module is a norm whose forward does not count its batches."""
    return isinstance(module, _NORMS) and not module.training


def _swap(
    slots: _Slots,
    stand_in: Callable[[Any], Any],
    swapped: dict[int, tuple[Any, Any]],
    before: list[Any],
    kinds: dict[Any, Any] | None,
    unused: torch.Tensor | None = None,
) -> None:
    """Put something in the place of each tensor, the same wherever the tensor is, and note what was there.

    Args:
        kinds: if given, meta tensors stay in their places; what is noted of them, each once.
        unused: stays in its place as well.
    """
    for name, tensor in list(slots.items()) if slots else ():
        if tensor is None or is_lazy(tensor) or tensor is unused:
            continue
        if kinds is not None and tensor.is_meta:
            metadata = _metadata(tensor)
            before += (slots, name, tensor, kinds.setdefault(metadata, metadata))
            continue
        before += (slots, name, tensor, None)
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
    model: nn.Module, noted: list[tuple[torch.Tensor, Origin]], temporary: list[torch.Tensor]
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
    if buffer.layout != torch.strided:
        return buffer.detach() if buffer.is_meta else buffer
    if buffer.is_meta or not _is_large(buffer):
        copied = buffer.detach() if buffer.is_meta else lazy_clone(buffer.detach())
        copied.__dict__.update(buffer.__dict__)
        return copied
    return _meta_buffer(buffer)


def _meta_buffer(buffer: torch.Tensor) -> torch.Tensor:
    made = to_meta(buffer)
    made.__dict__.update(buffer.__dict__)
    return made
