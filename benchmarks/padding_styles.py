"""Models whose widths are written in the ways people write them, for benchmarks/padding.py.

Each style is a function with integer arguments, all with defaults, and the inputs it is called with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Style:
    """One way of writing widths; used like a module with build_model and example_inputs."""

    name: str
    build_model: Callable[..., nn.Module]
    example_inputs: Callable[[], Any]


class Between(nn.Module):
    """Blocks of one width between layers that make it of the data's and back."""

    def __init__(self, outside: int, width: int, *blocks: nn.Module) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(outside, width), nn.Linear(width, outside)
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x)))


@dataclass
class Config:
    heads: int
    head_dim: int
    width: int


class ConfiguredAttention(nn.Module):
    """Heads and their size come from a configuration; their product need not be the width."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.config = config
        self.q, self.k, self.v = (nn.Linear(config.width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        parts = (
            layer(y).unflatten(-1, (self.config.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        return x + self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


def heads_by_config(heads: int = 6, head_dim: int = 20, width: int = 132) -> nn.Module:
    config = Config(heads, head_dim, width)
    return Between(16, width, *[ConfiguredAttention(config) for _ in range(2)])


def widths_from_a_list(first: int = 36, second: int = 68, third: int = 132) -> nn.Module:
    widths = [3, first, second, third]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100))


class InvertedBottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        squeezed = max(1, inputs // 4)
        self.expand = nn.Sequential(nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU())
        self.depthwise = nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, squeezed, 1), nn.SiLU(), nn.Conv2d(squeezed, inner, 1)
        )
        self.project = nn.Conv2d(inner, outputs, 1, bias=False)
        self.adds = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.squeeze(y).sigmoid())
        return x + y if self.adds else y


def width_multiplier(base: int = 20, expansion: int = 6) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, base, 3, 2, 1),
        InvertedBottleneck(base, base, expansion),
        InvertedBottleneck(base, int(base * 1.5), expansion),
    )


class Concatenating(nn.Module):
    """A U-Net's skip connections: the decoder reads what it upsamples and what the encoder made."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 3, padding=1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge = nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x).relu()
        return self.head(self.merge(torch.cat([first, self.up(self.down2(first).relu())], 1)).relu())


class Branches(nn.Module):
    """Inception: branches of different widths side by side, each then read as its own part again."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, first, 1), nn.Conv2d(3, second, 3, padding=1)
        self.mix = nn.Conv2d(first + second, first + second, 1)
        self.sizes = (first, second)
        self.heads = nn.ModuleList([nn.Conv2d(size, 8, 1) for size in self.sizes])

    def forward(self, x: Tensor) -> Tensor:
        y = self.mix(torch.cat([self.first(x), self.second(x)], 1).relu())
        parts = y.split(self.sizes, 1)
        return sum(head(part) for head, part in zip(self.heads, parts, strict=True))


def branches(first: int = 28, second: int = 44) -> nn.Module:
    return Branches(first, second)


def grouped(width: int = 36, groups: int = 4) -> nn.Module:
    inner = width * groups
    return nn.Sequential(
        nn.Conv2d(3, inner, 3, 2, 1),
        nn.BatchNorm2d(inner),
        nn.Conv2d(inner, inner, 3, padding=1, groups=groups),
        nn.GroupNorm(groups, inner),
        nn.ReLU(),
        nn.Conv2d(inner, 8, 1),
    )


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.both, self.out = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.norm = nn.RMSNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.both(self.norm(x)).chunk(2, -1)
        return x + self.out(F.silu(gate) * value)


def gated(width: int = 132, inner: int = 364) -> nn.Module:
    return Between(16, width, *[Gated(width, inner) for _ in range(2)])


class Tied(nn.Module):
    """A factorized embedding (ALBERT): the head multiplies with the embedding's own weight."""

    def __init__(self, vocabulary: int, embedding: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)
        self.widen, self.body = nn.Linear(embedding, width), nn.Linear(width, width)
        self.narrow = nn.Linear(width, embedding)
        self.head = nn.Linear(embedding, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.narrow(self.body(self.widen(self.tokens(tokens))).relu()))


def tied(vocabulary: int = 5003, embedding: int = 100, width: int = 300) -> nn.Module:
    return Tied(vocabulary, embedding, width)


