"""What a report says of work that it has no price for, or takes for other work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import Settings


class Solved(nn.Module):
    """So many systems of equations among as many layers."""

    def __init__(self, layers: int, solved: int) -> None:
        super().__init__()
        self.layers, self.solved = nn.ModuleList(nn.Linear(64, 64) for _ in range(layers)), solved

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < self.solved:
                x = torch.special.bessel_j0(x)
        return x


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.exp()


class Custom(Solved):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = Scaled.apply(super().forward(x))
        return scaled


def _said(model: nn.Module, **settings: Any) -> dict[str, bool]:
    """Assumptions, and whether the report opens with them."""
    graph = tclint.trace(model, torch.empty(256, 64))
    (entry,) = tclint.check(graph, settings=Settings(**settings)).entries
    return {assumption.what: assumption.is_doubtful for assumption in entry.assumptions}


@pytest.mark.parametrize(("layers", "solved", "opens"), [(4, 2, True), (9, 3, True), (9, 1, False)])
def test_many_operators_without_a_formula_open_the_report(layers: int, solved: int, opens: bool) -> None:
    said = _said(Solved(layers, solved))
    count = f"{solved} of {layers + solved}"
    what = f"that {count} operators, which have no formula (special_bessel_j0), take no time"
    assert said.get(what, False) is opens


def test_a_backward_that_the_model_writes_is_said_in_training() -> None:
    what = (
        "the backward of custom autograd.Functions (1 of 3 operators) is priced as the derivative of "
        "their forward"
    )
    assert said_of(Custom, what, mode="train")
    assert not said_of(Custom, what, mode="infer")
    assert not said_of(Solved, what, mode="train")


def said_of(kind: type[Solved], what: str, **settings: Any) -> bool:
    return what in _said(kind(2, 0), **settings)
