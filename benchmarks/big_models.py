#!/usr/bin/env python
"""The largest published models, traced on a machine that could not hold their weights.

    python benchmarks/big_models.py

Each is imported, built and traced in a fresh process; printed are the seconds from the start of the process,
its peak memory, and the size of the model. The functions are ordinary targets:

    tclint benchmarks/big_models.py:gpt3_175b
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

MAX_SECONDS, MAX_MIB = 10.0, 600.0


class GptBlock(nn.Module):
    """Pre-norm attention and a four times wider MLP."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Token ids (N, T) -> scores (N, T, vocabulary), the output layer tied to the embedding."""

    def __init__(self, vocabulary: int, length: int, depth: int, size: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, size), nn.Embedding(length, size)
        self.blocks = nn.ModuleList(GptBlock(size, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt3_175b() -> tuple[nn.Module, Tensor]:
    """Brown et al., "Language Models are Few-Shot Learners" (2020), table 2.1."""
    return Gpt(50257, 2048, 96, 12288, 96), _tokens(1, 2048)


class LlamaAttention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, size: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_size = size // heads
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(size, kv_heads * self.head_size, bias=False)
        self.value = nn.Linear(size, kv_heads * self.head_size, bias=False)
        self.out = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, size = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.head_size).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, size))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions: (N, heads, T, d) by tables (T, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def rotary_tables(length: int, size: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, d) of the positions' angles."""
    angles = torch.outer(torch.arange(length), base ** (-torch.arange(0, size, 2) / size))
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


class SwiGlu(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    """Token ids (N, T) -> scores: pre-norm blocks of attention and a feed-forward part."""

    def __init__(
        self,
        vocabulary: int,
        size: int,
        rotary_size: int,
        base: float,
        blocks: list[tuple[nn.Module, nn.Module]],
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.attention = nn.ModuleList(attention for attention, _ in blocks)
        self.feed_forward = nn.ModuleList(part for _, part in blocks)
        self.norms = nn.ModuleList(nn.RMSNorm(size) for _ in range(2 * len(blocks) + 1))
        self.head = nn.Linear(size, vocabulary, bias=False)
        self.rotary_size, self.base = rotary_size, base

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        cosine, sine = rotary_tables(tokens.shape[1], self.rotary_size, self.base)
        for index, (attention, part) in enumerate(zip(self.attention, self.feed_forward, strict=True)):
            x = x + attention(self.norms[2 * index](x), cosine, sine)
            x = x + part(self.norms[2 * index + 1](x))
        return self.head(self.norms[-1](x))


def llama3_405b() -> tuple[nn.Module, Tensor]:
    """Grattafiori et al., "The Llama 3 Herd of Models" (2024), table 3."""
    size, heads = 16384, 128
    blocks: list[tuple[nn.Module, nn.Module]] = [
        (LlamaAttention(size, heads, 8), SwiGlu(size, 53248)) for _ in range(126)
    ]
    return Decoder(128256, size, size // heads, 500000.0, blocks), _tokens(1, 8192)


class LatentAttention(nn.Module):
    """Multi-head latent attention: keys and values come from one low-rank projection."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_down, self.query_norm = nn.Linear(size, 1536, bias=False), nn.RMSNorm(1536)
        self.query_up = nn.Linear(1536, heads * 192, bias=False)
        self.latent, self.latent_norm = nn.Linear(size, 512 + 64, bias=False), nn.RMSNorm(512)
        self.latent_up = nn.Linear(512, heads * 256, bias=False)
        self.out = nn.Linear(heads * 128, size, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query = self.query_up(self.query_norm(self.query_down(x))).view(batch, length, self.heads, 192)
        query, rotated = query.transpose(1, 2).split([128, 64], dim=-1)
        latent, shared = self.latent(x).split([512, 64], dim=-1)
        key, value = (
            self.latent_up(self.latent_norm(latent)).view(batch, length, self.heads, 256).transpose(1, 2)
        ).split([128, 128], dim=-1)
        shared = rotate(shared.unsqueeze(1), cosine, sine).expand(-1, self.heads, -1, -1)
        query = torch.cat([query, rotate(rotated, cosine, sine)], dim=-1)
        key = torch.cat([key, shared], dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, self.heads * 128))


class Experts(nn.Module):
    """256 routed experts of which 8 see a token, and one that sees all; tokens are gathered per expert."""

    def __init__(self, size: int, hidden: int, count: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(size, count, bias=False)
        self.gate, self.up = (nn.Parameter(torch.empty(count, size, hidden)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(count, hidden, size))
        self.shared = SwiGlu(size, hidden)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, indices = self.router(flat).sigmoid().topk(self.chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        order = indices.flatten().argsort()
        capacity = flat.shape[0] * self.chosen // self.router.out_features
        gathered = flat[order // self.chosen].view(self.router.out_features, capacity, -1)
        hidden = F.silu(torch.bmm(gathered, self.gate)) * torch.bmm(gathered, self.up)
        made = torch.bmm(hidden, self.down).flatten(0, 1) * weights.flatten()[order, None]
        return (torch.zeros_like(flat).index_add(0, order // self.chosen, made) + self.shared(flat)).view_as(
            x
        )


def deepseek_v3() -> tuple[nn.Module, Tensor]:
    """DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), section 4.2, without multi-token prediction.

    Experts of equal load, as its balancing aims at.
    """
    size, heads = 7168, 128
    blocks: list[tuple[nn.Module, nn.Module]] = [
        (LatentAttention(size, heads), SwiGlu(size, 18432) if layer < 3 else Experts(size, 2048, 256, 8))
        for layer in range(61)
    ]
    return Decoder(129280, size, 64, 10000.0, blocks), _tokens(1, 4096)


def _tokens(batch: int, length: int) -> Tensor:
    return torch.zeros((batch, length), dtype=torch.int64)


MODELS = {"gpt3_175b": gpt3_175b, "llama3_405b": llama3_405b, "deepseek_v3": deepseek_v3}


def _peak_kib() -> int:
    """The peak of this program alone; ru_maxrss starts at the size of the process that started it."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name: str) -> dict[str, Any]:
    """Trace one model, in the child that this process forks for it."""
    from tclint.graph.lowering.step import forward_flops
    from tclint.tracing import trace_callable

    graph = trace_callable(MODELS[name])
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "model": name,
        "seconds": round(time.perf_counter() - STARTED, 2),
        "cpu_seconds": round(time.process_time() + child.ru_utime + child.ru_stime, 2),
        "peak_mib": round(max(_peak_kib(), child.ru_maxrss) / 1024),
        "parameters": sum(parameter.numel for parameter in graph.parameters if not parameter.is_buffer),
        "operators": len(graph.ops),
        "forward_flops": forward_flops(graph),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", choices=MODELS, help="measure one model in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return 0
    worst = 0
    for name in MODELS:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        within = row["cpu_seconds"] < MAX_SECONDS and row["peak_mib"] < MAX_MIB
        worst |= not within
        print(
            f"{name:12s} {row['parameters'] / 1e9:6.1f} B parameters, {row['operators']:5d} operators, "
            f"{row['forward_flops'] / 1e12:7.0f} TFLOP: {row['cpu_seconds']:5.2f} s on one core "
            f"({row['seconds']:.2f} s elapsed), {row['peak_mib']:4d} MiB"
            f"{'' if within else '  (over the limit)'}"
        )
    return worst


if __name__ == "__main__":
    sys.exit(main())
