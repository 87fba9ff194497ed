"""Which fused attention kernel runs, and the rates of those that have measurements of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tclint.cost.gpu import Gpu
from tclint.cost.math_units import UnitClass
from tclint.cost.rows import FloatArray
from tclint.graph.lowering.work import Attention, AttentionKernel

HOPPER, BLACKWELL = 9, 10
"""Major compute capabilities of the data-centre GPUs."""

RATES: Mapping[tuple[AttentionKernel, int], tuple[float, float]] = {
    ("FlashAttention 2", HOPPER): (1430.0, 1430.0),
    ("FlashAttention 2", BLACKWELL): (1430.0, 1430.0),
    ("FlashAttention 4", BLACKWELL): (4400.0, 5900.0),
    ("cuDNN", HOPPER): (2250.0, 2700.0),
    ("cuDNN", BLACKWELL): (4050.0, 5900.0),
}
"""FLOPs per cycle of an SM, for head dims of 64 and 128, beside BLOCK_US.

FlashAttention 2's instructions are Ampere's: as fast on an H100 as on a B200, in ten times of public threads.
cuDNN's of 64 on Hopper: 293 us for batch 8, 16 heads, 2,048 tokens on an H100 (torch 2.11); that of 128 is
assumed, and meets the 631 TFLOP/s of 24 heads of 4,608 tokens there within 2 % (pytorch/pytorch#142132). On
Blackwell: ten times at 64 and one at 128 on a B200 (Dao-AILab/flash-attention#2605), whose 18 times of
FlashAttention 4 no fit saw: they are met within 4 % on average."""
BLOCK_US, BACKWARD_BLOCK_US = 2.4, 12.0
"""Time of a block of queries beside its products, from lengths of 512 and 1,024 in those threads."""
OWN_BLOCK_US: Mapping[tuple[AttentionKernel, int], float] = {("cuDNN", BLACKWELL): 1.1}
"""The same of a forward kernel where its own short lengths are known."""
KEY_BLOCK = 64
DIAGONAL_KEYS: Mapping[AttentionKernel, int] = {"cuDNN": 256, "FlashAttention 4": 256}
"""Queries that a thread block takes, where they are more than KEY_BLOCK: causal attention computes blocks on
the diagonal whole. From 13 causal times of 1,024 to 16,384 tokens on a B200, the shortest of which were
priced 15 % too fast without."""
BACKWARD_SHARE = {"FlashAttention 2": 0.88}
"""Rate of gradients relative to the forward kernel's; the constant's (backward_ratio) where not listed."""
MEMORY_EFFICIENT_SHARE = 0.6
"""Rate of the memory-efficient kernel relative to FlashAttention 2's: 115 TFLOP/s under a mask on an A100."""
CUDNN_MASKED, CUDNN_DROPOUT = 1.94, 2.94
"""Time of cuDNN's products with a mask and with dropout relative to those without: 526 and 779 us for those
293 on an H100."""
DRAM_SHARE = 0.85
LAUNCH_US = 3.0


def kernel_of(work: Attention, gpu: Gpu) -> AttentionKernel:
    """Which fused kernel runs: as torch chooses from 2.11 on.

    On Hopper and data-centre Blackwell cuDNN's comes first (`check_prefer_cudnn_attention` in
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; the wheels of 2.11 are the first with a cuDNN above
    the 9.15 that it asks for); it wants head dims that are multiples of 8, up to 256. FlashAttention 2 wants
    16 bits, Ampere and no mask. The rest is the memory-efficient kernel's. What the model's code disables is
    passed over.
    """
    if work.kernel is not None:
        return work.kernel
    dims = (work.head_dim, work.value_head_dim)
    in_half = work.dtype in ("float16", "bfloat16") and gpu.compute_capability >= (8, 0)
    order: list[AttentionKernel] = ["memory-efficient"]
    if in_half and not work.has_mask:
        order.insert(0, "FlashAttention 2")
    if in_half and max(dims) <= 256 and not any(d % 8 for d in dims):
        order.insert(0 if gpu.compute_capability[0] in (HOPPER, BLACKWELL) else len(order), "cuDNN")
    return next((kernel for kernel in order if kernel not in work.disabled), "memory-efficient")


def rates_of(works: Sequence[Attention], gpu: Gpu, unit: UnitClass, backward_ratio: float) -> FloatArray:
    """FLOPs per microsecond of an SM where the kernel has a rate of its own, else 0."""
    major = gpu.compute_capability[0]
    found = []
    for work in works:
        kernel = kernel_of(work, gpu)
        share = MEMORY_EFFICIENT_SHARE if kernel == "memory-efficient" else 1.0
        known = "FlashAttention 2" if kernel == "memory-efficient" else kernel
        rates = RATES.get((known, major)) if unit.element_bytes == 2 else None
        if rates is None or gpu.compute_capability[1]:
            found.append(0.0)
            continue
        rate = float(np.interp(max(work.head_dim, work.value_head_dim), (64, 128), rates)) * share
        if work.is_backward:
            rate *= BACKWARD_SHARE.get(known, backward_ratio)
        if kernel == "cuDNN":
            rate /= CUDNN_DROPOUT if work.has_dropout else CUDNN_MASKED if work.has_mask else 1.0
        found.append(rate * gpu.boost_mhz)
    return np.array(found)


def diagonal_keys(works: Sequence[Attention], gpu: Gpu) -> FloatArray:
    """Keys and queries of the blocks on the diagonal, half of which causal attention computes for nothing."""
    return np.array([DIAGONAL_KEYS.get(kernel_of(work, gpu), KEY_BLOCK) for work in works])


def blocks_us(works: Sequence[Attention], gpu: Gpu) -> FloatArray:
    """Time of a block of queries beside its products, of kernels that have a rate of their own."""
    major = gpu.compute_capability[0]
    return np.array(
        [
            BACKWARD_BLOCK_US if w.is_backward else OWN_BLOCK_US.get((kernel_of(w, gpu), major), BLOCK_US)
            for w in works
        ]
    )


def slowdown(works: Sequence[Attention], gpu: Gpu, unit: UnitClass) -> FloatArray:
    """Share of FlashAttention 2's rates that is reached where the memory-efficient kernel runs in 16 bits."""
    slow = unit.element_bytes == 2 and gpu.compute_capability >= (8, 0)
    return np.array(
        [MEMORY_EFFICIENT_SHARE if slow and kernel_of(w, gpu) == "memory-efficient" else 1.0 for w in works]
    )
