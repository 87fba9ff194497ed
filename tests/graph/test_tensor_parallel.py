"""What one of several GPUs runs of a model whose layers are split, against Megatron's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from versions import since_2_5

import tclint
from tclint.graph.dims.tensor_parallel import TensorSplit, split_over
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph

WIDTH, HEADS, INNER, WORDS, LENGTH, BATCH = 256, 8, 512, 2000, 64, 2
HEAD = WIDTH // HEADS


class Attention(nn.Module):
    """Fused or written out, with as many heads of keys as wanted."""

    def __init__(self, keys: int = HEADS, *, fused: bool = True, repeated: bool = False) -> None:
        super().__init__()
        self.keys, self.fused, self.repeated = keys, fused, repeated
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, keys * HEAD), nn.Linear(WIDTH, keys * HEAD)
        self.out = nn.Linear(WIDTH, WIDTH)

    def repeat(self, x: Tensor) -> Tensor:
        batch, keys, length, head = x.shape
        more = x[:, :, None].expand(batch, keys, HEADS // keys, length, head)
        return more.reshape(batch, HEADS, length, head)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, HEAD).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        if self.repeated:
            k, v = self.repeat(k), self.repeat(v)
        if self.fused:
            grouped = {"enable_gqa": True} if k.shape[1] < HEADS else {}  # an argument since torch 2.5
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
        else:
            mixed = (q @ k.transpose(-2, -1) / HEAD**0.5).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class MLP(nn.Module):
    def __init__(self, *, gated: bool = False) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER * (2 if gated else 1)), nn.Linear(INNER, WIDTH)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.down(F.gelu(self.up(x)))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


Makes = Callable[[], nn.Module]


class Block(nn.Module):
    def __init__(self, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class LM(nn.Module):
    """Two blocks between a table and a head, tied or not."""

    def __init__(self, attention: Makes = Attention, mlp: Makes = MLP, *, tied: bool = True) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(attention(), mlp()) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits if labels is None else F.cross_entropy(logits.view(-1, WORDS), labels.view(-1))


def traced(model: nn.Module) -> Graph:
    return tclint.trace(model, inputs=torch.zeros(BATCH, LENGTH, dtype=torch.long))


def held(graph: Graph) -> int:
    return sum(parameter.numel for parameter in graph.parameters)


def whole_products(graph: Graph, split: TensorSplit) -> list[str]:
    return [op.module_path for op in graph.products if op.index not in split.products]


def layer(made: int, read: int, parts: int, *, columns: bool) -> int:
    """A linear layer's weight and bias on one GPU: the bias of summed results is whole."""
    return made * read // parts + (made // parts if columns else made)


