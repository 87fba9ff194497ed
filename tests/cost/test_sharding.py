"""What one GPU holds of a step that is spread over several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import ParallelName
from tclint.cost.estimate import estimate
from tclint.cost.rows import Memory
from tclint.cost.scenario import Scenario
from tclint.graph.ops import Graph

WIDTH, LAYERS, GPUS = 256, 8, 4
LAYER = 4 * WIDTH * WIDTH
ALL = LAYERS * LAYER


@pytest.fixture(scope="module")
def graph() -> Graph:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    return tclint.trace(model, inputs=torch.zeros(32, WIDTH))


def memory(graph: Graph, parallel: ParallelName, **fields: object) -> Memory:
    scenario = Scenario(precision="fp32", parallel=parallel, gpu_count=GPUS, **fields)  # type: ignore[arg-type]
    return estimate(graph, scenario).memory


@pytest.mark.parametrize(
    ("parallel", "parameters", "gradients", "states"),
    [
        ("ddp", ALL, ALL, 2 * ALL),
        ("zero1", ALL, ALL, 2 * ALL // GPUS),
        ("zero2", ALL, ALL // GPUS, 2 * ALL // GPUS),
        # Two layers are whole at once, and the gradients of one.
        ("zero3", ALL // GPUS + 2 * LAYER, ALL // GPUS + LAYER, 2 * ALL // GPUS),
        ("fsdp", ALL // GPUS + 2 * LAYER, ALL // GPUS + LAYER, 2 * ALL // GPUS),
    ],
)
def test_a_gpu_holds_its_part(
    graph: Graph, parallel: ParallelName, parameters: int, gradients: int, states: int
) -> None:
    found = memory(graph, parallel)
    assert (found.parameters_bytes, found.gradients_bytes) == (parameters, gradients)
    assert found.optimizer_bytes == pytest.approx(states, rel=1e-3)
    assert found.activations_bytes == memory(graph, "none").activations_bytes


def test_inference_is_not_spread(graph: Graph) -> None:
    assert memory(graph, "fsdp", mode="infer") == memory(graph, "none", mode="infer")


def test_a_gpu_updates_its_part(graph: Graph) -> None:
    steps = {
        parallel: estimate(graph, Scenario(precision="fp32", parallel=parallel, gpu_count=GPUS))
        for parallel in ("ddp", "zero1")
    }
    times = {
        parallel: sum(
            price.time_us
            for kernel, price in zip(found.kernels, found.prices, strict=True)
            if kernel.role == "optimizer"
        )
        for parallel, found in steps.items()
    }
    assert times["zero1"] == pytest.approx(times["ddp"] / GPUS)
