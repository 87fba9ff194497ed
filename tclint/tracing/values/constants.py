"""Which freshly made tensors keep real values during a trace, and which become meta tensors.

Index tables, masks and ranges are small, and Python code branches on them (`.item()`, `.tolist()`, numpy),
so they stay real. Weights, noise and large tables only matter by shape.
"""

from __future__ import annotations

from typing import Any

import torch

from tclint.graph.ops import numel

# Contents do not matter: allocated or drawn at random.
UNDEFINED_FACTORIES = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty",
        "new_empty_strided",
    }
)  # fmt: skip
RANDOM_FACTORIES = frozenset(
    {"normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"}
)
FACTORIES = (
    frozenset(
        {
            "arange", "bartlett_window", "blackman_window", "eye", "fft_fftfreq", "fft_rfftfreq", "full",
            "full_like", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "new_full",
            "new_ones", "new_zeros", "ones", "ones_like", "randperm", "scalar_tensor", "tril_indices",
            "triu_indices", "zeros", "zeros_like",
        }
    )
    | UNDEFINED_FACTORIES
    | RANDOM_FACTORIES
)  # fmt: skip
# Fillers whose result is random anyway: drawing the numbers would only cost time.
RANDOM_FILLERS = frozenset(
    {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"}
)

BOOLEAN = frozenset(
    {"bitwise_and", "bitwise_or", "eq", "ge", "gt", "isclose", "le", "logical_and", "logical_or", "lt", "ne"}
)
"""Operators that make masks of whatever they are given: Python code asks `mask.all()`."""

_ALWAYS_SMALL = frozenset({"linspace", "logspace", "scalar_tensor", "tril_indices", "triu_indices"})

MAX_REAL_ELEMENTS = 1 << 18
"""Integer and Boolean constants above this size lose their values (2 MiB of int64)."""
MAX_REAL_FLOATS = 1 << 16
"""Floating-point constants above this size are weights or tables: only their shape matters. So it is with
what a forward combines them to (position embeddings, masks to add); a constructor may count what it made."""
MAX_REAL_UNDEFINED = 64
MAX_REAL_UNDEFINED_INTEGERS = 4096
MAX_REAL_BUFFER_FLOATS = 4096
MAX_REAL_INPUT = 4096
"""Integer and Boolean inputs up to this size keep the values that the caller gave."""


def keeps_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the tensor that factory operator `name` is about to make should be real."""
    if name in _ALWAYS_SMALL:
        return True
    count, dtype = _size_and_dtype(name, args, kwargs)
    if name in UNDEFINED_FACTORIES or name in RANDOM_FACTORIES:
        integers = dtype is not None and not dtype.is_floating_point and not dtype.is_complex
        if name in RANDOM_FACTORIES and count == 1 and not integers:
            return False  # LayerDrop compares it: a trace that leaves layers out by chance shows nothing
        return count <= (MAX_REAL_UNDEFINED_INTEGERS if integers else MAX_REAL_UNDEFINED)
    if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
        return count <= MAX_REAL_FLOATS
    return count <= MAX_REAL_ELEMENTS


def stays_small(name: str, args: tuple[Any, ...], tensors: list[torch.Tensor], is_in_forward: bool) -> bool:
    """Whether an operator on constants makes a constant that is small enough to keep its values."""
    if name == "one_hot":
        classes = args[1] if len(args) > 1 else -1
        return bool(tensors[0].numel() * max(classes, 1) <= MAX_REAL_ELEMENTS)
    if name in ("repeat", "tile"):
        return bool(tensors[0].numel() * numel(args[1]) <= MAX_REAL_ELEMENTS)
    if len(tensors) < 2:
        return True
    # An upper bound of what broadcasting makes; exact for the pointwise operators, the common case.
    rank = max(tensor.dim() for tensor in tensors)
    sizes = [1] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, start=rank - tensor.dim()):
            sizes[axis] = max(sizes[axis], size)
    if is_in_forward and name not in BOOLEAN and any(tensor.is_floating_point() for tensor in tensors):
        joined = sum([tensor.numel() for tensor in tensors]) if name in ("cat", "stack") else 0
        return max(numel(sizes), joined) <= MAX_REAL_FLOATS
    return numel(sizes) <= MAX_REAL_ELEMENTS


def uniform_value(tensor: torch.Tensor) -> float | None:
    """What every element of a real tensor is, None where they differ or are too many to look at."""
    if (
        not 0 < tensor.numel() <= MAX_REAL_ELEMENTS
        or tensor.layout is not torch.strided
        or tensor.is_complex()
    ):
        return None
    first = tensor[(0,) * tensor.dim()]
    last = tensor[(-1,) * tensor.dim()]
    if bool(first != last) or (tensor.numel() > 2 and not bool((tensor == first).all())):
        return None
    return float(first)


def _size_and_dtype(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int, torch.dtype | None]:
    dtype: torch.dtype | None = kwargs.get("dtype")
    numbers = [argument for argument in args if isinstance(argument, (int, float))]
    if name == "arange":
        # A range is always worth keeping (positions, indices); its dtype does not matter.
        start, end, step = 0.0, 0.0, 1.0
        if len(numbers) == 1:
            end = numbers[0]
        elif len(numbers) >= 2:
            start, end = numbers[0], numbers[1]
            step = numbers[2] if len(numbers) > 2 and numbers[2] else 1.0
        return int(max(0.0, (end - start) / step)), None
    if name == "eye":
        rows = int(numbers[0]) if numbers else 0
        return rows * (int(numbers[1]) if len(numbers) > 1 else rows), None
    if name == "randperm":
        return (int(numbers[0]) if numbers else 0), None
    source = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if dtype is None:
        if source is not None:
            dtype = source.dtype
        elif name == "randint" or (name == "full" and isinstance(kwargs.get("fill_value", args[-1]), int)):
            dtype = torch.int64
        else:
            dtype = torch.get_default_dtype()
    if name.endswith("_window"):
        return (int(numbers[0]) if numbers else 0), dtype
    if name.endswith("_like") and source is not None:
        return source.numel(), dtype
    size = kwargs.get("size")
    if size is None:
        size = next((argument for argument in args if isinstance(argument, (list, tuple))), ())
    return numel(size), dtype
