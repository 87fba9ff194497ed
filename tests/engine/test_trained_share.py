"""A forward that reaches or trains little of the model says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tclint
from tclint.engine.doubts import untrained


class Net(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.trunk = nn.Linear(64, 64)
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "head alone":
            return self.head(x)
        with torch.set_grad_enabled(self.how != "no_grad"):
            features = self.trunk(x)
        return features if self.how == "without the head" else self.head(features)


@pytest.mark.parametrize(
    ("how", "said", "is_doubtful"),
    [
        ("all", "", None),
        ("head alone", "reaches only 11 % of 4.68 k trainable parameters (not trunk)", True),
        ("without the head", "reaches only 89 % of 4.68 k trainable parameters (not head)", False),
        ("no_grad", "89 % of 4.68 k trainable parameters get no gradient", True),
    ],
)
def test_the_share_that_trains_is_said(how: str, said: str, is_doubtful: bool | None) -> None:
    found = list(untrained(tclint.trace(Net(how), torch.empty(8, 64))))
    assert [one.is_doubtful for one in found] == ([] if is_doubtful is None else [is_doubtful])
    assert all(said in one.what for one in found)


def test_parameters_that_are_frozen_do_not_count() -> None:
    model = Net("head alone")
    model.trunk.requires_grad_(False)
    assert not list(untrained(tclint.trace(model, torch.empty(8, 64))))
