"""Scaled dot-product attention: fused where a fused kernel takes it, else the products it is made of.

Conditions of the fused kernels: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (`use_flash_attention`,
`use_mem_efficient_attention`, the check_* functions); the unfused path: `_scaled_dot_product_attention_math`
in aten/src/ATen/native/transformers/attention.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tclint.graph.lowering.kernels import Lowering, LoweringRule, dense_bytes, gemm
from tclint.graph.lowering.matmul import expands_to_view
from tclint.graph.lowering.work import Attention, AttentionKernel
from tclint.graph.ops.op_tables import operators
from tclint.graph.ops.spec import TensorSpec, contiguous_strides, itemsize_bytes

_HALF = frozenset({"float16", "bfloat16"})
_PADDED_TO = 8
_FUSED: tuple[AttentionKernel, ...] = ("cuDNN", "FlashAttention 2", "memory-efficient")
"""Those that torch's dispatcher chooses from; without any of them it is the unfused path."""


def unfused_reason(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, *, has_mask: bool, is_grouped: bool = False
) -> str | None:
    """Why no fused kernel takes this call on a GPU with Tensor Cores, or None where one does.

    - All want four dims and equal batch sizes (check_tensor_shapes,
      check_batch_size_and_num_heads_dense) and head dims contiguous (check_last_dim_stride_equals_1_dense).
      Numbers of heads may differ with `enable_gqa` (`is_grouped`) alone; otherwise they are broadcast.
    - Flash wants fp16 or bf16, no mask, equal head dims of at most 256; it pads head dims to 8 itself.
    - The memory-efficient kernel also takes fp32 and a mask, and wants head dims that are multiples of
      8 (16-bit) or 4 (fp32, from sm_80 on) elements (check_head_dim_size_mem_efficient).
    Both take grouped heads, the latter only in recent torch. What only one GPU generation or one release
    refuses is not looked at.
    """
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        return "query, key and value do not have four dims"
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return "batch sizes differ"
    if not is_grouped and not query.shape[1] == key.shape[1] == value.shape[1]:
        return "numbers of heads differ without enable_gqa"
    if any(
        spec.strides is not None and spec.strides[-1] != 1 and spec.shape[-1] > 1
        for spec in (query, key, value)
    ):
        return "the head dim is not contiguous"
    if query.dtype not in _HALF and query.dtype != "float32":
        return f"no fused kernel for {query.dtype}"
    head_dim, value_head_dim = query.shape[-1], value.shape[-1]
    if query.dtype in _HALF and not has_mask and head_dim == value_head_dim and head_dim <= 256:
        return None
    multiple = 8 if query.dtype in _HALF else 4
    if head_dim % multiple or value_head_dim % multiple:
        return f"head dims {head_dim} and {value_head_dim} are not multiples of {multiple}"
    return None


def attention(low: Lowering) -> None:
    """scaled_dot_product_attention and flex_attention."""
    q, k, v = (low.position(name) for name in ("query", "key", "value"))
    mask = low.find("attn_mask", "attn_bias")
    query, key, value = (low.op.inputs[position] for position in (q, k, v))
    disabled = frozenset(low.attribute("disabled_kernels", ()))
    fused = low.op.name != "scaled_dot_product_attention" or (
        len(disabled) < len(_FUSED)
        and unfused_reason(
            query, key, value, has_mask=mask is not None, is_grouped=bool(low.attribute("enable_gqa", False))
        )
        is None
    )
    if not fused:
        _unfused(low, q, k, v, mask)
        return
    four = [
        spec.shape if len(spec.shape) >= 4 else (1,) * (4 - len(spec.shape)) + spec.shape
        for spec in (query, key, value)
    ]
    work = Attention(
        batch=prod(four[0][:-3]),
        heads=four[0][-3],
        kv_heads=four[1][-3],
        query_length=four[0][-2],
        key_length=four[1][-2],
        head_dim=four[0][-1],
        value_head_dim=four[2][-1],
        dtype=query.dtype,
        is_causal=bool(low.attribute("is_causal", False)),
        has_mask=mask is not None,
        has_dropout=bool(low.attribute("dropout_p", 0.0)) and low.training,
        seen_share=float(low.attribute("seen_share", 1.0)),
        disabled=disabled,
    )
    if not work.flops:
        return
    if low.op.name == "scaled_dot_product_attention":
        _padding(low, (query, key, value), backward=False)
    low.run(work)
    if low.any_needed:
        if low.op.name == "scaled_dot_product_attention":
            _padding(low, (low.output, query, key, value), backward=True)
        low.run_backward(
            Attention(**{**{name: getattr(work, name) for name in work.__slots__}, "is_backward": True})
        )


