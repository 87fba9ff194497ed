"""Small models with one size as an argument: what a resize must give is what building them anew gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(20, width)
        self.hidden = nn.Linear(width, width)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.hidden(F.relu(self.first(x)))))


class ResidualCnn(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width, 3, 1, 1)
        self.wide = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.shortcut = nn.Conv2d(width, 2 * width, 1, 2)
        self.group_norm = nn.GroupNorm(2, 2 * width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = x + self.conv(x)
        x = F.relu(self.group_norm(self.wide(x) + self.shortcut(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class FlattenedCnn(nn.Module):
    """Channels meet the image size in the first linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 1, 1)
        self.hidden = nn.Linear(width * 4 * 4, 6 * width)
        self.head = nn.Linear(6 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 4)
        return self.head(F.relu(self.hidden(torch.flatten(x, 1))))


class DenseNet(nn.Module):
    def __init__(self, growth: int) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Conv2d(3, channels, 3, 1, 1)
        self.layers = nn.ModuleList()
        for _ in range(3):
            self.layers.append(
                nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, growth, 3, 1, 1))
            )
            channels += growth
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(torch.cat(features, 1).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 3, 1, 1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, 1, 1)
        self.bottom = nn.Conv2d(2 * width, 4 * width, 3, 1, 1)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = nn.Conv2d(4 * width, 2 * width, 3, 1, 1)
        self.merge1 = nn.Conv2d(3 * width, width, 3, 1, 1)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down1(x))
        second = F.relu(self.down2(F.max_pool2d(first, 2)))
        x = F.relu(self.bottom(F.max_pool2d(second, 2)))
        x = self.merge2(torch.cat([second, self.up2(x)], 1))
        x = F.interpolate(x, size=first.shape[2:], mode="bilinear")
        return self.head(self.merge1(torch.cat([first, x], 1)))


