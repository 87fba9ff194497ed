"""Tensors that take the place of a model's weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tclint.tracing.constants import MAX_REAL_BUFFER_FLOATS
from tclint.tracing.equal_constants import lazy_clone
from tclint.tracing.meta_kernels import to_meta


def meta_parameter(parameter: torch.Tensor) -> Any:
    """A parameter on meta in the place of a dense one; others stand for themselves."""
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


def become_meta(tensor: torch.Tensor, metadata: torch.Tensor) -> None:
    """Make a real tensor a meta tensor of the metadata of another, whoever refers to it.

    Raises:
        RuntimeError: something in torch refers to the tensor.
    """
    requires_grad = tensor.requires_grad
    made = to_meta(metadata)
    if isinstance(tensor, nn.Parameter):
        made = nn.Parameter(made, requires_grad=requires_grad)
    else:
        made.requires_grad_(requires_grad)
    made.__dict__.update(tensor.__dict__)
    torch.utils.swap_tensors(tensor, made)


def is_large(buffer: torch.Tensor) -> bool:
    """Whether only the shape of a buffer matters: a table of floating-point numbers."""
    return bool(
        (buffer.is_floating_point() or buffer.is_complex())
        and buffer.dim() > 0
        and buffer.numel() > MAX_REAL_BUFFER_FLOATS
    )


def buffer_copy(buffer: torch.Tensor) -> torch.Tensor:
    """What a run may write into in the place of a buffer: with its values, unless those are many."""
    if buffer.layout != torch.strided:
        return buffer.detach() if buffer.is_meta else buffer
    if buffer.is_meta or not is_large(buffer):
        copied = buffer.detach() if buffer.is_meta else lazy_clone(buffer.detach())
        copied.__dict__.update(buffer.__dict__)
        return copied
    return meta_buffer(buffer)


def meta_buffer(buffer: torch.Tensor) -> torch.Tensor:
    """A tensor on meta in the place of a dense buffer."""
    made = to_meta(buffer)
    made.__dict__.update(buffer.__dict__)
    return made
