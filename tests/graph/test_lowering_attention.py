"""Attention: when it is fused, and what it is made of when it is not."""

from __future__ import annotations

import pytest
from graph_support import make_op, spec, traffic_of

from tclint.graph.lowering.step import lower_op
from tclint.graph.lowering.work import Attention, Gemm, Traffic
from tclint.graph.ops import Op, TensorSpec


def sdpa(
    q: TensorSpec, k: TensorSpec | None = None, v: TensorSpec | None = None, mask: TensorSpec | None = None,
    **attributes: object,
) -> Op:  # fmt: skip
    k = k or q
    v = v or k
    inputs = {"query": q, "key": k, "value": v}
    if mask is not None:
        inputs["attn_mask"] = mask
    out = spec(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    return make_op("scaled_dot_product_attention", "attention", inputs, out, attributes=attributes)


def half(*shape: int) -> TensorSpec:
    return spec(*shape, dtype="float16", producer=0)


MASK = spec(10, 10, dtype="bool")

FUSED = {
    "flash": sdpa(half(2, 4, 10, 64)),
    "flash pads head dims itself": sdpa(half(2, 4, 10, 13)),
    "flash with grouped heads": sdpa(half(2, 8, 10, 64), half(2, 2, 10, 64), enable_gqa=True),
    "memory-efficient: mask": sdpa(half(2, 4, 10, 64), mask=MASK),
    "memory-efficient: float32": sdpa(spec(2, 4, 10, 12)),
    "memory-efficient: large head dim": sdpa(half(2, 4, 10, 512)),
    "memory-efficient: other value size": sdpa(half(2, 4, 10, 64), half(2, 4, 7, 64), half(2, 4, 7, 32)),
}
UNFUSED = {
    "three dims": sdpa(half(4, 10, 64)),
    "mask and a head dim that is not a multiple of 8": sdpa(half(2, 4, 10, 60), mask=MASK),
    "float32 and a head dim that is not a multiple of 4": sdpa(spec(2, 4, 10, 13)),
    "float64": sdpa(spec(2, 4, 10, 64, dtype="float64")),
    "batch to be broadcast": sdpa(half(2, 4, 10, 64), half(1, 4, 10, 64)),
    "every fused kernel is disabled": sdpa(
        half(2, 4, 10, 64), disabled_kernels=["cuDNN", "FlashAttention 2", "memory-efficient"]
    ),
    "head dim not contiguous": sdpa(spec(2, 4, 10, 64, dtype="float16", strides=(2560, 640, 1, 10))),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str) -> None:
    kernels = lower_op(FUSED[name], (True,) * len(FUSED[name].inputs))
    forward, backward = (kernel.work for kernel in kernels if isinstance(kernel.work, Attention))
    assert (forward.is_backward, backward.is_backward) == (False, True)


def test_head_dims_off_8_are_copied_into_wider_tensors() -> None:
    """Query, key and value, and backward the result's gradient and theirs."""
    kernels = lower_op(FUSED["flash pads head dims itself"], (True, True, True))
    pads = [k for k in kernels if isinstance(k.work, Traffic) and k.work.operation == "constant_pad_nd"]
    assert [k.phase for k in pads] == 3 * ["forward"] + 4 * ["backward"]
    assert {k.work.bytes_written for k in pads} == {2 * 4 * 10 * 16 * 2}  # type: ignore[union-attr]
    assert not any(isinstance(k.work, Traffic) for k in lower_op(FUSED["flash"], (True, True, True)))


def test_fused_sizes() -> None:
    op = sdpa(half(2, 8, 10, 64), half(2, 2, 7, 64), is_causal=True, enable_gqa=True)
    (kernel,) = lower_op(op, ())
    assert kernel.work == Attention(2, 8, 2, 10, 7, 64, 64, "float16", is_causal=True)
    assert kernel.flops == 4 * 2 * 8 * 10 * 7 * 64


@pytest.mark.parametrize("name", UNFUSED)
def test_unfused(name: str) -> None:
    """Two products forward and four backward, of the same FLOPs, and the scores in memory."""
    op = UNFUSED[name]
    needs = (True, True, True) + (False,) * (len(op.inputs) - 3)
    kernels = lower_op(op, needs)
    forward = [k.work for k in kernels if k.phase == "forward" and isinstance(k.work, Gemm)]
    backward = [k.work for k in kernels if k.phase == "backward" and isinstance(k.work, Gemm)]
    assert (len(forward), len(backward)) == (2, 4)
    assert sum(work.flops for work in backward) == 2 * sum(work.flops for work in forward)
    # 16-bit inputs are converted to float32 first (aten's math path), so Tensor Cores need TF32.
    assert {work.dtype for work in forward} == {"float64" if op.inputs[0].dtype == "float64" else "float32"}
    itemsize = 8 if op.inputs[0].dtype == "float64" else 4
    scores = forward[0].batch * 10 * 10 * itemsize
    assert traffic_of(kernels)[0] > scores
    assert traffic_of(kernels, "backward")[0] > 2 * scores