def _padding(low: Lowering, specs: Sequence[TensorSpec], *, backward: bool) -> None:
    """Copies into head dims that are multiples of 8, which kernels of 16 bits want (`pad_last_dim` in
    attention.cpp), and of the gradients out of them; the result is a view of the padded one."""
    for spec in specs:
        width = spec.shape[-1]
        padded = -(-width // _PADDED_TO) * _PADDED_TO
        if spec.dtype in _HALF and padded != width:
            rows = spec.numel // width
            size = itemsize_bytes(spec.dtype)
            low.traffic(
                "copy",
                rows * width * size,
                rows * padded * size,
                operation="constant_pad_nd",
                dtype=spec.dtype,
                backward=backward,
            )


def _unfused(low: Lowering, q: int, k: int, v: int, mask: int | None) -> None:
    """scale, Q K^T, mask, softmax, dropout, P V, as bmm and memory-bound kernels.

    Half precision is converted to fp32 first and back at the end, unless
    `torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)` was called.
    """
    query, key, value = (low.op.inputs[position] for position in (q, k, v))
    length, head_dim = query.shape[-2:]
    key_length, value_head_dim = value.shape[-2:]
    batch = low.output.numel // max(length * value_head_dim, 1)
    dtype = "float32" if query.dtype in _HALF else query.dtype
    size = itemsize_bytes(dtype)
    scores = batch * length * key_length * size
    if not scores:
        return
    dropout = bool(low.attribute("dropout_p", 0.0)) and low.training
    operands = [spec.numel * size for spec in (query, key, value)]
    result = low.output.numel * size
    for spec, converted in zip((query, key, value), operands, strict=True):
        if spec.dtype != dtype:
            low.traffic("copy", spec.bytes, converted, operation="_to_copy", dtype=dtype)
        grown = batch * spec.shape[-2] * spec.shape[-1] * size
        if grown > converted:  # grouped heads are repeated
            low.traffic("copy", converted, grown, operation="repeat_interleave", dtype=dtype)
    low.traffic(
        "elementwise",
        operands[0] + operands[1],
        operands[0] + operands[1],
        operation="mul",
        launches=2,
        dtype=dtype,
    )
    # Scaling keeps the order of the keys' dims; what is no batch of matrices then is copied transposed.
    keys = "k" if expands_to_view(_scaled(key), low.output.shape[:-2]) else "n"
    low.run(gemm(length, key_length, head_dim, dtype, batch, layout=f"k{keys}n"))
    if mask is not None or low.attribute("is_causal", False):
        bias = low.op.inputs[mask].bytes if mask is not None else length * key_length * size
        low.traffic("elementwise", scores + bias, scores, operation="add", dtype=dtype)
    rows = batch * length
    low.traffic("softmax", scores, scores, operation="softmax", dtype=dtype, rows=rows, columns=key_length)
    kept = batch * length * key_length
    if dropout:
        low.traffic("elementwise", scores, scores + kept, operation="dropout", dtype=dtype)
    low.run(gemm(length, value_head_dim, key_length, dtype, batch, layout="knn"))
    if query.dtype != dtype:
        low.traffic("copy", result, dense_bytes(low.output), operation="_to_copy")
    if not low.any_needed:
        return
    if query.dtype != dtype:
        low.traffic("copy", dense_bytes(low.output), result, operation="_to_copy", backward=True)
    if low.needed(v):
        low.run_backward(gemm(key_length, value_head_dim, length, dtype, batch, layout="mnn"), "dgrad")
    if low.needed(q) or low.needed(k) or low.needed(mask):
        low.run_backward(gemm(length, key_length, value_head_dim, dtype, batch, layout="kkn"), "dgrad")
        if dropout:
            low.traffic(
                "elementwise", scores + kept, scores, operation="dropout_backward", dtype=dtype, backward=True
            )
        low.traffic(
            "softmax",
            2 * scores,
            scores,
            operation="softmax_backward",
            dtype=dtype,
            backward=True,
            rows=rows,
            columns=key_length,
        )
    if low.needed(q):
        layout = "knn" if keys == "k" else "kkn"
        low.run_backward(gemm(length, head_dim, key_length, dtype, batch, layout=layout), "dgrad")
    if low.needed(k):
        # Of the transposed keys that were multiplied with: Q^T dS.
        low.run_backward(gemm(head_dim, key_length, length, dtype, batch, layout="mnn"), "dgrad")
    for position, converted in zip((q, k, v), operands, strict=True):
        if low.needed(position):
            if position != v:
                low.traffic("elementwise", converted, converted, operation="mul", dtype=dtype, backward=True)
            if query.dtype != dtype:
                low.traffic(
                    "copy",
                    converted,
                    dense_bytes(low.op.inputs[position]),
                    operation="_to_copy",
                    backward=True,
                )


def _scaled(spec: TensorSpec) -> TensorSpec:
    """A tensor as an elementwise operation writes it: dense, its dims in the order that they had."""
    strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    dense = contiguous_strides(tuple(spec.shape[dim] for dim in order))
    return replace(spec, strides=tuple(dense[order.index(dim)] for dim in range(len(order))))


RULES: dict[str, LoweringRule] = dict.fromkeys(operators("products", "attention"), attention)
