"""Nets of common kinds with random sizes, odd ones among them, and random circumstances of their step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def width(random: Random, least: int, most: int) -> int:
    """Half of them multiples of 8."""
    size = random.randint(least, most)
    return size if random.random() < 0.5 else max(size // 8 * 8, 8)


class Attention(nn.Module):
    """Attention in one of the ways in which it is written."""

    def __init__(self, size: int, heads: int, *, joined: bool, fused: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.joined, self.fused, self.causal = heads, joined, fused, causal
        if joined:
            self.qkv = nn.Linear(size, 3 * size)
        else:
            self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = self.qkv(x).chunk(3, -1) if self.joined else (self.query(x), self.key(x), self.value(x))
        query, key, value = (
            part.view(batch, length, self.heads, size // self.heads).transpose(1, 2) for part in parts
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        else:
            scores = query @ key.transpose(-2, -1) * (size // self.heads) ** -0.5
            if self.causal:
                hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(hidden, float("-inf"))
            mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, size))


class Block(nn.Module):
    """A transformer's block; its feed-forward part plain or gated."""

    def __init__(self, size: int, heads: int, hidden: int, *, gated: bool, **attention: Any) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = Attention(size, heads, **attention)
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.gate = nn.Linear(size, hidden) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        y = self.norm_2(x)
        y = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(y)


class LanguageModel(nn.Module):
    def __init__(
        self, vocabulary: int, size: int, depth: int, heads: int, hidden: int, tied: bool, **block: Any
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.blocks = nn.ModuleList([Block(size, heads, hidden, **block) for _ in range(depth)])
        self.head = nn.Linear(size, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


def language_model(random: Random) -> tuple[nn.Module, Any]:
    heads = random.choice((1, 2, 3, 4, 6, 7, 8, 10, 12, 16))
    size = heads * random.choice((8, 16, 24, 32, 40, 50, 60, 64, 72, 77, 80, 96, 100, 120, 128, 160))
    vocabulary = width(random, 1000, 60_000)
    net = LanguageModel(
        vocabulary,
        size,
        random.randint(1, 4),
        heads,
        width(random, size, 5 * size),
        random.random() < 0.5,
        gated=random.random() < 0.5,
        joined=random.random() < 0.5,
        fused=random.random() < 0.5,
        causal=random.random() < 0.5,
    )
    length = random.choice((64, 100, 128, 197, 256, 509, 512, 1024))
    return net, torch.zeros(random.choice((1, 3, 8, 16, 33)), length, dtype=torch.long, device="meta")


class Classifier(nn.Module):
    """Patches of images, a transformer over them, and a class."""

    def __init__(self, size: int, heads: int, depth: int, patch: int, classes: int, **block: Any) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, size, patch, patch)
        self.blocks = nn.Sequential(*[Block(size, heads, 4 * size, **block) for _ in range(depth)])
        self.head = nn.Linear(size, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(images).flatten(2).transpose(1, 2)).mean(1))  # type: ignore[no-any-return]


def vision_transformer(random: Random) -> tuple[nn.Module, Any]:
    heads = random.choice((3, 4, 6, 7, 10, 12))
    net = Classifier(
        heads * random.choice((16, 32, 50, 64, 80)),
        heads,
        random.randint(1, 3),
        random.choice((8, 14, 16)),
        random.choice((10, 100, 1000, 1001)),
        gated=False,
        joined=random.random() < 0.5,
        fused=random.random() < 0.5,
        causal=False,
    )
    return net, torch.zeros(random.choice((1, 16, 64, 100)), 3, 224, 224, device="meta")


def perceptron(random: Random) -> tuple[nn.Module, Any]:
    sizes = [width(random, 8, 4200) for _ in range(random.randint(2, 6))]
    layers: list[nn.Module] = []
    normed = random.random() < 0.5
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if normed else []), nn.ReLU()]
    layers.append(nn.Linear(sizes[-1], random.choice((1, 2, 10, 1000, 1001, 5000))))
    batch = random.choice((2 if normed else 1, 16, 100, 1000, 8192))
    return nn.Sequential(*layers), torch.zeros(batch, sizes[0], device="meta")


