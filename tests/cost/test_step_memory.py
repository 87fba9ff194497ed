"""Memory of a step, its parts and the largest batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cost_support import GraphBuilder
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

import tclint
from tclint.config.settings import OPTIMIZERS
from tclint.cost.estimate import estimate
from tclint.cost.gpu import load_gpu
from tclint.cost.memory.saved_tensors import backward_peak_bytes
from tclint.cost.memory.step_memory import RESERVED_BYTES, batch_memory, step_memory
from tclint.cost.optimizer import optimizer_kernels, optimizers
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.lowering.work import Traffic


def mlp(width: int = 256, depth: int = 4) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)))


@pytest.fixture(scope="module")
def graph() -> Any:
    return tclint.trace(mlp, torch.empty(32, 256))


PARAMETERS = 4 * (256 * 256 + 256)


def test_weights_gradients_and_adamw_states_take_16_bytes_per_parameter(graph: Any) -> None:
    memory = step_memory(graph, "train")
    assert memory.parameters_bytes == memory.gradients_bytes == 4 * PARAMETERS
    assert memory.optimizer_bytes == 8 * PARAMETERS


def test_autocast_adds_a_half_precision_copy_of_the_weights(graph: Any) -> None:
    memory = tclint.estimate(graph, precision="fp16").memory
    assert memory.autocast_bytes == 2 * PARAMETERS
    assert tclint.estimate(graph, precision="fp32").memory.autocast_bytes == 0


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter"),
    [("adamw", 8), ("adamw-fused", 8), ("adamw-8bit", 2), ("sgd-momentum", 4), ("sgd", 0), ("rmsprop", 4)],
)
def test_states_by_optimizer(graph: Any, optimizer: Any, bytes_per_parameter: int) -> None:
    assert step_memory(graph, "train", optimizer).optimizer_bytes == bytes_per_parameter * PARAMETERS


def test_every_optimizer_that_can_be_asked_for_is_described() -> None:
    assert set(optimizers()) == set(OPTIMIZERS)


def test_a_fused_optimizer_moves_28_bytes_per_parameter_instead_of_80(graph: Any) -> None:
    def moved(optimizer: Any) -> float:
        works = [kernel.work for kernel in optimizer_kernels(graph, "fp32", optimizer)]
        return sum(w.bytes_read + w.bytes_written for w in works if isinstance(w, Traffic)) / PARAMETERS

    assert moved("adamw") == pytest.approx(80)
    assert moved("adamw-fused") == pytest.approx(28)


def test_optimizers_have_the_states_that_torch_makes() -> None:
    def torch_bytes(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> int:
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        tensors = (v for v in optimizer.state[parameter].values() if isinstance(v, torch.Tensor))
        return sum(v.numel() * v.element_size() for v in tensors if v.shape == parameter.shape)

    made = {
        "adamw": lambda p: torch.optim.AdamW([p]),
        "adam": lambda p: torch.optim.Adam([p]),
        "sgd": lambda p: torch.optim.SGD([p], lr=0.1),
        "sgd-momentum": lambda p: torch.optim.SGD([p], lr=0.1, momentum=0.9),
        "rmsprop": lambda p: torch.optim.RMSprop([p]),
        "adagrad": lambda p: torch.optim.Adagrad([p]),
    }
    for name, make in made.items():
        parameter = nn.Parameter(torch.ones(10, 10))
        assert optimizers()[name].state_bytes(100, "float32") == torch_bytes(make(parameter), parameter), name


def test_inference_keeps_only_what_is_alive_at_once(graph: Any) -> None:
    memory = step_memory(graph, "infer")
    # A layer's input and output, or a GELU's.
    assert memory.activations_bytes == 2 * 32 * 256 * 4
    assert memory.gradients_bytes == memory.optimizer_bytes == 0


def test_checkpointing_keeps_the_blocks_inputs_and_one_block(graph: Any) -> None:
    memory = step_memory(graph, "train")
    # Inputs of the three blocks behind the first, whose own input is the model's; within a block, what
    # GELU keeps.
    assert memory.checkpointed_activations_bytes == 3 * 32 * 256 * 4 + 32 * 256 * 4
    assert memory.activations_bytes == (4 + 3) * 32 * 256 * 4


def test_a_model_without_repeated_blocks_has_no_figure_for_checkpointing() -> None:
    memory = step_memory(tclint.trace(lambda: nn.Linear(8, 8), torch.empty(4, 8)), "train")
    assert memory.checkpointed_activations_bytes is None
    assert memory.checkpointed_total_bytes is None


def test_the_largest_batch_is_the_last_that_fits(graph: Any) -> None:
    dims = CoupledDims(graph)
    batches = [group for group in dims.groups if group.is_batch]

    def at(batch: int) -> Any:
        return step_memory(dims.resize(dict.fromkeys(batches, batch)), "train")

    line = batch_memory(32, at(32), at(64), checkpointed=False)
    assert line is not None
    gpu = load_gpu("v100")
    largest = line.largest(gpu)
    capacity = gpu.dram_gib * 2**30 - RESERVED_BYTES
    assert at(largest).total_bytes <= capacity < at(largest + 1).total_bytes


def test_checkpointing_that_saves_nothing_is_not_offered() -> None:
    build = GraphBuilder()
    x = build.input(1024, 8)
    for number in range(2):  # widening layers: what enters each is all that is kept anyway
        weight = build.parameter(f"layers.{number}.weight", 8, 8)
        inputs = {"input": x, "weight": weight}
        x = build.op("linear", "linear", inputs, 1024, 8, module_path=f"layers.{number}")
    memory = estimate(build.graph(x), Scenario("a100", "fp32")).memory
    assert memory.checkpointed_activations_bytes is None
    assert memory.checkpointed_total_bytes is None


def test_what_later_ops_kept_is_gone_when_a_region_runs_again() -> None:
    kept = [(0, ("a",), 10), (3, ("b",), 20), (5, ("b",), 20), (5, ("c",), 100)]
    assert backward_peak_bytes(kept, {}) == (130, 130)
    assert backward_peak_bytes(kept, {2: 50}) == (130, 130)
    assert backward_peak_bytes(kept, {2: 150, 4: 5}) == (130, 160)
    assert backward_peak_bytes(kept, {5: 50}) == (130, 180)


def test_half_of_a_model_checkpointed_keeps_the_other_half() -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, segments: int) -> None:
            super().__init__()
            self.segments = segments
            self.layers = torch.nn.Sequential(*(self._block() for _ in range(4)))

        def _block(self) -> object:
            return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))

        def forward(self, x: object) -> object:
            if self.segments:
                return checkpoint_sequential(self.layers, self.segments, x, use_reentrant=False)
            return self.layers(x)

    x = torch.zeros(128, 64, requires_grad=True)
    whole, half = (
        step_memory(tclint.trace(lambda segments=segments: Model(segments), inputs=x), "train")
        for segments in (0, 2)
    )
    assert 0.5 * whole.activations_bytes <= half.activations_bytes < 0.6 * whole.activations_bytes
    assert whole.checkpointed_activations_bytes is not None
    assert half.checkpointed_activations_bytes is None
