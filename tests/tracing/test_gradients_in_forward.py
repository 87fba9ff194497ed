"""Models whose forward asks for gradients: penalties, scores, inner steps; counted as torch counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from versions import since_2_5

import tclint
from tclint.graph.lowering.step import forward_flops, lower


class Model(nn.Module):
    """Layers, and a function of them and of an input that takes a gradient."""

    def __init__(self, layers: dict[str, nn.Module], use: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return self.use(self.layers, x.requires_grad_(True))


def penalty(layers: Any, x: Tensor) -> Tensor:
    y = layers["linear"](x)
    return torch.autograd.grad(y, x, grad_outputs=torch.ones(y.size()), create_graph=True)[0]


def jacobian(layers: Any, x: Tensor) -> Tensor:
    y = torch.tanh(layers["linear"](x))
    rows = []
    for index in range(y.shape[-1]):
        unit = torch.zeros(len(x), y.shape[-1])
        unit[:, index] = 1
        rows.append(torch.autograd.grad(y, x, unit, retain_graph=True)[0])
    return torch.stack(rows, 1)


def several(layers: Any, x: Tensor) -> Tensor:
    outputs = [layers["linear"](x), layers["other"](x)]
    return torch.autograd.grad(outputs, [x], [torch.ones(y.shape) for y in outputs])[0]


def inner_step(layers: Any, x: Tensor) -> Tensor:
    weight = layers["linear"].weight
    loss = functional.linear(x, weight).pow(2).mean()
    (gradient,) = torch.autograd.grad(loss, [weight], torch.tensor(1.0))
    return functional.linear(x, weight - 0.1 * gradient)


def score(layers: Any, x: Tensor) -> Tensor:
    return torch.autograd.grad(torch.sigmoid(layers["conv"](x)).sum(), x)[0]


LINEAR = {"linear": nn.Linear(8, 4), "other": nn.Linear(8, 3)}
CASES: dict[str, tuple[Callable[[Any, Tensor], Tensor], dict[str, nn.Module], tuple[int, ...]]] = {
    "penalty": (penalty, LINEAR, (2, 8)),
    "jacobian": (jacobian, LINEAR, (2, 8)),
    "several outputs": (several, LINEAR, (2, 8)),
    "inner step": (inner_step, LINEAR, (2, 8)),
    "conv1d": (score, {"conv": nn.Conv1d(4, 8, 3, stride=2)}, (2, 4, 21)),
    "conv2d": (score, {"conv": nn.Conv2d(3, 8, 3, padding=1)}, (2, 3, 9, 9)),
    "grouped": (score, {"conv": nn.Conv2d(4, 8, 3, groups=2, dilation=2)}, (2, 4, 9, 9)),
    "transposed": (score, {"conv": nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1)}, (2, 4, 7, 7)),
    "conv3d": (score, {"conv": nn.Conv3d(2, 3, 3)}, (1, 2, 5, 6, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_a_real_run(name: str) -> None:
    use, layers, shape = CASES[name]
    graph = tclint.trace(lambda: Model(layers, use), torch.randn(shape))
    real = torch.randn(shape, requires_grad=True) * 1
    with FlopCounterMode(display=False) as counter:
        output = Model(layers, use)(real)
    assert forward_flops(graph) == counter.get_total_flops()
    assert graph.outputs[0].shape == tuple(output.shape)
    assert not graph.assumptions
    assert not lower(graph, "infer")[1]


@pytest.mark.parametrize(
    "backward", [torch.Tensor.backward, pytest.param(torch.autograd.backward, marks=since_2_5)]
)
def test_a_backward_in_the_forward_may_be_given_ones(backward: Any) -> None:
    def use(layers: Any, x: Tensor) -> Tensor:
        y = layers["linear"](x)
        backward(y, torch.ones(y.shape))
        return y

    graph = tclint.trace(lambda: Model(LINEAR, use), torch.randn(2, 8))
    assert "mm" in {op.name for op in graph.ops}


def test_the_gradient_of_a_gradient_is_a_gap_that_is_said() -> None:
    def use(layers: Any, x: Tensor) -> Tensor:
        return torch.autograd.grad(layers["conv"](x).pow(2).sum(), x, create_graph=True)[0]

    graph = tclint.trace(lambda: Model({"conv": nn.Conv1d(4, 8, 3)}, use), torch.randn(2, 4, 21))
    assert not lower(graph, "infer")[1]
    assert [gap.name for gap in lower(graph, "train")[1]] == ["convolution_backward"]