class ResNext(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.reduce = nn.Conv2d(width, 8 * width, 1)
        self.grouped = nn.Conv2d(8 * width, 8 * width, 3, 1, 1, groups=8)
        self.norm = nn.BatchNorm2d(8 * width)
        self.expand = nn.Conv2d(8 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + self.expand(F.relu(self.norm(self.grouped(F.relu(self.reduce(x))))))


class MobileNet(nn.Module):
    """Depthwise convolution and squeeze-and-excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.expand = nn.Conv2d(width, 6 * width, 1)
        self.depthwise = nn.Conv2d(6 * width, 6 * width, 3, 1, 1, groups=6 * width, bias=False)
        self.norm = nn.BatchNorm2d(6 * width)
        self.squeeze = nn.Conv2d(6 * width, width, 1)
        self.excite = nn.Conv2d(width, 6 * width, 1)
        self.project = nn.Conv2d(6 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu6(self.norm(self.depthwise(F.relu6(self.expand(x)))))
        y = y * torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return (x + self.project(y)).mean([2, 3])


class ShuffleNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2 * width, 3, 1, 1)
        self.conv = nn.Conv2d(width, width, 1)
        self.depthwise = nn.Conv2d(width, width, 3, 1, 1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.stem(x).chunk(2, 1)
        x = torch.cat((left, self.depthwise(self.conv(right))), 1)
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        return x.view(batch, channels, height, width)


class Generator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.project = nn.Linear(16, 8 * width * 4 * 4)
        self.up = nn.ConvTranspose2d(8 * width, 4 * width, 4, 2, 1)
        self.norm = nn.BatchNorm2d(4 * width)
        self.shuffled = nn.Conv2d(width, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.project(z).view(-1, 8 * self.width, 4, 4)
        return self.shuffled(F.pixel_shuffle(F.relu(self.norm(self.up(x))), 2))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class LanguageModel(nn.Module):
    """Fused qkv projection; the output layer is tied to the embedding or not."""

    def __init__(self, width: int = 24, vocabulary: int = 101, heads: int = 4, tied: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(32, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(2))
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for norm, attention in zip(self.norms, self.attention, strict=True):
            x = x + attention(norm(x))
        return self.head(x + self.down(F.gelu(self.up(x))))


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


class Llama(nn.Module):
    """Grouped queries by repetition, rotary embeddings, a gated MLP, attention written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = 4, 2, width // 4
        self.tokens = nn.Embedding(64, width)
        self.norm = nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.register_buffer("frequencies", torch.ones(self.head_dim // 2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        batch, length, _ = x.shape
        angles = torch.arange(length).float()[:, None] * self.frequencies
        angles = torch.cat((angles, angles), -1)
        h = self.norm(x)
        q = self.q(h).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v(h).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q = q * angles.cos() + rotate_half(q) * angles.sin()
        k = k * angles.cos() + rotate_half(k) * angles.sin()
        k, v = (
            t[:, :, None]
            .expand(batch, self.kv_heads, 2, length, self.head_dim)
            .reshape(batch, self.heads, length, self.head_dim)
            for t in (k, v)
        )
        scores = q @ k.transpose(-1, -2) + torch.full((length, length), -1e9).triu(1)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class VisionTransformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 17, width))
        self.scale = nn.Parameter(torch.ones(width))
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, 3, width // 3).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        return self.head((x + self.scale * self.out(y))[:, 0])


class Swin(nn.Module):
    """Shifted windows and patch merging."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 2, 2)
        self.mix = nn.Linear(width, width)
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.patches(x).permute(0, 2, 3, 1), (-2, -2), (1, 2))
        batch, height, width, channels = x.shape
        y = x.view(batch, height // 4, 4, width // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        y = self.mix(y.reshape(-1, 16, channels))
        y = y.view(batch, height // 4, width // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        x = x + y.reshape(batch, height, width, channels)
        corners = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        return self.merge(torch.cat(corners, -1)).view(batch, -1, 2 * channels).mean(1)


class EinsumAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.q = nn.Parameter(torch.zeros(width, 4, width // 4))
        self.k = nn.Parameter(torch.zeros(width, 4, width // 4))
        self.out = nn.Parameter(torch.zeros(4, width // 4, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        q = torch.einsum("bsd,dhk->bhsk", x, self.q)
        k = torch.einsum("...sd,dhk->...hsk", x, self.k)
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
        return torch.einsum("bqhd,hdo->bqo", torch.einsum("bhqk,bhkd->bqhd", weights, k), self.out)


class LstmClassifier(nn.Module):
    def __init__(self, width: int, projection: int = 0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True, batch_first=True, proj_size=projection)
        self.head = nn.Linear(2 * (projection or width), 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0][:, -1])


class Gru(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(8, width, 2)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x, torch.zeros(2, x.shape[1], self.gru.hidden_size))[1][-1])


class Cells(nn.Module):
    """A library cell, and gates cut by hand in two ways."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.cell = nn.LSTMCell(8, width)
        self.inputs = nn.Linear(8, 4 * width)
        self.recurrent = nn.Linear(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.width)
        h, c = self.cell(x[:, 0], (h, c))
        i, f, g, o = (self.inputs(x[:, 1]) + self.recurrent(h)).chunk(4, 1)
        h = o.sigmoid() * (f.sigmoid() * c + i.sigmoid() * g.tanh()).tanh()
        z, w = self.inputs(x[:, 2]), self.width
        return h + z[:, :w] * z[:, w : 2 * w] * z[:, 2 * w : 3 * w] * z[:, 3 * w :]


class WaveNet(nn.Module):
    """Weight norm, gated halves, skip sums, GLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(10, width, 1)
        self.gates = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, 2 * width, 3, padding=1))
        self.split = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        gates = self.gates(x)
        half = gates.shape[1] // 2
        z = self.split(torch.tanh(gates[:, :half]) * torch.sigmoid(gates[:, half:]))
        return F.glu(torch.cat((x + z[:, :half], z[:, half:]), 1), 1)


class QkvBias(nn.Module):
    """Separate query and value biases joined for one projection, as BEiT has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.weight = nn.Parameter(torch.zeros(3 * width, width))
        self.q_bias = nn.Parameter(torch.zeros(width))
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("k_bias", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        batch, length, width = x.shape
        x = F.linear(x, self.weight, torch.cat((self.q_bias, self.k_bias, self.v_bias)))
        q, k, v = x.reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)


class SinePositions(nn.Module):
    """Two equal tables of sines and cosines, made in forward, joined and added (DETR)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.half = width // 2
        self.conv = nn.Conv2d(3, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        periods = 10.0 ** (torch.arange(self.half) / self.half)
        tables = []
        for axis in (1, 2):
            angles = torch.ones_like(x[:, 0]).cumsum(axis)[..., None] / periods
            pair = torch.stack((angles[..., 0::2].sin(), angles[..., 1::2].cos()), 4)
            tables.append(pair.flatten(3))
        return x + torch.cat(tables, 3).permute(0, 3, 1, 2)


class ComplexRotary(nn.Module):
    """Rotary embedding in complex numbers: pairs of channels stay pairs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q = nn.Linear(8, width)
        self.out = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        q = torch.view_as_complex(self.q(x).float().reshape(*x.shape[:-1], -1, 2))
        return self.out(torch.view_as_real(q * q).flatten(2))


class RareOperators(nn.Module):
    """What mixtures of experts, contrastive losses and older layers call between products of one width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(20, width)
        self.pair = nn.Bilinear(width, width, 4)
        self.weight = nn.Parameter(torch.zeros(width, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        counts = torch.bincount(x.new_zeros(8, dtype=torch.long), minlength=6).float()
        bins = torch.histc(y, bins=6)
        drawn = torch.multinomial(y.softmax(-1), 2)
        distance = F.pairwise_distance(y, 2 * y)
        batches = torch.addbmm(y[:, :5], y[None], self.weight[None])
        scaled = torch.ops.aten.gelu_backward(y, y)
        rows = self.pair(y, scaled).sum(-1) + distance + drawn.sum(-1) + batches.sum(-1)
        return rows + (counts + bins).sum()


@dataclass(frozen=True)
class Case:
    """A model family, the inputs, and two sizes of it."""

    build: Callable[[int], nn.Module]
    inputs: tuple[int, ...]
    size: int
    new_size: int
    dims: int
    """How many independent dims the size argument's parameters are made of."""
    integers: bool = False

    def example(self) -> Tensor:
        return torch.zeros(self.inputs, dtype=torch.long if self.integers else torch.float32)


IMAGES = (2, 3, 16, 16)
CASES: dict[str, Case] = {
    "rare operators": Case(RareOperators, (4, 20), 30, 64, 1),
    "mlp": Case(Mlp, (4, 20), 30, 64, 2),
    "residual cnn": Case(ResidualCnn, IMAGES, 30, 32, 2),
    "flattened cnn": Case(FlattenedCnn, IMAGES, 13, 16, 4),
    "densenet": Case(DenseNet, IMAGES, 12, 16, 4),
    "unet": Case(UNet, IMAGES, 20, 32, 6),
    "resnext": Case(ResNext, IMAGES, 6, 8, 3),
    "mobilenet": Case(MobileNet, IMAGES, 30, 32, 3),
    "shufflenet": Case(ShuffleNet, IMAGES, 30, 32, 1),
    "generator": Case(Generator, (2, 16), 6, 8, 4),
    "transformer width": Case(LanguageModel, (2, 16), 20, 32, 6, integers=True),
    "transformer vocabulary": Case(
        lambda n: LanguageModel(vocabulary=n), (2, 16), 101, 128, 1, integers=True
    ),
    "untied transformer": Case(lambda n: LanguageModel(n, tied=False), (2, 16), 20, 32, 6, integers=True),
    "llama": Case(Llama, (2, 9), 40, 48, 8, integers=True),
    "vision transformer": Case(VisionTransformer, IMAGES, 30, 48, 3),
    "swin": Case(Swin, IMAGES, 12, 16, 2),
    "einsum attention": Case(EinsumAttention, (2, 5, 8), 20, 32, 3),
    "encoder feed-forward": Case(
        lambda n: nn.TransformerEncoderLayer(20, 4, n, batch_first=True), (2, 5, 20), 30, 32, 1
    ),
    "lstm": Case(LstmClassifier, (3, 7), 30, 32, 2, integers=True),
    "lstm with projection": Case(lambda n: LstmClassifier(n, 9), (3, 7), 30, 32, 2, integers=True),
    "gru": Case(Gru, (7, 3, 8), 30, 32, 1),
    "cells": Case(Cells, (2, 5, 8), 13, 16, 1),
    "wavenet": Case(WaveNet, (2, 10, 20), 14, 16, 2),
    "joined biases": Case(QkvBias, (2, 5, 8), 20, 32, 3),
    "sine positions": Case(SinePositions, IMAGES, 20, 32, 2),
    "complex rotary": Case(ComplexRotary, (2, 5, 8), 20, 32, 1),
}
