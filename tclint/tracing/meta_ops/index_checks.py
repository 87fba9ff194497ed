"""Refuses indices that torch's kernels refuse, in their words; part of argument_checks.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch

from tclint.tracing.values.operators import Args
from tclint.tracing.values.origin import is_traced

# Autocast around the model, which a trace does not see, would convert them.
_AUTOCAST_MIXES = frozenset({torch.float32, torch.float16, torch.bfloat16})
_TYPE_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def listed(shape: Sequence[int]) -> str:
    """'[8, 3]'."""
    return "[" + ", ".join(map(str, shape)) + "]"


def type_name(tensor: torch.Tensor) -> str:
    """'Long' for int64."""
    return _TYPE_NAMES.get(tensor.dtype, str(tensor.dtype))


def may_mix(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether both have one dtype, or could have under autocast."""
    return left.dtype == right.dtype or {left.dtype, right.dtype} <= _AUTOCAST_MIXES


_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_MASK_DTYPES = frozenset({torch.bool, torch.uint8})


def _embedding(weight: torch.Tensor, indices: torch.Tensor, *_: Any, **__: Any) -> None:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got torch.{type_name(indices)}Tensor instead (while checking arguments for embedding)"
        )


def check_constant_rows(weight: torch.Tensor, indices: torch.Tensor) -> None:
    """Raise what torch raises where constants, such as positions, look up more rows than a table has."""
    if indices.is_meta or is_traced(indices) or not indices.numel() or indices.is_floating_point():
        return
    highest = int(indices.max())
    if highest >= weight.shape[0]:
        raise IndexError(f"index out of range in self: {highest} in a table of {weight.shape[0]} rows")


def _index(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: Any, **__: Any) -> None:
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype in _MASK_DTYPES:
            for offset, size in enumerate(index.shape):
                if axis + offset >= tensor.dim() or tensor.shape[axis + offset] != size:
                    raise IndexError(
                        f"The shape of the mask {listed(index.shape)} at index {offset} does not match the "
                        f"shape of the indexed tensor {listed(tensor.shape)} at index {axis + offset}"
                    )
            axis += index.dim()
        elif index.dtype in _INDEX_DTYPES:
            axis += 1
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")


def _index_put(
    tensor: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, *_: Any, **__: Any
) -> None:
    _index(tensor, indices)
    if not may_mix(tensor, values):
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{type_name(tensor)} for the destination and {type_name(values)} for the source."
        )
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if any(index is not None and index.dtype in _MASK_DTYPES for index in indices):
        return  # how many elements they select depends on their values
    picked = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    rest = [size for axis, size in enumerate(tensor.shape) if axis not in given]
    first = given[0] if given[-1] - given[0] + 1 == len(given) else 0
    result = [*rest[:first], *picked, *rest[first:]]
    sizes = list(values.shape)
    missing = len(result) - len(sizes)
    if missing < 0 or any(size not in (1, result[missing + axis]) for axis, size in enumerate(sizes)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {listed(sizes)} cannot be broadcast to indexing result "
            f"of shape {listed(result)}"
        )


def _one_hot(indices: torch.Tensor, *_: Any) -> None:
    if indices.dtype != torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")


def _bincount(tensor: torch.Tensor, *_: Any, **__: Any) -> None:
    if tensor.dim() != 1 or tensor.dtype not in (*_INDEX_DTYPES, torch.uint8):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")


def _index_select(_tensor: torch.Tensor, _dim: int, index: torch.Tensor) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")


def _index_add(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *_: Any, **__: Any
) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"index_add_(): Expected dtype int32/int64 for index but got: {type_name(index)}")
    if not may_mix(tensor, source):
        raise RuntimeError(
            f"index_add_(): self ({type_name(tensor)}) and source ({type_name(source)}) must have the same "
            "scalar type"
        )
    if tensor.dim() == 0 or source.dim() == 0:
        return
    rest = [list(shape) for shape in (tensor.shape, source.shape)]
    fits = len(rest[0]) == len(rest[1]) and rest[1].pop(dim) == index.numel()
    rest[0].pop(dim)
    if not fits or rest[0] != rest[1]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {listed(tensor.shape)} source.shape = {listed(source.shape)}"
        )


INDEX_CHECKS: MappingProxyType[str, Callable[..., None]] = MappingProxyType(
    {
        **dict.fromkeys(("index", "_unsafe_index"), _index),
        **dict.fromkeys(("index_put", "index_put_"), _index_put),
        **dict.fromkeys(("index_add", "index_add_"), _index_add),
        "bincount": _bincount,
        "embedding": _embedding,
        "index_select": _index_select,
        "one_hot": _one_hot,
    }
)
"""By ATen name."""


def integer_indices(args: Args) -> tuple[Any, ...]:
    """Real Boolean masks in an index list, replaced by the positions they select."""
    indices: list[Any] = []
    for index in args[1]:
        if isinstance(index, torch.Tensor) and not index.is_meta and index.dtype in (torch.bool, torch.uint8):
            indices.extend(index.nonzero().unbind(1))
        else:
            indices.append(index)
    return (args[0], indices, *args[2:])
