"""How torch's kernels name shapes and dtypes in what they refuse, and which dtypes they may have together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

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
