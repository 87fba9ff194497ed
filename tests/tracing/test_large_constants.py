"""Large constants computed in parts are those computed at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from tclint.tracing.kernels.large_constants import in_parts
from tclint.tracing.values.operators import required_facts

_ATEN = torch.ops.aten
_CALLS: list[tuple[Any, str, Callable[[Tensor, Tensor], tuple[Any, ...]]]] = [
    (_ATEN.sub.Tensor, lambda left, right: (left, right)),
    (_ATEN.mul.Tensor, lambda left, right: (left, 3)),
    (_ATEN.ne.Scalar, lambda left, right: (left - right, 0)),
    (
        _ATEN.masked_fill.Scalar,
        lambda left, right: (left - right, left == right, -7),
    ),
    (_ATEN.where.self, lambda left, right: (left > right, left - right, right - left)),
]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are computed at once")
@given(
    st.sampled_from(_CALLS),
    st.sampled_from([(1, 300, 300), (64, 49, 49), (3, 5, 7000), (70_000,), (2, 1, 90_000), (200_000, 1)]),
    st.sampled_from([torch.float32, torch.int64]),
)
@settings(max_examples=40, deadline=None)
def test_values(
    call: tuple[Any, str, Callable[[Tensor, Tensor], tuple[Any, ...]]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> None:
    function, arguments = call
    left = (torch.arange(shape[0]) // 5).to(dtype).reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    right = (torch.arange(shape[-1]) % 3).to(dtype)
    given_arguments = arguments(left, right)
    made, real = in_parts(function, required_facts(function), given_arguments, {}), function(*given_arguments)
    if made is None:
        assert real.nbytes < 1 << 18 or not real.is_contiguous()
    else:
        assert torch.equal(made, real)
        assert (made.dtype, made.stride()) == (real.dtype, real.stride())


def test_minus_zero_stays() -> None:
    zeros = torch.zeros(100_000)
    made = in_parts(_ATEN.mul.Tensor, required_facts(_ATEN.mul.Tensor), (zeros, -1), {})
    assert made is None or bool(made.signbit().all())


@pytest.mark.parametrize(
    ("operator", "arguments", "keywords"),
    [
        (_ATEN.exp.default, (torch.zeros(100_000),), {}),
        (_ATEN.add.Tensor, (torch.zeros(100_000), torch.zeros(100_000)), {"alpha": 2}),
        (_ATEN.sub.Tensor, (torch.zeros(10), torch.zeros(10)), {}),
        (_ATEN.sub.Tensor, (torch.zeros(300, 300).t(), 1), {}),
    ],
)
def test_others_are_computed_at_once(
    operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    def never(*_: Any, **__: Any) -> Tensor:
        raise AssertionError

    assert in_parts(never, required_facts(operator), arguments, keywords) is None


def test_other_libraries_operators_are_computed_at_once() -> None:
    facts = replace(required_facts(_ATEN.sub.Tensor), operator="mylib::sub")
    assert in_parts(_ATEN.sub.Tensor, facts, (torch.zeros(100_000), 1), {}) is None
