"""Transformers by hand: nn.Transformer, key-value caches, rotary positions, routing, early exits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_nn_transformer() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return nn.Transformer(256, 8, 2, 2, 1024), (torch.zeros(20, 4, 256), torch.zeros(15, 4, 256))


class PaddedEncoder(nn.Module):
    """In eval mode nn.TransformerEncoder would take its fused fast path with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128, padding_idx=0)
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=False)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0).mean(dim=1)


def build_encoder_fast_path() -> tuple[nn.Module, Tensor]:
    return PaddedEncoder(), torch.ones(4, 30, dtype=torch.long)


class CausalAttention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(512, 512)).view(1, 1, 512, 512), persistent=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, size = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(size, 2)
        )
        if cache is not None:
            key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
        total = key.shape[2]
        scores = query @ key.transpose(-2, -1) * (size // self.heads) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, total - length : total, :total] == 0, float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, size)), (key, value)


class Generator(nn.Module):
    """Prompt, then sampled tokens one at a time with a growing cache and a stop condition."""

    def __init__(self, vocabulary: int = 5000, size: int = 192, depth: int = 3) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, size), nn.Embedding(512, size)
        self.blocks = nn.ModuleList([CausalAttention(size, 6) for _ in range(depth)])
        self.head = nn.Linear(size, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    @torch.inference_mode()
    def forward(self, tokens: Tensor, new_tokens: int = 6) -> Tensor:
        caches: list[tuple[Tensor, Tensor] | None] = [None] * len(self.blocks)
        current, start = tokens, 0
        for _ in range(new_tokens):
            positions = torch.arange(start, start + current.shape[1], device=tokens.device)
            x = self.embedding(current) + self.positions(positions)
            for index, block in enumerate(self.blocks):
                update, caches[index] = block(x, caches[index])
                x = x + update
            start += current.shape[1]
            logits = self.head(x[:, -1]) / 0.8
            values, _ = torch.topk(logits, 50)
            logits[logits < values[:, [-1]]] = -float("inf")
            current = torch.multinomial(F.softmax(logits, dim=-1), 1)
            tokens = torch.cat([tokens, current], dim=1)
            if (current == 0).all():
                break
        return tokens


def build_generation_with_cache() -> tuple[nn.Module, Tensor]:
    return Generator(), torch.ones(2, 10, dtype=torch.long)


class StaticCache(nn.Module):
    """A preallocated cache in buffers, written in place at a position that is a tensor."""

    def __init__(self, size: int = 128, limit: int = 64) -> None:
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)
        self.register_buffer("keys", torch.zeros(2, limit, size))
        self.register_buffer("values", torch.zeros(2, limit, size))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        where = self.position + torch.arange(x.shape[1])
        self.keys.index_copy_(1, where, key)
        self.values[:, where] = value
        self.position += x.shape[1]
        seen = int(self.position)
        return F.scaled_dot_product_attention(query, self.keys[:, :seen], self.values[:, :seen])


def build_static_cache() -> tuple[nn.Module, Tensor]:
    return StaticCache(), torch.zeros(2, 16, 128)


