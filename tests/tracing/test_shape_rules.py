"""Shape rules answer for PyTorch's operators alone, and refuse what those refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tclint
from tclint.core.errors import TargetError


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
    library.define("_sparse_mm(Tensor x, Tensor y) -> Tensor")
    library.impl("_sparse_mm", lambda x, y: x.new_empty((5,)), "CompositeExplicitAutograd")

    class Own(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = torch.ops.tclint_tests._sparse_mm(super().forward(x), self.weight)
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
