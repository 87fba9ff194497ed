"""Constants that float16 cannot hold, and the operators that they matter to."""

from __future__ import annotations

import math
from collections.abc import Mapping

LARGEST = 65504.0
_SMALLEST = 2.0**-25
"""What is smaller rounds to zero: half of the smallest number above it (IEEE 754 binary16)."""
_FILLS = frozenset(
    {"masked_fill", "fill", "index_fill", "full", "full_like", "new_full", "clamp", "clamp_min", "clamp_max"}
    | {"clip", "pad", "constant_pad_nd"}
)
"""Operators that convert a number to the dtype of their tensor, and raise where that overflows."""
_GUARDS = frozenset({"add", "clamp", "clamp_min", "clip"})
AT_ZERO = frozenset({"log", "log2", "log10", "rsqrt", "reciprocal"})
"""Operators that give an infinity for zero."""


def lost_in_float16(operator: str, arguments: Mapping[str, object]) -> float | None:
    """The constant with which an operator raises on float16, or that is zero in it; None if there is none.

    Args:
        operator: by ATen's name.
        arguments: by parameter; a factor of what is added (`alpha`) is not converted.
    """
    for name, value in arguments.items():
        if (
            name == "alpha"
            or not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
        ):
            continue
        if operator in _FILLS and abs(value) > LARGEST:
            return float(value)
        if operator in _GUARDS and 0 < abs(value) < _SMALLEST:
            return float(value)
    return None


def loss_in_words(value: float) -> tuple[str, str]:
    """What becomes of such a constant, and what to do."""
    if abs(value) > LARGEST:
        return (
            f"{value:g} is beyond 65504, where float16 ends, which the tensor is: it raises RuntimeError",
            "Take torch.finfo(tensor.dtype).min (or .max), or an infinity.",
        )
    return (
        f"{value:g} is zero in float16, which the tensor is: it guards against nothing",
        "Take at least 1e-6, or compute in float32: `.float()` before it.",
    )
