"""Output metadata of pointwise operators, whatever the strides of their inputs.

torch's meta kernels of these are Python: 50 us to 1 ms a call, and tens of KiB for what they touch first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tclint.graph.ops import numel
from tclint.graph.ops.spec import channels_last_strides, contiguous_strides
from tclint.tracing.values.formats import is_dense

Metadata = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
Rule = Callable[..., "Metadata | None"]

FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INTEGERS = (torch.int64, torch.int32)
_REAL = (*FLOATING, *_INTEGERS, torch.int16, torch.int8, torch.uint8, torch.bool)


def pointwise_strides(shape: tuple[int, ...], operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Strides of what a pointwise operator makes of tensors that broadcast to a shape of one element or more.

    As `TensorIteratorBase::build` has it (ATen/native/TensorIterator.cpp): the first operand that tells two
    dims apart puts them in order, and the result is dense in that order.
    """
    if all(operand.shape == shape for operand in operands):
        if all(operand.is_contiguous() for operand in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(
            operand.is_contiguous(memory_format=torch.channels_last) for operand in operands
        ):
            return channels_last_strides(shape)
        strides: tuple[int, ...] = operands[0].stride()
        if is_dense(operands[0]) and all(operand.stride() == strides for operand in operands[1:]):
            return strides
    rows = [_broadcast_strides(operand, shape) for operand in operands]
    order = _innermost_first(shape, rows)
    made, step = [0] * len(shape), 1
    for axis in order:
        made[axis] = step
        step *= shape[axis]
    return tuple(made)


def _broadcast_strides(operand: torch.Tensor, shape: tuple[int, ...]) -> list[int]:
    missing = len(shape) - operand.dim()
    return [0] * missing + [
        0 if size == 1 and shape[missing + axis] != 1 else stride
        for axis, (size, stride) in enumerate(zip(operand.shape, operand.stride(), strict=True))
    ]


def _innermost_first(shape: tuple[int, ...], rows: list[list[int]]) -> list[int]:
    """The dims, sorted by insertion: those that no operand tells apart are skipped, and stay as they are."""
    order = list(range(len(shape) - 1, -1, -1))
    for end in range(1, len(order)):
        moved = end
        for place in range(end - 1, -1, -1):
            compared = _compared(order[place], order[moved], shape, rows)
            if compared > 0:
                order[place], order[moved] = order[moved], order[place]
                moved = place
            elif compared < 0:
                break
    return order


def _compared(left: int, right: int, shape: tuple[int, ...], rows: list[list[int]]) -> int:
    """Negative where dim `left` is further in than `right`, positive where it is further out."""
    for row in rows:
        if row[left] == 0 or row[right] == 0:
            continue
        if row[left] != row[right]:
            return row[left] - row[right]
        if shape[left] > shape[right]:
            return 1
    return 0


def _broadcast_shape(operands: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Of the result; None where they do not fit, or it has no elements."""
    rank = max(operand.dim() for operand in operands)
    shape = [1] * rank
    for operand in operands:
        for axis, size in enumerate(operand.shape, start=rank - operand.dim()):
            if size != 1 and shape[axis] not in (1, size):
                return None
            if size != 1:
                shape[axis] = size
    return tuple(shape) if numel(shape) else None


def _result(
    operands: Sequence[torch.Tensor], dtype: torch.dtype, *, with_number: bool = False
) -> Metadata | None:
    shape = _broadcast_shape(operands)
    if shape is None:
        return None
    if with_number:  # a tensor without dims, to torch
        operands = [*operands, _NUMBER]
    return shape, pointwise_strides(shape, operands), dtype


_NUMBER = torch.empty(())


def unary(tensor: Any, *numbers: Any, approximate: str = "none") -> Metadata | None:
    """Of operators that keep shape and dtype of one floating-point tensor."""
    if tensor.dtype not in FLOATING or approximate not in ("none", "tanh"):
        return None
    known = all(type(number) in (bool, int, float) for number in numbers)
    return _result((tensor,), tensor.dtype) if known else None


def power(tensor: Any, exponent: Any, **kwargs: Any) -> Metadata | None:
    """Of `pow` by a number."""
    return unary(tensor) if not kwargs and type(exponent) in (int, float) else None


def _keeps(dtype: torch.dtype, number: Any, integers: bool) -> bool:
    """Whether arithmetic with a Python number keeps a tensor's dtype."""
    kind = type(number)
    if dtype in FLOATING:
        return kind in (int, float)
    return integers and kind is int and dtype in _INTEGERS


def _binary(left: Any, right: Any, integers: bool) -> Metadata | None:
    if not isinstance(left, torch.Tensor):
        return None
    if not isinstance(right, torch.Tensor):
        return _result((left,), left.dtype, with_number=True) if _keeps(left.dtype, right, integers) else None
    known = left.dtype in FLOATING or (integers and left.dtype in _INTEGERS)
    return _result((left, right), left.dtype) if known and left.dtype == right.dtype else None


def arithmetic(left: Any, right: Any, *args: Any, alpha: Any = 1) -> Metadata | None:
    """Of `add`, `sub` and `mul`, of floating-point numbers or of integers."""
    return None if args or type(alpha) is not int else _binary(left, right, integers=True)


def division(left: Any, right: Any) -> Metadata | None:
    """Of `div` of floating-point numbers, not rounded."""
    return _binary(left, right, integers=False)


def comparison(left: Any, right: Any) -> Metadata | None:
    """Of `lt` and its like, which make Booleans."""
    operands = [operand for operand in (left, right) if isinstance(operand, torch.Tensor)]
    numbers = [operand for operand in (left, right) if not isinstance(operand, torch.Tensor)]
    if any(operand.dtype not in _REAL for operand in operands) or any(
        type(number) not in (bool, int, float) for number in numbers
    ):
        return None
    return _result(operands, torch.bool, with_number=bool(numbers))


def logical(left: Any, right: Any) -> Metadata | None:
    """Of `&` and its like between Boolean tensors."""
    if not isinstance(right, torch.Tensor) or not left.dtype == right.dtype == torch.bool:
        return None
    return _result((left, right), torch.bool)


def negation(tensor: Any) -> Metadata | None:
    """Of `~` of a Boolean tensor."""
    return _result((tensor,), torch.bool) if tensor.dtype == torch.bool else None


def clamped(tensor: Any, low: Any = None, high: Any = None, **kwargs: Any) -> Metadata | None:
    """Of `clamp` between numbers."""
    bounds = [bound for bound in (low, high, *kwargs.values()) if bound is not None]
    if not bounds or not all(_keeps(tensor.dtype, bound, True) for bound in bounds):
        return None
    return _result((tensor,), tensor.dtype)


def chosen(condition: Any, left: Any, right: Any) -> Metadata | None:
    """Of `where` between tensors of one dtype."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return None
    if condition.dtype != torch.bool or left.dtype != right.dtype or left.dtype not in _REAL:
        return None
    return _result((condition, left, right), left.dtype)


def masked(tensor: Any, mask: Any, value: Any) -> Metadata | None:
    """Of `masked_fill`, which writes into a row-major copy."""
    if type(value) not in (bool, int, float) or mask.dtype != torch.bool or tensor.dtype not in _REAL:
        return None
    if type(value) is float and tensor.dtype not in FLOATING:
        return None  # infinity is refused
    shape = _broadcast_shape((tensor, mask))
    return None if shape is None else (shape, contiguous_strides(shape), tensor.dtype)


POINTWISE_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "abs",
            "ceil",
            "cos",
            "elu",
            "erf",
            "exp",
            "expm1",
            "floor",
            "gelu",
            "hardsigmoid",
            "hardswish",
            "leaky_relu",
            "log",
            "log1p",
            "mish",
            "neg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "sigmoid",
            "silu",
            "sin",
            "softplus",
            "sqrt",
            "tanh",
        ),
        unary,
    ),
    **dict.fromkeys(("add", "mul", "sub"), arithmetic),
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt", "ne"), comparison),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"), logical),
    **dict.fromkeys(("bitwise_not", "logical_not"), negation),
    **dict.fromkeys(("clamp", "clamp_max", "clamp_min"), clamped),
    "div": division,
    "masked_fill": masked,
    "pow": power,
    "where": chosen,
}
