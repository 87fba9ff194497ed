"""Shape, strides and dtype of pointwise operators equal those of torch's kernels on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor

import tclint
from tclint.core.errors import TargetError
from tclint.tracing.kernels.pointwise_rules import POINTWISE_RULES

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "elu": F.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "gelu": F.gelu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "log": torch.log,
    "log1p": torch.log1p,
    "mish": F.mish,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "round": torch.round,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "softplus": F.softplus,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    name: getattr(torch, name) for name in ("add", "div", "eq", "ge", "gt", "le", "lt", "mul", "ne", "sub")
}
_LOGICAL: dict[str, Callable[[Any, Any], Tensor]] = {
    name: getattr(torch, name)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")
}
_WITH_ARGUMENTS: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "clamp": (torch.clamp, (0.0, 1.0)),
    "clamp_max": (torch.clamp_max, (1,)),
    "clamp_min": (torch.clamp_min, (0.5,)),
    "pow": (torch.pow, (3,)),
}
_OTHERS = {"bitwise_not", "logical_not", "masked_fill", "where"}

_SHAPES = st.lists(st.sampled_from([1, 1, 2, 3, 4]), max_size=5)


@st.composite
def _operands(draw: st.DrawFn, count: int) -> list[Tensor]:
    """Tensors of all sorts of strides that broadcast to one shape."""
    shape = draw(_SHAPES)
    return [_strided(draw, shape) for _ in range(count)]


def _strided(draw: st.DrawFn, shape: list[int]) -> Tensor:
    shape = shape[draw(st.integers(0, len(shape))) :] if draw(st.integers(0, 3)) == 0 else shape
    own = [1 if draw(st.integers(0, 6)) == 0 else size for size in shape]
    kind = draw(st.sampled_from(["plain", "permuted", "sliced", "expanded", "channels_last"]))
    if kind == "permuted":
        order = draw(st.permutations(range(len(own))))
        return torch.ones([own[axis] for axis in order]).permute(
            [order.index(axis) for axis in range(len(own))]
        )
    if kind == "sliced":
        steps = [draw(st.integers(1, 2)) for _ in own]
        whole = torch.ones([size * step for size, step in zip(own, steps, strict=True)])
        return whole[tuple(slice(None, None, step) for step in steps)]
    if kind == "expanded":
        return torch.ones([1 if draw(st.booleans()) else size for size in own]).expand(own)
    made = torch.ones(own)
    return made.to(memory_format=torch.channels_last) if kind == "channels_last" and len(own) == 4 else made


def _of(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def test_every_rule_is_compared() -> None:
    assert {*_UNARY, *_BINARY, *_LOGICAL, *_WITH_ARGUMENTS, *_OTHERS} == POINTWISE_RULES.keys()


@given(_operands(1), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
@settings(max_examples=60)
def test_of_one_tensor(operands: list[Tensor], dtype: torch.dtype) -> None:
    tensor = operands[0].to(dtype)
    for name, function in _UNARY.items():
        assert POINTWISE_RULES[name](tensor) == _of(function(tensor)), name
    for name, (function, arguments) in _WITH_ARGUMENTS.items():
        assert POINTWISE_RULES[name](tensor, *arguments) == _of(function(tensor, *arguments)), name
    for name in ("bitwise_not", "logical_not"):
        assert POINTWISE_RULES[name](tensor > 0) == _of(getattr(torch, name)(tensor > 0)), name


@given(_operands(2))
@settings(max_examples=150)
def test_of_two_tensors(operands: list[Tensor]) -> None:
    left, right = operands
    for name, function in _BINARY.items():
        assert POINTWISE_RULES[name](left, right) == _of(function(left, right)), name
    for name, function in _LOGICAL.items():
        assert POINTWISE_RULES[name](left > 0, right > 0) == _of(function(left > 0, right > 0)), name
    filled = POINTWISE_RULES["masked_fill"](left, right > 0, 0.0)
    assert filled == _of(left.masked_fill(right > 0, 0.0))


@given(_operands(1), st.sampled_from([2, 0.5]))
@settings(max_examples=100)
def test_of_a_tensor_and_a_number(operands: list[Tensor], number: float) -> None:
    tensor = operands[0]
    for name, function in _BINARY.items():
        assert POINTWISE_RULES[name](tensor, number) == _of(function(tensor, number)), name


@given(_operands(3))
@settings(max_examples=100)
def test_of_a_choice(operands: list[Tensor]) -> None:
    condition, left, right = operands
    assert POINTWISE_RULES["where"](condition > 0, left, right) == _of(
        torch.where(condition > 0, left, right)
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", (torch.ones(2), torch.ones(2, dtype=torch.float64))),
        ("add", (torch.ones(2, dtype=torch.int64), 0.5)),
        ("mul", (torch.ones(2, dtype=torch.bool), 2)),
        ("mul", (torch.ones(2), 1j)),
        ("mul", (torch.ones(2), torch.ones(3))),
        ("div", (torch.ones(2, dtype=torch.int64), 2)),
        ("exp", (torch.ones(2, dtype=torch.int64),)),
        ("clamp", (torch.ones(2), torch.zeros(2), None)),
        ("where", (torch.ones(2) > 0, torch.ones(2), torch.ones(2, dtype=torch.float64))),
        ("masked_fill", (torch.ones(2), torch.ones(2) > 0, torch.tensor(0.0))),
        ("abs", (torch.ones(2, dtype=torch.complex64),)),
        ("add", (torch.ones(0, 2), torch.ones(2))),
        ("pow", (torch.ones(2), 2j)),
        ("elu", (torch.ones(2), 1j)),
        ("masked_fill", (torch.ones(2, dtype=torch.int64), torch.ones(2) > 0, float("-inf"))),
    ],
)
def test_what_is_not_certain_is_left_to_torch(name: str, arguments: tuple[Any, ...]) -> None:
    assert POINTWISE_RULES[name](*arguments) is None


@pytest.mark.parametrize("function", [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor])
@pytest.mark.parametrize("number", [1, True])
def test_a_number_before_a_tensor(function: Any, number: Any) -> None:
    class Masked(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            mask = function(number, x > 0)
            assert mask.dtype == function(number, torch.ones(1) > 0).dtype
            return super().forward(x) * mask

    tclint.trace(lambda: Masked(4, 4))


def test_other_libraries_operators_have_their_own_shapes() -> None:
    library = torch.library.Library("tclint_tests", "FRAGMENT")
    library.define("elu(Tensor x, int n) -> Tensor")
    library.impl("elu", lambda x, n: x.new_empty((n,)), "CompositeExplicitAutograd")

    class Own(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = torch.ops.tclint_tests.elu(super().forward(x), 5)
            return made

    assert tclint.trace(lambda: Own(4, 4)).outputs[0].shape == (5,)
    library._destroy()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: F.layer_norm(x.t(), ()), "normalized_shape"),
        (lambda x: F.layer_norm(x.t(), (3,)), "normalized_shape"),
        (lambda x: F.gelu(x.t(), approximate="bad"), "approximate"),
        (lambda x: F.softmax(x.t(), dim=5), "range"),
        (lambda x: torch.randn_like(x > 0), ""),
        (torch.nn.GRUCell(32, 64), "input"),
        (lambda x: torch.nn.GRUCell(4, 4)(x, torch.zeros(3, 4)), ""),
    ],
)
def test_what_torch_refuses_is_refused(call: Callable[[Tensor], Tensor], words: str) -> None:
    class Refused(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return call(super().forward(x))

    with pytest.raises(Exception, match=words):
        Refused(4, 4)(torch.zeros(8, 4))
    with pytest.raises(TargetError, match=words):
        tclint.trace(lambda: Refused(4, 4), inputs=(torch.zeros(8, 4),))


@pytest.mark.parametrize("number", [2, True])
def test_integers_keep_their_dtype_with_integers_alone(number: Any) -> None:
    tensor = torch.ones(3, dtype=torch.int32)
    made = POINTWISE_RULES["mul"](tensor, number)
    assert made is None or made == _of(tensor * number)
    assert POINTWISE_RULES["mul"](tensor, tensor) == _of(tensor * tensor)
