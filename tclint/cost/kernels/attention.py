"""The time of fused attention: products that stay on the chip, without traffic for the S x S scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tclint.cost.gpu import Gpu
from tclint.cost.kernels.attention_kernels import (
    DRAM_SHARE,
    KEY_BLOCK,
    LAUNCH_US,
    blocks_us,
    diagonal_keys,
    rates_of,
    slowdown,
)
from tclint.cost.kernels.constants import AttentionConstants
from tclint.cost.kernels.matmul import BoolArray
from tclint.cost.math_units import UnitClass
from tclint.cost.rows import FloatArray
from tclint.graph.lowering.work import Attention

QUERY_BLOCK = 128
HEAD_DIM_GRANULARITY = 32
"""Head dims are padded to it inside the kernel."""


@dataclass(frozen=True)
class AttentionTimes:
    """Times in microseconds, one element per attention."""

    time_us: FloatArray
    math_us: FloatArray
    memory_us: FloatArray
    waves: FloatArray
    wave_efficiency: FloatArray
    bytes_read: FloatArray
    bytes_written: FloatArray
    told: BoolArray
    """Priced by rates of tclint.cost.kernels.attention_kernels."""


def attention_times(
    works: Sequence[Attention], gpu: Gpu, unit: UnitClass, constants: AttentionConstants
) -> AttentionTimes:
    """Predict the kernel times of many fused attentions of one precision on one GPU.

    Causal attention computes the blocks of scores that touch the lower triangle: about half.
    """
    c = constants

    def column(name: str) -> FloatArray:
        return np.array([getattr(work, name) for work in works], dtype=np.float64)

    batch, heads, kv_heads = column("batch"), column("heads"), column("kv_heads")
    queries, keys = column("query_length"), column("key_length")
    head_dim, value_dim = column("head_dim"), column("value_head_dim")
    causal, masked = column("is_causal") > 0, column("has_mask") > 0
    backward = column("is_backward") > 0
    size = float(unit.element_bytes)

    qk_dim = np.ceil(head_dim / HEAD_DIM_GRANULARITY) * HEAD_DIM_GRANULARITY
    pv_dim = np.ceil(value_dim / HEAD_DIM_GRANULARITY) * HEAD_DIM_GRANULARITY
    dims = np.where(backward, 3 * qk_dim + 2 * pv_dim, qk_dim + pv_dim)
    # The diagonal blocks are computed whole.
    triangle = np.minimum(keys, (keys + diagonal_keys(works, gpu)) / 2)
    seen_keys = np.where(causal, triangle, keys * column("seen_share"))
    # A single query packs the heads that share keys into one block.
    packed = (queries == 1) & (kv_heads < heads) & ~backward
    rows = np.where(packed, heads / kv_heads, queries)
    block_queries = np.minimum(np.ceil(rows / 16) * 16, QUERY_BLOCK)
    blocks = batch * np.where(packed, kv_heads, heads) * np.ceil(rows / QUERY_BLOCK)
    waves = blocks / gpu.sm_count
    rounds = c.wave_rounding * np.ceil(waves) + (1 - c.wave_rounding) * np.maximum(waves, 1.0)
    efficiency = np.interp(
        np.log2(np.maximum(qk_dim, pv_dim)),
        np.log2((64, 128, 192, 256, 257)),
        (
            c.math_efficiency_64,
            c.math_efficiency_128,
            c.math_efficiency_192,
            c.math_efficiency_256,
            c.math_efficiency_512,
        ),
    )
    efficiency = efficiency * np.where(backward, c.backward_ratio, 1.0) * slowdown(works, gpu, unit)
    sustained = gpu.sustained.get(unit.calibration)
    if sustained is not None:
        efficiency = np.minimum(efficiency, sustained)
    flop_per_us_per_sm = 1e6 * gpu.peak_tflops[unit.name] * efficiency / gpu.sm_count / unit.work_factor
    per_block_us = 2 * block_queries * seen_keys * dims / flop_per_us_per_sm
    latency_us = np.ceil(seen_keys / KEY_BLOCK) * c.key_block_us * np.where(backward, 2.5, 1.0)
    in_step = gpu.step_slowdown.get(unit.calibration, 1.0) if unit.tensor_cores else 1.0
    math_us = in_step * rounds * (c.block_us + np.maximum(per_block_us, latency_us))

    q_bytes = batch * heads * queries * head_dim * size
    kv_bytes = batch * kv_heads * keys * (head_dim + value_dim) * size
    out_bytes = batch * heads * queries * value_dim * size
    mask_bytes = np.where(masked, batch * queries * keys * size, 0.0)
    read = q_bytes + kv_bytes + mask_bytes + np.where(backward, 2 * out_bytes, 0.0)
    written = np.where(backward, q_bytes + kv_bytes, out_bytes)
    memory_us = (read + written) / (1e3 * gpu.dram_gb_per_s * c.dram_efficiency)
    p = c.softness
    time_us = c.launch_us + (math_us**p + memory_us**p) ** (1 / p)
    rates = rates_of(works, gpu, unit, c.backward_ratio)
    own = rates > 0
    own_us = (in_step * np.maximum(waves, 1.0)) * (
        blocks_us(works, gpu) + 2 * block_queries * seen_keys * dims / np.where(own, rates, 1.0)
    )
    math_us = np.where(own, own_us, math_us)
    memory_us = np.where(own, (read + written) / (1e3 * gpu.dram_gb_per_s * DRAM_SHARE), memory_us)
    return AttentionTimes(
        time_us=np.where(own, LAUNCH_US + np.maximum(math_us, memory_us), time_us),
        math_us=math_us,
        memory_us=memory_us,
        waves=waves,
        wave_efficiency=waves / np.ceil(waves),
        bytes_read=read,
        bytes_written=written,
        told=own,
    )
