"""mamba_ssm and causal_conv1d: selective scans over [batch, channels, length]."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tclint.tracing.stand_ins.norms import FusedRMSNorm


class RMSNorm(FusedRMSNorm):
    """mamba_ssm.ops.triton.layer_norm."""


torch.library.define(
    "tclint::selective_scan", "(Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor? z) -> Tensor"
)
torch.library.register_fake("tclint::selective_scan", lambda u, *_others: torch.empty_like(u))


def selective_scan_fn(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:  # fmt: skip
    out = torch.ops.tclint.selective_scan(u, delta, A, B, C, z)
    return (out, u.new_empty(u.shape[0], *A.shape)) if return_last_state else out


selective_scan_ref = selective_scan_fn


def causal_conv1d_fn(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, seq_idx: Any = None,
    *_others: Any, activation: str | None = None, **_options: Any,
) -> Tensor:  # fmt: skip
    """[batch, channels, length], each channel with its own filter."""
    channels, width = weight.shape
    out = F.conv1d(x, weight.unsqueeze(1), bias, padding=width - 1, groups=channels)[..., : x.shape[-1]]
    return out if activation is None else F.silu(out)


class Mamba(nn.Module):
    """mamba_ssm's block of Gu and Dao (arXiv 2312.00752), over [batch, length, d_model]."""

    def __init__(
        self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2, dt_rank: Any = "auto",
        conv_bias: bool = True, bias: bool = False, **_options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        inner = int(expand * d_model)
        self.dt_rank = math.ceil(d_model / 16) if dt_rank == "auto" else dt_rank
        self.d_state = d_state
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=bias)
        self.conv1d = nn.Conv1d(inner, inner, d_conv, groups=inner, padding=d_conv - 1, bias=conv_bias)
        self.x_proj = nn.Linear(inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, d_state))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, d_model, bias=bias)

    def forward(self, hidden_states: Tensor, inference_params: Any = None) -> Tensor:
        length = hidden_states.shape[1]
        x, z = self.in_proj(hidden_states).transpose(1, 2).chunk(2, dim=1)
        x = F.silu(self.conv1d(x)[..., :length])
        split = [self.dt_rank, self.d_state, self.d_state]
        delta, b, c = self.x_proj(x.transpose(1, 2)).split(split, dim=-1)
        delta = self.dt_proj(delta).transpose(1, 2)
        y = selective_scan_fn(x, delta, -self.A_log.exp(), b.transpose(1, 2), c.transpose(1, 2), self.D, z)
        result: Tensor = self.out_proj(y.transpose(1, 2))
        return result
