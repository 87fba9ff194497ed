"""Computes large constants part by part, so that the zeros of a mask take no memory in between either."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tclint.graph.ops import numel
from tclint.graph.ops.spec import contiguous_strides
from tclint.tracing.kernels.meta_kernels import known_metadata
from tclint.tracing.values.operators import OperatorFacts
from tclint.tracing.values.zero_pages import zeros

_MIN_BYTES = 1 << 18
"""Of smaller ones a whole copy is no burden."""
_PART_BYTES = 1 << 14
"""Four pages; smaller parts would find few more zeros, and take longer."""
_MAX_ITEM_BYTES = 8
"""Of what the rules for these operators answer for."""
_EXACT = frozenset(
    {
        *("add", "div", "masked_fill", "mul", "sub", "where"),
        *("eq", "ge", "gt", "le", "lt", "ne"),
        *("bitwise_and", "bitwise_or", "logical_and", "logical_not", "logical_or"),
    }
)
"""Their values do not depend on how many are computed at once, as those of `exp` may in the last bit."""
_Block = tuple[tuple[int, int], ...]
"""Of the leading dims, the first index and how many follow."""


def in_parts(
    function: Callable[..., Any], facts: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """What a pointwise operator makes of constants; None where it is to run at once."""
    operands = [value for value in args if isinstance(value, torch.Tensor)]
    if facts.full_name not in _EXACT or kwargs or not operands:
        return None
    if any(operand.layout is not torch.strided or operand.is_quantized for operand in operands):
        return None
    # A bound that is cheaper than the rule.
    if numel([operand.numel() for operand in operands]) * _MAX_ITEM_BYTES < _MIN_BYTES:
        return None
    metadata = known_metadata(facts, args, kwargs)
    if metadata is None:
        return None
    shape, strides, dtype = metadata
    if numel(shape) * dtype.itemsize < _MIN_BYTES or strides != contiguous_strides(shape):
        return None
    made = zeros(shape, dtype)
    if made is None:
        return None
    for block in _blocks(shape, dtype.itemsize):
        part = function(*[_part(value, len(shape), block) for value in args])
        if _has_values(part):
            _part(made, len(shape), block).copy_(part)
    return made


def _blocks(shape: tuple[int, ...], item_bytes: int) -> Iterator[_Block]:
    """Row-major parts of about `_PART_BYTES` that cover the shape."""
    row_bytes, axis = numel(shape[1:]) * item_bytes, 0
    while row_bytes > _PART_BYTES and axis + 1 < len(shape):
        axis += 1
        row_bytes //= shape[axis]
    rows = max(1, _PART_BYTES // row_bytes)
    for indices in itertools.product(*[range(size) for size in shape[:axis]]):
        for first in range(0, shape[axis], rows):
            yield (*((index, 1) for index in indices), (first, min(rows, shape[axis] - first)))


def _part(value: Any, rank: int, block: _Block) -> Any:
    """A block's part of an operand that broadcasts to `rank` dims."""
    if not isinstance(value, torch.Tensor):
        return value
    for axis, (first, count) in enumerate(block, start=value.dim() - rank):
        if axis >= 0 and value.shape[axis] != 1:
            value = value.narrow(axis, first, count)
    return value


def _has_values(part: torch.Tensor) -> bool:
    """Whether any bit is set: minus zero is a value."""
    return bool(part.contiguous().view(-1).view(torch.uint8).any())
