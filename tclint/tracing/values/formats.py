"""How torch names dtypes, and which memory format its kernels read from strides (c10/core/MemoryFormat.h)."""

from __future__ import annotations

import torch

from tclint.graph.ops.spec import channels_last_strides, contiguous_strides


class _Names(dict[torch.dtype, str]):
    def __missing__(self, dtype: torch.dtype) -> str:
        name = self[dtype] = str(dtype).removeprefix("torch.")
        return name


DTYPE_NAMES: dict[torch.dtype, str] = _Names()


def dtype_name(dtype: torch.dtype) -> str:
    """'float16' for torch.float16."""
    return DTYPE_NAMES[dtype]


_ORDERS = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def suggests_channels_last(tensor: torch.Tensor) -> bool:
    """`at::Tensor::suggest_memory_format() != contiguous`: NHWC or NDHWC strides.

    Ambiguous strides (one channel, 1x1 images) count as contiguous unless they say otherwise.
    """
    order = _ORDERS.get(tensor.dim())
    if order is None or tensor.layout != torch.strided:
        return False
    sizes, strides = tensor.shape, tensor.stride()
    if strides[1] == 0:
        return False
    least = 0
    for axis in order:
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True


def strides_in_format(shape: tuple[int, ...], *, channels_last: bool) -> tuple[int, ...]:
    """Strides of a new tensor in one of the two formats."""
    return channels_last_strides(shape) if channels_last else contiguous_strides(shape)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order of the dims."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
