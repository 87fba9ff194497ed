"""Output metadata of operators of which torch's meta kernels answer otherwise than a GPU, or slowly.

A rule returns (shape, strides, dtype), or None wherever it is not certain: then torch's own meta kernel runs.
Layouts are those of cuDNN, FlashAttention and the memory-efficient kernel. Linear layers and products are
here because models are made of them: torch's own answer takes 0.1 to 2 ms a call, a rule 4 us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tclint.graph.ops.spec import contiguous_strides
from tclint.tracing.values.formats import is_dense, strides_in_format, suggests_channels_last

Metadata = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
_Rule = Callable[..., "Metadata | None"]

_FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _contiguous(shape: tuple[int, ...], dtype: torch.dtype) -> Metadata:
    return shape, contiguous_strides(shape), dtype


def _sparse_mm(sparse: Any, dense: Any, *_: Any) -> Metadata | None:
    # The meta kernel of a dense product would take the stand-in's strides for the sparse tensor's.
    if sparse.dim() != 2 or dense.dim() != 2 or sparse.shape[1] != dense.shape[0]:
        return None
    return _contiguous((sparse.shape[0], dense.shape[1]), dense.dtype)


def _linear(tensor: Any, weight: Any, bias: Any = None) -> Metadata | None:
    if (
        tensor.dtype != weight.dtype
        or weight.dim() != 2
        or tensor.dim() < 2
        or tensor.shape[-1] != weight.shape[1]
        or (bias is not None and (bias.dtype != weight.dtype or tuple(bias.shape) != (weight.shape[0],)))
    ):
        return None
    return _contiguous((*tensor.shape[:-1], weight.shape[0]), tensor.dtype)


def _matmul(left: Any, right: Any) -> Metadata | None:
    if left.dim() != right.dim() or left.dim() < 2 or left.dtype != right.dtype:
        return None
    if left.shape[:-2] != right.shape[:-2] or left.shape[-1] != right.shape[-2]:
        return None
    return _contiguous((*left.shape[:-1], right.shape[-1]), left.dtype)


def _convolution(
    tensor: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Metadata | None:
    spatial = weight.dim() - 2
    if isinstance(padding, str) or not _fits(tensor, weight, bias):
        return None
    if tensor.shape[1] != weight.shape[1] * groups:
        return None
    sizes = _pooled(
        tensor.shape[2:],
        tuple(weight.shape[2:]),
        _per_dim(stride, spatial),
        _per_dim(padding, spatial),
        _per_dim(dilation, spatial),
    )
    return None if sizes is None else _convolved(tensor, weight, weight.shape[0], sizes)


def _transposed_convolution(
    tensor: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Metadata | None:
    spatial = weight.dim() - 2
    if not _fits(tensor, weight, bias) or tensor.shape[1] != weight.shape[0]:
        return None
    sizes = [
        (size - 1) * step - 2 * pad + gap * (window - 1) + extra + 1
        for size, window, step, pad, gap, extra in zip(
            tensor.shape[2:],
            weight.shape[2:],
            _per_dim(stride, spatial),
            _per_dim(padding, spatial),
            _per_dim(dilation, spatial),
            _per_dim(output_padding, spatial),
            strict=True,
        )
    ]
    if any(size <= 0 for size in sizes):
        return None
    return _convolved(tensor, weight, weight.shape[1] * groups, sizes)


def _fits(tensor: Any, weight: Any, bias: Any) -> bool:
    return (
        tensor.dim() == weight.dim()
        and tensor.dtype == weight.dtype
        and (bias is None or bias.dtype == weight.dtype)
    )


def _convolved(tensor: Any, weight: Any, channels: int, sizes: Sequence[int]) -> Metadata:
    # cuDNN computes in NHWC if either operand is (ATen/native/ConvUtils.h, cudnn_conv_suggest_memory_format);
    # torch's meta kernel always answers NCHW.
    channels_last = suggests_channels_last(tensor) or suggests_channels_last(weight)
    shape = (tensor.shape[0], channels, *sizes)
    return shape, strides_in_format(shape, channels_last=channels_last), tensor.dtype


def _batch_norm(tensor: Any, *_args: Any) -> Metadata | None:
    if tensor.dtype not in _FLOATING:
        return None
    shape = tuple(tensor.shape)
    return shape, strides_in_format(shape, channels_last=suggests_channels_last(tensor)), tensor.dtype


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Metadata | None:
    del dropout_p, is_causal, scale
    if not query.dim() == key.dim() == value.dim() == 4 or query.dtype != value.dtype:
        return None
    shared = 1 if enable_gqa else 2  # batch, and heads that are not grouped
    if not query.shape[:shared] == key.shape[:shared] == value.shape[:shared]:
        return None
    batch, heads, length = query.shape[:3]
    size = value.shape[-1]
    if any(tensor.stride()[-1] != 1 for tensor in (query, key, value)):
        # No fused kernel takes that; two products and a softmax remain.
        return _contiguous((batch, heads, length, size), query.dtype)
    # FlashAttention allocates its output like a dense query; the memory-efficient kernel, which takes masks,
    # writes (batch, length, heads, size) and hands back its transpose (torch/_meta_registrations.py).
    if attn_mask is None and size == query.shape[-1] and is_dense(query):
        return tuple(query.shape), query.stride(), query.dtype
    return ((batch, heads, length, size), (length * heads * size, size, heads * size, 1), query.dtype)


def _angle(tensor: Any) -> Metadata | None:
    # Of complex numbers, the kernel makes a new row-major tensor, whatever its input.
    dtypes = {torch.complex64: torch.float32, torch.complex128: torch.float64}
    dtype = dtypes.get(tensor.dtype)
    return None if dtype is None else _contiguous(tuple(tensor.shape), dtype)


def _pooled(
    sizes: Any, kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any
) -> list[int] | None:
    result = [
        (size + 2 * pad - gap * (window - 1) - 1) // step + 1
        for size, window, step, pad, gap in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    return None if any(size <= 0 for size in result) else result


def _per_dim(value: Any, count: int) -> tuple[Any, ...]:
    if isinstance(value, int):
        return (value,) * count
    values = tuple(value)
    return values * count if len(values) == 1 else values


RULES: dict[str, _Rule] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    "batch_norm": _batch_norm,
    "_sparse_mm": _sparse_mm,
    "angle": _angle,
    "linear": _linear,
    "matmul": _matmul,
    "scaled_dot_product_attention": _attention,
}
