"""MosaicML's MPT models as their throughput tables run them: bfloat16, fused attention, loss included."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import tclint
from tclint.graph.ops import Graph

SIZES = {
    "mpt-125m": (768, 12, 12),
    "mpt-350m": (1024, 16, 24),
    "mpt-760m": (1536, 12, 24),
    "mpt-1b": (2048, 16, 24),
    "mpt-3b": (2560, 20, 32),
    "mpt-7b": (4096, 32, 32),
    "mpt-13b": (5120, 40, 40),
    "mpt-30b": (7168, 56, 48),
}
"""Width, heads and layers: mosaicml/llm-foundry, scripts/train/benchmarking."""
VOCABULARY = 50368


class _Layer(nn.Module):
    """(N, T, width) -> (N, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.mixing = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projections(self.before_attention(x)).unflatten(2, (3, self.heads, -1))
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixing(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class _Model(nn.Module):
    """Tokens (N, T) -> the loss of predicting each from those before it."""

    def __init__(self, name: str, length: int, checkpointed: bool) -> None:
        super().__init__()
        width, heads, layers = SIZES[name]
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.checkpointed = checkpointed

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        # Those runs had FlashAttention 2, whatever torch chooses today.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        scores = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


@cache
def graph_of(name: str, batch: int, length: int, checkpointed: bool) -> Graph:
    """A training step of one of SIZES."""
    with torch.device("meta"):
        model = _Model(name, length, checkpointed).to(torch.bfloat16)
        tokens = torch.zeros(batch, length, dtype=torch.int64)
    return tclint.trace(model, (tokens,))
