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
    ("cuDNN", BLACKWELL): (4400.0, 5900.0),
}
"""FLOPs per cycle of an SM, for head dims of 64 and 128, beside BLOCK_US.

FlashAttention 2's instructions are Ampere's: as fast on an H100 as on a B200, in ten times of public threads.
cuDNN's of 64 on Hopper: 293 us for batch 8, 16 heads, 2,048 tokens on an H100 (torch 2.11); its other rates
are assumed: those of 128 on Hopper from what it reaches elsewhere, on Blackwell those of FlashAttention 4,
which are from two times at 128."""
BLOCK_US, BACKWARD_BLOCK_US = 2.4, 12.0
"""Time of a block of queries beside its products, from lengths of 512 and 1,024 in those threads."""
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
    """Which fused kernel runs: as torch chooses from 2.10 on.

    On Hopper and data-centre Blackwell cuDNN's comes first (`check_prefer_cudnn_attention` in
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp); it wants head dims that are multiples of 8, up to
    256. FlashAttention 2 wants 16 bits, Ampere and no mask. The rest is the memory-efficient kernel's.
    """
    if work.kernel is not None:
        return work.kernel
    dims = (work.head_dim, work.value_head_dim)
    if work.dtype not in ("float16", "bfloat16") or gpu.compute_capability < (8, 0):
        return "memory-efficient"
    if gpu.compute_capability[0] in (HOPPER, BLACKWELL) and max(dims) <= 256 and not any(d % 8 for d in dims):
        return "cuDNN"
    return "memory-efficient" if work.has_mask else "FlashAttention 2"


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


def slowdown(works: Sequence[Attention], gpu: Gpu, unit: UnitClass) -> FloatArray:
    """Share of FlashAttention 2's rates that is reached where the memory-efficient kernel runs in 16 bits."""
    slow = unit.element_bytes == 2 and gpu.compute_capability >= (8, 0)
    return np.array(
        [MEMORY_EFFICIENT_SHARE if slow and kernel_of(w, gpu) == "memory-efficient" else 1.0 for w in works]
    )
