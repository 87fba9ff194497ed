"""Does once in a process what the first trace would otherwise do in every process forked from it."""

from __future__ import annotations

import contextlib

import torch
from torch import nn
from torch.nn import functional

from tclint.tracing.patches.modules import wrap_modules
from tclint.tracing.session.build import on_meta
from tclint.tracing.session.trace import trace_model
from tclint.tracing.values.sites import SiteFinder

_WIDTH = 8


def warm_up() -> None:
    """Trace a small model, so that torch has looked up its usual operators and Python has run the tracer.

    For processes that do nothing but build and trace models: nn.Module stays wrapped. It takes about 20 ms
    once; each trace behind it takes 3 to 10 ms less (2 cores, torch 2.13 on the CPU).
    """
    wrap_modules()
    sites = SiteFinder()
    with contextlib.suppress(Exception):  # a version of torch without one of the operators: no harm done
        model, _ = on_meta(_Small, sites)
        inputs = torch.empty(2, 3, 16, 16, device="meta"), torch.zeros(2, 4, dtype=torch.int64)
        trace_model(model, inputs, {}, sites)


class _Small(nn.Module):
    """The operators that every seventh model of the libraries runs, while it is built or after."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, _WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(_WIDTH),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.words = nn.Embedding(16, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.project = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.activation = nn.GELU()
        self.drop = nn.Dropout(float(torch.linspace(0.0, 0.1, 2)[1].item()))
        self.step = nn.GRUCell(_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, 2)
        self.scale = nn.Parameter(torch.ones(_WIDTH).mul_(0.1).div_(2.0))
        exponents = torch.arange(0, _WIDTH, 2).float() / _WIDTH
        self.register_buffer("frequencies", 1.0 / 10_000.0**exponents, persistent=False)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        self.head.bias.data.copy_(torch.zeros(2))

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        maps = functional.pad(functional.relu(self.stem(images)), (0, 1, 0, 1))
        maps = maps + functional.silu(maps) * torch.sigmoid(maps.mean((2, 3), keepdim=True))
        tokens = torch.cat([maps.flatten(2).transpose(1, 2), self.words(words)], dim=1)
        batch, length, width = tokens.shape
        positions = torch.arange(length, device=tokens.device)[None].expand(batch, -1)
        mask = positions[:, None, :] <= positions[:, :, None]
        query, key, value = self.project(self.norm(tokens)).chunk(3, dim=-1)
        query = self._rotated(query, positions)
        scores = (query @ key.transpose(-2, -1)) / width**0.5
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        heads = value.reshape(batch, length, 2, -1).permute(0, 2, 1, 3).contiguous()
        attended = functional.scaled_dot_product_attention(*torch.stack([heads] * 3).unbind(0))
        tokens = tokens + self.drop(attended.transpose(1, 2).reshape(batch, length, -1) + scores @ value)
        scale = torch.rsqrt(tokens.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        tokens = self.activation(tokens * self.scale * scale.to(tokens.dtype))
        state = self.step(tokens[:, 0], torch.zeros_like(tokens[:, 1]))
        state = torch.where((state > 0).any(-1, keepdim=True), state, state.clamp(min=0.0)).cumsum(0)
        pooled: torch.Tensor = self.head(state).unsqueeze(1).squeeze(1)
        maps = functional.adaptive_avg_pool2d(maps, 1).flatten(1)[..., :2]
        return (pooled - maps).view(batch, 2)[positions[:, 0]] + tokens.sum((1, 2))[:, None]

    def _rotated(self, states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        angles = (positions[..., None] * self.frequencies).repeat(1, 1, 2)
        first, second = states.split(_WIDTH // 2, dim=-1)
        return states * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()
