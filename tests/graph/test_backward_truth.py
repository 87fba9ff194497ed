"""The derived backward pass against the one that autograd really runs, product by product."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from versions import VERSION, since_2_5

import tclint
from tclint.cost.memory.saved_tensors import saved_tensors
from tclint.cost.memory.step_memory import step_memory
from tclint.graph.ops import Graph


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("backward_", "trace_truth", "truth_", "zoo_")):
            del sys.modules[name]


class Lambda(nn.Module):
    """Submodules and a function of them."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


class Round(torch.autograd.Function):
    """A straight-through estimator: its own derivative is zero, its backward hands the gradient on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Masked(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.data *= torch.ones(self.weight.shape, device=self.weight.device).tril()
        return super().forward(x)


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first, second in pairwise(widths):
        layers += [nn.Linear(first, second), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def _attention(*leading: int, kv_heads: int = 3) -> Callable[[], nn.Module]:
    """Heads after the given dims; five dims in all, or other numbers of heads, are not fused."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).view(*leading, 10, -1, 8).transpose(-2, -3) for layer in (m.query, m.key, m.value)
        )
        return F.scaled_dot_product_attention(q, k, v)

    return lambda: Lambda(
        forward,
        query=nn.Linear(24, 24),
        key=nn.Linear(24, 8 * kv_heads),
        value=nn.Linear(24, 8 * kv_heads),
    )


def _with_bias_that_learns(m: Any, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).view(2, 10, 3, 3, 8).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=m.bias.weight.view(1, 1, 10, 10).expand(2, 3, 10, 10)
    )


def _messages(m: Any, x: Tensor) -> Tensor:
    sent = m.send(x)[torch.tensor([0, 1, 1, 3], device=x.device)]
    return m.out(torch.zeros_like(x).index_add(0, torch.tensor([1, 2, 2, 0], device=x.device), sent))


def _checkpointed(reentrant: bool) -> Callable[[], nn.Module]:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.first(x)
        for block in m.blocks:
            x = x + checkpoint(block, x, use_reentrant=reentrant)
        return m.last(x)

    return lambda: Lambda(
        forward,
        first=nn.Linear(12, 16),
        blocks=nn.ModuleList(nn.Sequential(nn.LayerNorm(16), *_mlp(16, 64, 16)) for _ in range(3)),
        last=nn.Linear(16, 4),
    )


def _frozen(*names: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = _mlp(12, 20, 28, 4)
        for name in names:
            model.get_submodule(name).requires_grad_(False)
        return model

    return build


def _tied() -> nn.Module:
    model = Lambda(lambda m, x: m.out(F.relu(m.hidden(m.embed(x)))), embed=nn.Embedding(30, 12))
    model.hidden, model.out = nn.Linear(12, 12), nn.Linear(12, 30, bias=False)
    model.out.weight = model.embed.weight
    return model


def _cell(kind: type[nn.RNNCellBase]) -> Callable[[], nn.Module]:
    def forward(m: Any, x: Tensor) -> Tensor:
        state = m.start(x)
        for _ in range(3):
            if isinstance(m.cell, nn.LSTMCell):
                state, _memory = m.cell(x, (state, m.start(x)))
            else:
                state = m.cell(x, state)
        return m.last(state)

    return lambda: Lambda(forward, start=nn.Linear(12, 16), cell=kind(12, 16), last=nn.Linear(16, 4))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "nothing frozen": (_frozen(), lambda: torch.zeros(6, 12)),
    "first layer frozen": (_frozen("0"), lambda: torch.zeros(6, 12)),
    "middle layer frozen": (_frozen("2"), lambda: torch.zeros(6, 12)),
    "all but the last frozen": (_frozen("0", "2"), lambda: torch.zeros(6, 12)),
    "tied weights": (_tied, lambda: torch.zeros(2, 5, dtype=torch.long)),
    "one feature in, one out": (lambda: _mlp(1, 5, 1), lambda: torch.zeros(7, 1)),
    "a column of weights": (
        lambda: Lambda(lambda m, x: x @ m.a.weight.t() @ m.b.weight, a=nn.Linear(12, 20), b=nn.Linear(1, 20)),
        lambda: torch.zeros(2, 6, 12),
    ),
    "fused attention": (_attention(2), lambda: torch.zeros(2, 10, 24)),
    "attention in five dims": (_attention(2, 4), lambda: torch.zeros(2, 4, 10, 24)),
    "one head of keys for three": (_attention(2, kv_heads=1), lambda: torch.zeros(2, 10, 24)),
    "attention with a bias that learns": (
        lambda: Lambda(_with_bias_that_learns, qkv=nn.Linear(24, 72), bias=nn.Embedding(10, 10)),
        lambda: torch.zeros(2, 10, 24),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=4, dilation=2),
            nn.ConvTranspose2d(8, 6, 4, stride=2),
        ),
        lambda: torch.zeros(2, 4, 17, 15),
    ),
    "powers": (
        lambda: Lambda(
            lambda m, x: 2.0 ** m.a(x).pow(3).mean(-1, keepdim=True) * m.a(x), a=nn.Linear(12, 20)
        ),
        lambda: torch.zeros(6, 12),
    ),
    "scattered messages": (
        lambda: Lambda(_messages, send=nn.Linear(12, 12), out=nn.Linear(12, 4)),
        lambda: torch.zeros(4, 12),
    ),
    "straight-through estimator": (
        lambda: Lambda(lambda m, x: m.b(Round.apply(m.a(x))), a=nn.Linear(12, 20), b=nn.Linear(20, 4)),
        lambda: torch.zeros(6, 12),
    ),
    "weight masked in place": (
        lambda: nn.Sequential(Masked(12, 12), Masked(12, 8)),
        lambda: torch.zeros(6, 12),
    ),
    "LSTM cell": (_cell(nn.LSTMCell), lambda: torch.zeros(6, 12)),
    "GRU cell": (_cell(nn.GRUCell), lambda: torch.zeros(6, 12)),
    "RNN cell": (_cell(nn.RNNCell), lambda: torch.zeros(6, 12)),
    "checkpointed": (_checkpointed(False), lambda: torch.zeros(6, 12)),
    "checkpointed, reentrant": (_checkpointed(True), lambda: torch.zeros(6, 12)),
}