class RotaryComplex(nn.Module):
    """Rotary positions as complex multiplication, grouped-query attention, RMS norm, SwiGLU."""

    def __init__(self, size: int = 256, heads: int = 8, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, size // heads
        self.norm = nn.RMSNorm(size)
        self.query, self.key, self.value = (
            nn.Linear(size, count * self.head_dim, bias=False) for count in (heads, kv_heads, kv_heads)
        )
        self.out = nn.Linear(size, size, bias=False)
        self.gate, self.up, self.down = nn.Linear(size, 683), nn.Linear(size, 683), nn.Linear(683, size)
        angles = torch.outer(torch.arange(128), 10000 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim))
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotate(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.rotations[: x.shape[1], None]).flatten(3).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        hidden = self.norm(x)
        query = self.rotate(self.query(hidden).view(batch, length, self.heads, -1)).transpose(1, 2)
        key = self.rotate(self.key(hidden).view(batch, length, self.kv_heads, -1)).transpose(1, 2)
        value = self.value(hidden).view(batch, length, self.kv_heads, -1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def build_rotary_complex_block() -> tuple[nn.Module, Tensor]:
    return RotaryComplex(), torch.zeros(2, 40, 256)


class Experts(nn.Module):
    """Top-2 routing with one Python iteration per expert (Mixtral's first implementation)."""

    def __init__(self, size: int = 128, count: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(size, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.view(-1, x.shape[-1])
        weights, chosen = torch.topk(self.gate(flat).softmax(dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        result = torch.zeros_like(flat)
        mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            rank, token = torch.where(mask[index])
            if token.shape[0] == 0:
                continue
            result.index_add_(0, token, expert(flat[token]) * weights[token, rank, None])
        return result.view_as(x)


def build_expert_loop() -> tuple[nn.Module, Tensor]:
    return Experts(), torch.zeros(4, 64, 128)


class SortedExperts(nn.Module):
    """Tokens sorted by expert and split by counts that are read back to Python."""

    def __init__(self, size: int = 128, count: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(size, count)
        self.experts = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        chosen = self.gate(flat).argmax(dim=-1)
        order = chosen.argsort()
        counts = torch.bincount(chosen, minlength=len(self.experts)).tolist()
        pieces = flat[order].split(counts)
        outputs = torch.cat([expert(piece) for expert, piece in zip(self.experts, pieces, strict=True)])
        return torch.empty_like(outputs).index_copy(0, order, outputs).view_as(x)


def build_sorted_experts() -> tuple[nn.Module, Tensor]:
    return SortedExperts(), torch.zeros(4, 64, 128)


class CapacityRouting(nn.Module):
    """Switch routing with a capacity: positions by cumulative sum, dispatch by einsum."""

    def __init__(self, size: int = 128, count: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(size, count)
        self.first, self.second = (
            nn.Parameter(torch.randn(count, *shape)) for shape in ((size, 256), (256, size))
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        probability, chosen = self.gate(flat).softmax(-1).max(dim=-1)
        capacity = int(1.25 * flat.shape[0] / self.first.shape[0])
        choice = F.one_hot(chosen, self.first.shape[0])
        position = (choice.cumsum(dim=0) * choice).sum(-1) - 1
        slot = F.one_hot(position.clamp(max=capacity), capacity + 1)[:, :capacity]
        dispatch = torch.einsum("te,tc->tec", choice.float(), slot.float())
        inputs = torch.einsum("tec,td->ecd", dispatch, flat)
        outputs = torch.baddbmm(torch.zeros(1, 1, 1), F.relu(torch.bmm(inputs, self.first)), self.second)
        return torch.einsum("tec,ecd->td", dispatch * probability[:, None, None], outputs).view_as(x)


def build_capacity_routing() -> tuple[nn.Module, Tensor]:
    return CapacityRouting(), torch.zeros(4, 64, 128)


class LinearAttention(nn.Module):
    def __init__(self, size: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.ModuleList([nn.Linear(size, size) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x).unflatten(-1, (self.heads, -1)) for layer in self.project[:3])
        query, key = F.elu(query) + 1, F.elu(key) + 1
        memory = torch.einsum("nshd,nshm->nhmd", key, value)
        scale = 1 / torch.einsum("nlhd,nhd->nlh", query, key.sum(dim=1))
        return self.project[3](torch.einsum("nlhd,nhmd,nlh->nlhm", query, memory, scale).flatten(-2))


def build_linear_attention() -> tuple[nn.Module, Tensor]:
    return LinearAttention(), torch.zeros(2, 100, 128)


class EarlyExit(nn.Module):
    """Leaves as soon as a classifier is confident: the depth depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 2, 128, batch_first=True) for _ in range(4)
        )
        self.exits = nn.ModuleList(nn.Linear(64, 3) for _ in self.layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer, leave in zip(self.layers, self.exits, strict=True):
            x = layer(x)
            logits = leave(x[:, 0])
            if logits.softmax(-1).max(-1).values.min() > 0.9:
                return logits
        return logits


def build_early_exit() -> tuple[nn.Module, Tensor]:
    return EarlyExit(), torch.zeros(2, 10, 64)


class SlidingWindow(nn.Module):
    """Chunked local attention with as_strided windows and an ALiBi bias."""

    def __init__(self, size: int = 64, window: int = 16) -> None:
        super().__init__()
        self.window = window
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        chunks = x.shape[1] // self.window
        query = query.unflatten(1, (chunks, self.window))
        key, value = (
            F.pad(part, (0, 0, self.window, 0)).unfold(1, 2 * self.window, self.window)
            for part in (key, value)
        )
        scores = query @ key
        distance = torch.arange(2 * self.window)[None] - torch.arange(self.window)[:, None] - self.window
        scores = scores + torch.where(distance > 0, float("-inf"), distance * 0.5)
        return (scores.softmax(-1) @ value.transpose(-1, -2)).flatten(1, 2)


def build_sliding_window_attention() -> tuple[nn.Module, Tensor]:
    return SlidingWindow(), torch.zeros(2, 64, 64)
