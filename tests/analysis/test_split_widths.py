"""Findings on widths of layers that are split over GPUs: sizes are the model's, prices those of one GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tclint
from tclint.core.finding import Finding
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.ops import Graph

PARTS = 4


def traced(inner: int) -> Graph:
    layers = nn.LayerNorm(1024), nn.Linear(1024, inner), nn.GELU(), nn.Linear(inner, 1024)
    return tclint.trace(nn.Sequential(*layers), inputs=torch.zeros(8192, 1024))


def priced(graph: Graph) -> float:
    return estimate(graph, Scenario("h100", "bf16", tensor_parallel=PARTS)).step_time_us


@pytest.mark.parametrize(
    ("inner", "code"),
    [(4100, "DIM001"), (4104, "DIM015")],
    ids=["misaligned as a whole", "misaligned in parts"],
)
def test_a_width_is_padded_so_that_its_parts_are_aligned(inner: int, code: str) -> None:
    graph = traced(inner)
    report = tclint.check(graph, gpu="h100", precision="bf16", tensor_parallel=PARTS)
    found: dict[str, Finding] = {finding.code: finding for finding in report.findings}
    ((present, padded),) = found[code].evidence["padding"]
    assert present == inner
    assert padded % (8 * PARTS) == 0
    gain_us = found[code].effect.per_gpu["h100-sxm5-80gb"].gain_us
    assert gain_us == pytest.approx(priced(graph) - priced(traced(padded)))
    again = tclint.check(traced(padded), gpu="h100", precision="bf16", tensor_parallel=PARTS)
    assert not {"DIM001", "DIM015"} & {finding.code for finding in again.findings}
