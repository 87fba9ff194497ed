"""flash_attn and xformers.ops: attention over [batch, length, heads, features]."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tclint.tracing.stand_ins.norms import FusedRMSNorm


class RMSNorm(FusedRMSNorm):
    """flash_attn.ops.rms_norm."""


class LowerTriangularMask:
    """xformers.ops.fmha.attn_bias: a causal mask."""


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, *_others: Any, **_options: Any,
) -> Tensor:  # fmt: skip
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    grouped: dict[str, Any] = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    out = F.scaled_dot_product_attention(q, k, v, None, dropout_p, causal, scale=softmax_scale, **grouped)
    return out.transpose(1, 2)


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, *_others: Any, **_options: Any,
) -> Tensor:  # fmt: skip
    """Sequences behind one another, [tokens, heads, features]: as many as there are, of one length."""
    count = max(cu_seqlens_q.numel() - 1, 1)
    if q.shape[0] % count or k.shape[0] % count:
        count = 1
    parts = (part.unflatten(0, (count, -1)) for part in (q, k, v))
    return flash_attn_func(*parts, dropout_p, softmax_scale, causal).flatten(0, 1)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Tensor:
    ends = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return flash_attn_varlen_func(*qkv.unbind(1), *ends, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return flash_attn_varlen_func(q, *kv.unbind(1), *args, **kwargs)


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0,
    scale: float | None = None, **_options: Any,
) -> Tensor:  # fmt: skip
    """xformers.ops: [batch, length, heads, features], or without heads."""
    causal = isinstance(attn_bias, LowerTriangularMask) or attn_bias is LowerTriangularMask
    if query.dim() == 3 or not isinstance(attn_bias, Tensor):
        parts = [part.unsqueeze(2) if query.dim() == 3 else part for part in (query, key, value)]
        out = flash_attn_func(*parts, p, scale, causal)
        return out.squeeze(2) if query.dim() == 3 else out
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    out = F.scaled_dot_product_attention(query, key, value, attn_bias, p, scale=scale)
    return out.transpose(1, 2)


def unbind(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return tuple(x.unbind(dim))