def real_and_traced(case: str) -> tuple[Any, Graph]:
    from backward_recorder import run_backward

    build, make_input = CASES[case]
    with torch.device("meta"):
        real = run_backward(build(), (make_input(),), {})
    return real, tclint.trace(build, make_input())


# From 2.14 on, torch gives grouped heads on meta the kernel that CPUs have for them, and GPUs have not.
TRUE = [case for case in CASES if case != "one head of keys for three" or VERSION < (2, 14)]


# The truth is taken from meta tensors, on which torch 2.4 runs neither fused attention nor checkpoints.
MARKED = [
    pytest.param(
        case, marks=since_2_5 if "attention" in case or "keys" in case or "checkpoint" in case else ()
    )
    for case in TRUE
]


@pytest.mark.parametrize("case", MARKED)
def test_the_same_products_run_backward(case: str) -> None:
    from backward_truth import traced_products

    real, graph = real_and_traced(case)
    derived, _, flops = traced_products(graph)
    assert real.products
    assert derived == real.products
    assert flops == real.flops


@pytest.mark.parametrize(
    "case", [case for case in MARKED if case.values != ("attention with a bias that learns",)]
)
def test_autograd_keeps_as_many_bytes(case: str) -> None:
    real, graph = real_and_traced(case)
    assert saved_tensors(graph).bytes == real.saved_bytes


@since_2_5
def test_a_checkpointed_block_is_in_memory_while_it_runs_again() -> None:
    """Norm statistics, the norm's result and the wide activations of one block, beside what is kept."""
    _, graph = real_and_traced("checkpointed")
    saved = saved_tensors(graph)
    block = 4 * (2 * 6 + 6 * 16 + 6 * 64 + 6 * 64)
    last = max(op.index for op in graph.ops if op.checkpoint is not None)
    before = saved.storages(frozenset(range(last + 1)))
    # What later ops kept is gone when the last region runs again.
    assert saved.recomputed_bytes == sum(before.values()) + block - saved.bytes
    kept = saved.bytes - 4 * 6 * 12  # the model's input is counted apart
    assert step_memory(graph, "train").activations_bytes == kept + saved.recomputed_bytes


@since_2_5
def test_checkpoints_survive_the_json_document() -> None:
    _, graph = real_and_traced("checkpointed, reentrant")
    assert Graph.from_json(graph.to_json()) == graph
    assert any(op.checkpoint and op.checkpoint.is_reentrant for op in graph.ops)


def _row(differences: str, **values: Any) -> dict[str, str]:
    row = {
        "name": "a",
        "library": "custom",
        "variant": "",
        "result": "compared",
        "assumptions": 0,
        "traced": 4,
        "real": 4,
        "identical": 3 if differences else 4,
        "identical_layouts": 3 if differences else 4,
        "saved_bytes": 1000,
        "saved_estimate_bytes": 1000,
        "unknown_savers": "",
        "differences": differences,
    }
    return {key: str(value) for key, value in {**row, **values}.items()}


def test_steps_of_a_recurrent_layer_must_add_up_to_the_whole() -> None:
    """Three steps of a batch of 5 against one product over 15 rows; two steps are not the same work."""
    from backward_table import STEPS, reason_of

    derived = "1 x only derived: gemm 1 64 16 15 (wgrad of lstm)"
    assert reason_of(_row(f"{derived}; 3 x only real: gemm 1 64 16 5 (AddmmBackward0)")) == STEPS
    assert reason_of(_row(f"{derived}; 2 x only real: gemm 1 64 16 5 (AddmmBackward0)")) != STEPS


def test_the_page_counts_products_and_kept_bytes() -> None:
    from backward_table import summarize

    difference = "1 x only real: gemm 1 2 3 4 (MmBackward0)"
    page = "\n".join(summarize([_row(""), _row(difference, saved_estimate_bytes=1200)]))
    assert "| custom | 2 | 8 | 87.50 % | 87.50 % | 87.50 % | 1 | +10.00 % | 1 |" in page
    assert f"`a`: {difference}" in page
    assert "`a`: +20.0 %" in page
