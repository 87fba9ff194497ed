"""Where GPUs that split layers sum their results: once where several of them meet, as Megatron does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tclint
from tclint.config.settings import Mode
from tclint.cost.communication import Sums, sums
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.dims.tensor_parallel import split_over

WIDTH, INNER, EXPERTS, TOKENS, GPUS = 64, 256, 4, 48, 2
SENT = 2 * (GPUS - 1) / GPUS
ONE = TOKENS * WIDTH * 4
WEIGHTS = TOKENS * EXPERTS * 4


class Experts(nn.Module):
    """What comes before is trained, and a norm needs the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.zeros(EXPERTS, WIDTH, INNER))
        self.down = nn.Parameter(torch.zeros(EXPERTS, INNER, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.after(self.mix(x, self.router(x).softmax(-1)))

    def mix(self, x: Tensor, weights: Tensor) -> Tensor:
        raise NotImplementedError


class InALoop(Experts):
    def __init__(self) -> None:
        super().__init__()
        self.ups = nn.ModuleList(nn.Linear(WIDTH, INNER) for _ in range(EXPERTS))
        self.downs = nn.ModuleList(nn.Linear(INNER, WIDTH, bias=False) for _ in range(EXPERTS))

    def mix(self, x: Tensor, weights: Tensor) -> Tensor:
        made = (down(F.silu(up(x))) for up, down in zip(self.ups, self.downs, strict=True))
        return sum(weights[:, i : i + 1] * one for i, one in enumerate(made))


class AddedByIndex(InALoop):
    """Every expert works on half of the tokens."""

    def mix(self, x: Tensor, weights: Tensor) -> Tensor:
        mixed = torch.zeros_like(x)
        for i, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            tokens = torch.arange(i % 2, TOKENS, 2)
            mixed.index_add_(0, tokens, down(F.silu(up(x[tokens]))) * weights[tokens, i, None])
        return mixed


class InOneProduct(Experts):
    def mix(self, x: Tensor, weights: Tensor) -> Tensor:
        made = torch.bmm(F.silu(torch.bmm(x[None].expand(EXPERTS, -1, -1), self.up)), self.down)
        return (made * weights.t()[:, :, None]).sum(0)


class ByEinsum(Experts):
    def mix(self, x: Tensor, weights: Tensor) -> Tensor:
        inner = F.silu(torch.einsum("td,edf->tef", x, self.up))
        return torch.einsum("te,ted->td", weights, torch.einsum("tef,efd->ted", inner, self.down))


class SideBySide(nn.Module):
    """A block whose two halves read the same norm, after a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ups = nn.ModuleList(nn.Linear(WIDTH, INNER) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(INNER, WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        read = self.norm(x)
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(F.silu(up(read)))
        return self.last(x)


class Squared(SideBySide):
    """Squares of sums are no sums of squares."""

    def forward(self, x: Tensor) -> Tensor:
        read = self.norm(x)
        first, second = (down(F.silu(up(read))) ** 2 for up, down in zip(self.ups, self.downs, strict=True))
        return self.last(first + second)


def summed(model: nn.Module, mode: Mode) -> Sums:
    graph = tclint.trace(model, inputs=torch.zeros(TOKENS, WIDTH))
    priced = estimate(graph, Scenario("h100", "fp32", mode, tensor_parallel=GPUS))
    return sums(split_over(graph, GPUS), priced.ops, GPUS, mode)


@pytest.mark.parametrize("make", [InALoop, AddedByIndex, InOneProduct, ByEinsum])
def test_results_of_experts_are_summed_once(make: Callable[[], nn.Module]) -> None:
    assert summed(make(), "infer") == Sums(1, round(SENT * ONE))


@pytest.mark.parametrize("make", [InALoop, InOneProduct, ByEinsum])
def test_so_are_the_gradients_of_what_experts_read_and_of_their_weights(
    make: Callable[[], nn.Module],
) -> None:
    assert summed(make(), "train") == Sums(3, round(SENT * (2 * ONE + WEIGHTS)))


def test_of_weights_that_are_read_in_part_those_parts_are_summed() -> None:
    assert summed(AddedByIndex(), "train") == Sums(2 + EXPERTS, round(SENT * (2 * ONE + WEIGHTS / 2)))


def test_halves_of_a_block_that_are_added_are_summed_once() -> None:
    assert summed(SideBySide(), "infer") == Sums(1, round(SENT * ONE))


def test_what_is_not_linear_needs_the_sum() -> None:
    assert summed(Squared(), "infer") == Sums(2, round(SENT * 2 * ONE))
