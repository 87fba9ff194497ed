"""What one GPU holds of a step that is spread over several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tclint
from tclint.config.settings import ParallelName
from tclint.core.errors import UsageError
from tclint.cost.communication import sums
from tclint.cost.estimate import estimate
from tclint.cost.rows import Memory
from tclint.cost.scenario import Scenario
from tclint.graph.dims.tensor_parallel import split_over
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


@pytest.fixture(scope="module")
def pairs() -> Graph:
    """Two layers at a time, of which the inner width is split."""
    layers = [
        layer
        for _ in range(2)
        for layer in (
            nn.LayerNorm(WIDTH, elementwise_affine=False),
            nn.Linear(WIDTH, 4 * WIDTH, bias=False),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH, bias=False),
        )
    ]
    return tclint.trace(nn.Sequential(*layers), inputs=torch.zeros(32, WIDTH))


def test_a_step_is_that_of_one_gpu_where_layers_are_split(pairs: Graph) -> None:
    one = estimate(pairs, Scenario("h100", "bf16"))
    part = estimate(pairs, Scenario("h100", "bf16", tensor_parallel=GPUS))
    flops = [sum(row.flops for row in found.rows if row.kind == "linear") for found in (one, part)]
    assert flops[0] == GPUS * flops[1]
    assert part.step_time_us < one.step_time_us
    assert part.memory.parameters_bytes * GPUS == one.memory.parameters_bytes
    assert part.memory.optimizer_bytes == pytest.approx(one.memory.optimizer_bytes / GPUS, rel=1e-3)
    # The inner activations are parts, the norms' are whole.
    assert one.memory.activations_bytes / GPUS < part.memory.activations_bytes < one.memory.activations_bytes
    assert any("4 of 4 products are split" in said for said in part.assumptions)


def test_groups_of_gpus_shard_what_is_left(pairs: Graph) -> None:
    parameters = 4 * 4 * WIDTH * WIDTH * 4
    scenario = Scenario(precision="fp32", parallel="zero2", gpu_count=8, tensor_parallel=4)
    memory = estimate(pairs, scenario).memory
    assert memory.parameters_bytes == parameters // 4
    assert memory.gradients_bytes == parameters // 4 // 2
    assert memory.optimizer_bytes == pytest.approx(2 * parameters // 4 // 2, rel=1e-3)


def test_gpus_that_make_no_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="give --gpus a multiple of --tensor-parallel"):
        Scenario(parallel="ddp", gpu_count=8, tensor_parallel=3)
    Scenario(tensor_parallel=3)


@pytest.mark.parametrize(("mode", "tensors"), [("infer", 2), ("train", 3)])
def test_results_and_gradients_are_summed(pairs: Graph, mode: str, tensors: int) -> None:
    """In the backward pass the first block has none: nothing before it is trained."""
    split = split_over(pairs, GPUS)
    ops = estimate(pairs, Scenario("h100", "bf16", mode, tensor_parallel=GPUS)).ops  # type: ignore[arg-type]
    found = sums(split, ops, GPUS, mode)  # type: ignore[arg-type]
    in_16_bits = 32 * WIDTH * 2
    assert (found.count, found.sent_bytes) == (tensors, tensors * 2 * in_16_bits * (GPUS - 1) // GPUS)