class GroupedQueries(nn.Module):
    """Fewer key and value heads than query heads, and rotary halves."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        width = heads * head_dim
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * head_dim)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        sizes = (self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim)
        q, k, v = (
            part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in self.qkv(x).split(sizes, -1)
        )
        first, second = q.chunk(2, -1)
        q = torch.cat([-second, first], -1)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def grouped_queries(head_dim: int = 36) -> nn.Module:
    if head_dim % 2:
        raise ValueError("rotary positions turn pairs of features")
    return Between(16, 3 * head_dim, GroupedQueries(3, 1, head_dim))


class Einsum(nn.Module):
    """Weights with a dim for the heads, and einsum for everything."""

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(3, width, heads, head_dim))
        self.out = nn.Parameter(torch.empty(heads, head_dim, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = torch.einsum("bsw,iwhd->ibhsd", x, self.qkv)
        weights = torch.einsum("bhsd,bhtd->bhst", q, k).softmax(-1)
        return x + torch.einsum("bhst,bhtd,hdw->bsw", weights, v, self.out)


def einsum(width: int = 132, heads: int = 4, head_dim: int = 36) -> nn.Module:
    return Between(16, width, *[Einsum(width, heads, head_dim) for _ in range(2)])


class Patches(nn.Module):
    """A vision transformer: patches, a class token and positions as parameters."""

    def __init__(self, width: int, depth: int, inner: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token, self.positions = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, 17, width)),
        )
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, inner, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 1001)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def patches(width: int = 100, inner: int = 404) -> nn.Module:
    return Patches(width, 2, inner)


class Mixer(nn.Module):
    def __init__(self, tokens: int, token_inner: int, width: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, token_inner), nn.GELU(), nn.Linear(token_inner, tokens))
        self.channels = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


def mixer(width: int = 132, token_inner: int = 50, inner: int = 260) -> nn.Module:
    return nn.Sequential(nn.Linear(16, width), Mixer(64, token_inner, width, inner), nn.Linear(width, 16))


class Translator(nn.Module):
    """Recurrent encoder and decoder with additive attention; the state's width is written once."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.keys, self.queries = nn.Linear(2 * width, width, bias=False), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1)
        self.head = nn.Linear(3 * width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, _ = self.encoder(self.tokens(source))
        states, _ = self.decoder(self.tokens(target))
        energy = (self.keys(memory)[:, None] + self.queries(states)[:, :, None]).tanh()
        weights = self.score(energy).squeeze(-1).softmax(-1)
        return self.head(torch.cat([states, weights @ memory], -1))


def translator(vocabulary: int = 2003, width: int = 100) -> nn.Module:
    return Translator(vocabulary, width)


def pixel_shuffle(width: int = 36, factor: int = 2) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.PReLU(width),
        nn.Conv2d(width, width * factor**2, 3, padding=1),
        nn.PixelShuffle(factor),
        nn.Conv2d(width, 3, 3, padding=1),
    )


class Experts(nn.Module):
    """A batched mixture: every expert its own slice of one parameter."""

    def __init__(self, experts: int, width: int, inner: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.empty(experts, width, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        hidden = torch.einsum("nw,ewi->eni", x, self.up).relu()
        return x + torch.einsum("eni,eiw,ne->nw", hidden, self.down, weights)


def experts(width: int = 132, inner: int = 260) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), Experts(4, width, inner), nn.Linear(width, 64))


class Temporal(nn.Module):
    """Dilated one-dimensional convolutions with gates and two outputs (WaveNet)."""

    def __init__(self, width: int, skip: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(3)
        )
        self.outs = nn.ModuleList(nn.Conv1d(width, width + skip, 1) for _ in range(3))
        self.width, self.head = width, nn.Conv1d(skip, 256, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x), 0
        for gates, out in zip(self.gates, self.outs, strict=True):
            a, b = gates(x).chunk(2, 1)
            y = out(a.tanh() * b.sigmoid())
            x, total = x + y[:, : self.width], total + y[:, self.width :]
        return self.head(total.relu())


def temporal(width: int = 36, skip: int = 68) -> nn.Module:
    return Temporal(width, skip)


def _images() -> Tensor:
    return torch.empty(4, 3, 32, 32)


def _sequence(width: int) -> Callable[[], Tensor]:
    return lambda: torch.empty(4, 24, width)


def concatenated_skips(width: int = 36) -> nn.Module:
    return Concatenating(width)


def _tokens() -> Tensor:
    return torch.zeros(4, 24, dtype=torch.long)


STYLES = (
    Style("heads_by_config", heads_by_config, _sequence(16)),
    Style("widths_from_a_list", widths_from_a_list, _images),
    Style("width_multiplier", width_multiplier, _images),
    Style("concatenated_skips", concatenated_skips, _images),
    Style("branches", branches, _images),
    Style("grouped", grouped, _images),
    Style("gated", gated, _sequence(16)),
    Style("tied", tied, _tokens),
    Style("grouped_queries", grouped_queries, _sequence(16)),
    Style("einsum", einsum, _sequence(16)),
    Style("patches", patches, _images),
    Style("mixer", mixer, lambda: torch.empty(4, 64, 16)),
    Style("translator", translator, lambda: (_tokens(), _tokens())),
    Style("pixel_shuffle", pixel_shuffle, _images),
    Style("experts", experts, lambda: torch.empty(96, 64)),
    Style("temporal", temporal, lambda: torch.empty(4, 1, 256)),
)