def block(parts: int, keys: int = HEADS) -> int:
    """The parameters of a block on one GPU; as many of its heads of keys as there are, at least one."""
    kept = max(keys // parts, 1) * HEAD
    attention = layer(WIDTH, WIDTH, parts, columns=True) + 2 * (kept * WIDTH + kept)
    attention += layer(WIDTH, WIDTH, parts, columns=False)
    mlp = layer(INNER, WIDTH, parts, columns=True) + layer(WIDTH, INNER, parts, columns=False)
    return attention + mlp + 4 * WIDTH


OUTSIDE = LENGTH * WIDTH + 2 * WIDTH
"""Positions and the last norm, whole on each GPU."""


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_gpu_has_its_part_of_every_layer(parts: int, tied: bool) -> None:
    graph = traced(LM(tied=tied))
    split = split_over(graph, parts)
    tables = (1 if tied else 2) * WORDS * WIDTH // parts
    assert held(split.graph) == tables + OUTSIDE + 2 * block(parts)
    assert whole_products(graph, split) == []
    assert forward_flops(split.graph) * parts == forward_flops(graph)


@pytest.mark.parametrize(
    ("fused", "repeated"),
    [pytest.param(True, False, marks=since_2_5), (True, True), (False, True)],
    ids=["grouped", "repeated", "written out"],
)
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_gpus_share_heads_of_keys_where_there_are_fewer(parts: int, fused: bool, repeated: bool) -> None:
    graph = traced(LM(lambda: Attention(2, fused=fused, repeated=repeated)))
    split = split_over(graph, parts)
    assert held(split.graph) == WORDS * WIDTH // parts + OUTSIDE + 2 * block(parts, keys=2)
    assert whole_products(graph, split) == []


@since_2_5
def test_one_head_of_keys_is_whole_and_its_queries_are_split() -> None:
    split = split_over(traced(LM(lambda: Attention(1))), 4)
    shapes = {parameter.name: parameter.shape for parameter in split.graph.parameters}
    assert shapes["blocks.0.attention.q.weight"] == (WIDTH // 4, WIDTH)
    assert shapes["blocks.0.attention.k.weight"] == (HEAD, WIDTH)
    assert shapes["blocks.0.attention.out.weight"] == (WIDTH, WIDTH // 4)


def test_halves_of_one_gated_projection_are_split_alike() -> None:
    graph = traced(LM(mlp=lambda: MLP(gated=True)))
    split = split_over(graph, 4)
    shapes = {parameter.name: parameter.shape for parameter in split.graph.parameters}
    assert shapes["blocks.0.mlp.up.weight"] == (2 * INNER // 4, WIDTH)
    assert whole_products(graph, split) == []


def test_results_are_summed_twice_in_a_block_and_their_gradients_too() -> None:
    split = split_over(traced(LM()), 4)
    # Beside two blocks: the rows of the table, and the gradient of what the head reads.
    assert len(split.summed) == 2 * 2 + 1
    assert len(split.read) == 2 * 2 + 1


def test_parts_that_are_not_equal_are_the_largest() -> None:
    split = split_over(traced(LM()), 3)
    shapes = {parameter.name: parameter.shape for parameter in split.graph.parameters}
    assert shapes["tokens.weight"] == (667, WIDTH)
    assert split.uneven == (HEADS, INNER, WORDS)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(MLP() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class NormedQueries(Attention):
    """Norms over all heads at once need them all."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q = nn.Sequential(self.q, self.norm)


@pytest.mark.parametrize(
    ("model", "whole"),
    [
        (LM(mlp=Experts), ["mlp.router"]),
        (
            LM(NormedQueries),
            ["attention.q.0", "attention.k", "attention.v", "attention", "attention.out"],
        ),
    ],
    ids=["router", "norm over heads"],
)
def test_what_needs_all_of_a_dim_is_whole(model: nn.Module, whole: list[str]) -> None:
    graph = traced(model)
    found = whole_products(graph, split_over(graph, 4))
    assert found == [f"blocks.{number}.{name}" for number in range(2) for name in whole]


def test_a_table_as_long_as_the_model_is_wide_is_no_vocabulary() -> None:
    class Wide(LM):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Embedding(1024, 1024)
            self.tokens = nn.Embedding(5000, 1024)
            self.blocks = nn.ModuleList()
            self.mix = nn.Linear(1024, 1024)
            self.norm = nn.LayerNorm(1024)
            self.head = nn.Linear(1024, 5000, bias=False)

        def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            return self.head(self.norm(x + self.mix(x)))

    split = split_over(traced(Wide()), 4)
    shapes = {parameter.name: parameter.shape for parameter in split.graph.parameters}
    assert shapes["positions.weight"] == (1024, 1024)
    assert shapes["head.weight"] == (1250, 1024)


def test_convolutions_are_whole() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.Flatten(),
        nn.Linear(50176, 10),
    )
    graph = tclint.trace(model, inputs=torch.zeros(2, 3, 32, 32))
    split = split_over(graph, 2)
    assert split.graph is graph or held(split.graph) == held(graph)
    assert not split.products


def test_one_gpu_has_all() -> None:
    graph = traced(LM())
    assert split_over(graph, 1).graph is graph