class Residual(nn.Module):
    def __init__(self, size: int, groups: int, activation: nn.Module, *, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(size, size, 3, padding=1, groups=groups, bias=bias)
        self.norm = nn.BatchNorm2d(size)
        self.second = nn.Conv2d(size, size, 1, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x + self.second(self.activation(self.norm(self.first(x)))))  # type: ignore[no-any-return]


def convolutional(random: Random) -> tuple[nn.Module, Any]:
    groups = random.choice((1, 1, 1, 2, 4, 8, 16, 32))
    activation = random.choice((nn.ReLU(), nn.SiLU(), nn.LeakyReLU(), nn.Hardswish()))
    size = groups * random.choice((4, 8, 12, 16, 24, 32, 56, 64, 100, 125))
    groups = size if random.random() < 0.15 else groups
    layers: list[nn.Module] = [nn.Conv2d(3, size, random.choice((3, 7)), random.choice((2, 4)), 3)]
    bias = random.random() < 0.5
    for _ in range(random.randint(1, 4)):
        layers.append(Residual(size, groups, activation, bias=bias))
        if random.random() < 0.5:
            after = width(random, size, 2 * size)
            layers += [
                nn.Conv2d(size, after, 3, 2, 1, bias=bias),
                random.choice((nn.BatchNorm2d(after), nn.ReLU())),
            ]
            size, groups = after, 1
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size, random.choice((10, 1000, 1001)))]
    images = torch.zeros(
        random.choice((1, 8, 32, 33, 128)), 3, *[random.choice((64, 112, 224))] * 2, device="meta"
    )
    net = nn.Sequential(*layers)
    if random.random() < 0.4:
        net, images = net.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return net, images


class Recurrent(nn.Module):
    def __init__(
        self, kind: type[nn.RNNBase], inputs: int, hidden: int, layers: int, classes: int, both: bool
    ) -> None:
        super().__init__()
        self.rnn = kind(inputs, hidden, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(hidden * (1 + both), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])  # type: ignore[no-any-return]


class Cells(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs, hidden)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state)  # type: ignore[no-any-return]


def recurrent(random: Random) -> tuple[nn.Module, Any]:
    inputs, hidden = width(random, 8, 700), width(random, 16, 1100)
    length, batch = random.choice((8, 50, 100)), random.choice((1, 16, 64, 250))
    net: nn.Module
    if random.random() < 0.3:
        net, length = Cells(inputs, hidden), 8
    else:
        kind = random.choice((nn.LSTM, nn.GRU))
        net = Recurrent(
            kind, inputs, hidden, random.randint(1, 3), width(random, 2, 3000), random.random() < 0.5
        )
    return net, torch.zeros(batch, length, inputs, device="meta")


class Experts(nn.Module):
    def __init__(self, size: int, hidden: int, count: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(count, size, hidden, device="meta"))
        self.down = nn.Parameter(torch.empty(count, hidden, size, device="meta"))
        self.head = nn.Linear(size, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.bmm(F.gelu(torch.bmm(x, self.up)), self.down))  # type: ignore[no-any-return]


def experts(random: Random) -> tuple[nn.Module, Any]:
    size, hidden, count = width(random, 64, 1100), width(random, 64, 2100), random.choice((4, 8, 16))
    capacity = random.choice((7, 40, 64, 100, 128, 300))
    return Experts(size, hidden, count), torch.zeros(count, capacity, size, device="meta")


class Concatenated(nn.Module):
    """Features of a table and looked-up ones side by side."""

    def __init__(self, features: int, tables: int, size: int, hidden: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(10_000, size) for _ in range(tables)])
        self.first, self.last = nn.Linear(features + tables * size, hidden), nn.Linear(hidden, 1)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        looked_up = [table(categories[:, place]) for place, table in enumerate(self.tables)]
        return self.last(F.relu(self.first(torch.cat([numbers, *looked_up], -1))))  # type: ignore[no-any-return]


def tabular(random: Random) -> tuple[nn.Module, Any]:
    features, tables = random.randint(1, 300), random.randint(1, 8)
    batch = random.choice((256, 4096, 65_536))
    net = Concatenated(features, tables, width(random, 8, 130), width(random, 64, 2100))
    categories = torch.zeros(batch, tables, dtype=torch.long, device="meta")
    return net, (torch.zeros(batch, features, device="meta"), categories)


KINDS: tuple[Callable[[Random], tuple[nn.Module, Any]], ...] = (
    language_model,
    vision_transformer,
    perceptron,
    convolutional,
    recurrent,
    experts,
    tabular,
)


def random_step(seed: int) -> tuple[str, Callable[[], nn.Module], Any, dict[str, Any]]:
    """A net by its number: its name, what builds it, its inputs, and settings of its step."""
    random = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    with torch.device("meta"):
        net, inputs = kind(random)
    settings = {
        "gpus": random.choice((("a100",), ("v100",), ("a100", "v100"), ("h100",), ("rtx-4090", "t4"))),
        "mode": random.choice(("train", "train", "infer")),
        "precision": random.choice(("fp16", "fp16", "bf16", "tf32", "pure-fp16", "tf32-cudnn")),
        "compiled": random.random() < 0.15,
    }
    return f"{kind.__name__} {seed}", lambda: net, inputs, settings
