"""Tensors that take the place of a model's weights."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import torch
from torch import nn

from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.values.constants import MAX_REAL_BUFFER_FLOATS
from tclint.tracing.values.origin import ValueOrigin, origin_of, set_origin
from tclint.tracing.values.triangles import note_corner, real_corner


def meta_parameter(parameter: torch.Tensor) -> Any:
    """A parameter on meta in the place of a dense one; others stand for themselves."""
    if parameter.is_meta:
        stand_in = parameter.detach()
    elif parameter.layout == torch.strided:
        stand_in = to_meta(parameter)
    else:
        return parameter
    return _with_attributes(nn.Parameter(stand_in, requires_grad=parameter.requires_grad), parameter)


def become_meta(tensor: torch.Tensor, metadata: torch.Tensor) -> None:
    """Make a real tensor a meta tensor of the metadata of another, whoever refers to it.

    Raises:
        RuntimeError: something in torch refers to the tensor.
    """
    made = to_meta(metadata)
    if isinstance(tensor, nn.Parameter):
        made = nn.Parameter(made, requires_grad=False)
    made.requires_grad_(tensor.requires_grad)
    torch.utils.swap_tensors(tensor, _with_attributes(made, tensor))


def _is_large(buffer: torch.Tensor) -> bool:
    """Whether only the shape of a buffer matters: a table of floating-point numbers."""
    return bool(
        (buffer.is_floating_point() or buffer.is_complex())
        and buffer.dim() > 0
        and buffer.numel() > MAX_REAL_BUFFER_FLOATS
    )


_values: dict[int, torch.Tensor] = {}
"""On the CPU, by the ids of buffers that this process cannot read."""


def values_elsewhere(buffers: Iterable[torch.Tensor | None]) -> dict[int, torch.Tensor]:
    """The values of buffers on a GPU that a run needs, on the CPU, by the buffers' ids."""
    return {
        id(buffer): buffer.detach().cpu()
        for buffer in buffers
        if buffer is not None
        and type(buffer) is torch.Tensor
        and buffer.device.type not in ("cpu", "meta")
        and buffer.layout == torch.strided
        and not _is_large(buffer)
    }


def take_values_from(values: dict[int, torch.Tensor]) -> None:
    """Let this process, which cannot use the GPU, know the values of buffers there; for good."""
    _values.update(values)


def buffer_copy(buffer: torch.Tensor) -> torch.Tensor:
    """What a run may write into in the place of a buffer: with its values, unless those are many."""
    if buffer.layout != torch.strided:
        return buffer.detach() if buffer.is_meta else buffer
    if buffer.is_meta or not _is_large(buffer):
        values = _values.get(id(buffer), buffer).detach()
        return _with_attributes(values if buffer.is_meta else values.clone(), buffer)
    made = _with_attributes(to_meta(buffer), buffer)
    corner = real_corner(buffer)
    if corner is not None:
        set_origin(made, copy(origin_of(made) or ValueOrigin()))
        note_corner(made, corner)
    return made


def _with_attributes(made: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """User code hangs attributes on weights (`no_weight_decay`)."""
    made.__dict__.update(original.__dict__)
    return made
