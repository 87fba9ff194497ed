"""A model with operators that have no formula: each op is priced, free, or a gap that says what it weighs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tclint
from tclint.cost.estimate import estimate
from tclint.cost.gaps import with_flops
from tclint.cost.scenario import Scenario
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph
from tclint.graph.ops.op_tables import operators


class Exotic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        spectrum = torch.fft.irfft2(torch.fft.rfft2(x.view(-1, 8, 8))).reshape(x.shape)
        gram = x.T @ x
        values = torch.linalg.eigh(gram)[0] + torch.linalg.svdvals(gram)
        solved = torch.linalg.solve(gram, x.T).T + torch.linalg.cholesky(gram).sum()
        return self.last(spectrum + solved + values) + torch.special.bessel_j0(x)


@pytest.fixture(scope="module")
def graph() -> Any:
    return tclint.trace(Exotic, torch.empty(256, 64))


def silent(graph: Graph, mode: Any) -> Iterator[str]:
    """Ops without kernel or gap, but for those that move nothing."""
    found = estimate(graph, Scenario("a100", "fp16", mode))
    told = {index for gap in found.gaps for index in gap.op_indices} | graph.composites
    for op in graph.ops:
        free = op.kind == "view" or op.name in operators("memory", "free")
        if not free and op.index not in told and not found.rows_of(op.index):
            yield op.name


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_no_operator_is_left_out_in_silence(graph: Graph, mode: str) -> None:
    assert not list(silent(graph, mode))


def test_gaps_have_shares_that_add_up_or_say_that_they_are_unknown(graph: Graph) -> None:
    found = estimate(graph, Scenario("a100", "fp16", "infer"))
    gaps = {gap.name: gap for gap in with_flops(found.gaps, graph)}
    assert set(gaps) == {
        "linalg_eigh", "linalg_svdvals", "linalg_solve", "linalg_cholesky",
        "special_bessel_j0",
    }  # fmt: skip
    assert gaps["special_bessel_j0"].flops is None
    # A third of n^3, and 9 n^3, for n = 64.
    assert gaps["linalg_cholesky"].flops == round(64**3 / 3)
    assert gaps["linalg_eigh"].flops == 9 * 64**3
    known = [gap.flops_percent for gap in gaps.values() if gap.flops_percent is not None]
    flops = forward_flops(graph)
    products = 100 * flops / (flops + sum(gap.flops or 0 for gap in gaps.values()))
    assert sum(known) + products == pytest.approx(100)
