"""The time of memory-bound kernels: bytes over the bandwidth that their class achieves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tclint.cost.gpu import Gpu
from tclint.cost.kernels.constants import TrafficConstants
from tclint.cost.rows import FloatArray
from tclint.graph.lowering.work import Traffic
from tclint.graph.ops.spec import itemsize_bytes

L2_LATENCY_GAIN = 2.0
"""How much more an SM draws from the L2 than from DRAM with equally many loads in flight: the latencies
differ so (about 270 and 570 cycles on the A100)."""
RESIDENCY_EXPONENT = 1.5
"""How sharply residency falls when the tensors outgrow their part of the L2."""
WIDE_ACCESS_BYTES = 16
"""What a thread loads at once. Rows that start elsewhere are read element by element, and an SM's rate falls
so (`can_vectorize` of layer_norm_kernel.cu; SoftMax.cu's kernels of more than 1,024 columns)."""
WARP_COLUMNS = 1024
"""Softmax up to so many columns keeps a row in the registers of a warp, without vector loads at any size."""


def traffic_times_us(works: Sequence[Traffic], gpu: Gpu, constants: TrafficConstants) -> FloatArray:
    """Predicted microseconds of memory-bound kernels.

    The part that fits the L2 may still lie there from the kernel before and is served at its speed, which is
    never below DRAM's. Kernels with a block per row draw no more than the SMs that have a row can.
    """
    moved, launches, rows = (
        np.array(column, dtype=np.float64)
        for column in (
            [w.bytes_read + w.bytes_written for w in works],
            [w.launches for w in works],
            [w.rows for w in works],
        )
    )
    width = np.array([_access_share(w) for w in works])
    active = np.where(rows > 0, np.minimum(rows, gpu.sm_count), gpu.sm_count)
    sm_rate = active * gpu.boost_mhz * constants.sm_bytes_per_clock * width
    dram_rate = np.minimum(1e3 * gpu.dram_gb_per_s * constants.dram_efficiency, sm_rate)
    l2_rate = np.minimum(1e3 * gpu.l2_gb_per_s * constants.l2_efficiency, L2_LATENCY_GAIN * sm_rate)
    cached = constants.l2_capacity_share * gpu.l2_mib * 2**20 * np.maximum(launches, 1)
    in_l2 = np.clip(cached / np.maximum(moved, 1.0), 0.0, 1.0) ** RESIDENCY_EXPONENT
    dram_us = moved * (1 - in_l2) / dram_rate
    l2_us = moved * in_l2 / np.maximum(l2_rate, dram_rate)
    rows_us = rows / gpu.sm_count * constants.row_us
    waiting_us = np.array([latency_us(work, constants) for work in works])
    total: FloatArray = waiting_us + dram_us + l2_us + rows_us
    return total


def latency_us(work: Traffic, constants: TrafficConstants) -> float:
    """What a kernel takes whatever it moves: its launches, and the levels of a column sum."""
    return work.launches * constants.launch_us + COLUMN_SUM_US * math.log2(max(work.summed, 1))


COLUMN_SUM_US = 1.0
"""Time for every doubling of the rows that a column sum adds up, whose loads wait for one another and whose
blocks for the last one. From sums over 1,024 rows of 32 to 4,864 columns in a public trace of an A100; 32 and
16 rows on V100 agree."""


PAD_ACCESS_SHARE = 0.2
"""The same for padding, whose kernel works out where each element lies: about 1.8 times the time of a
copy."""


def _access_share(work: Traffic) -> float:
    """Part of WIDE_ACCESS_BYTES that a thread loads at once."""
    if work.operation == "constant_pad_nd":
        return PAD_ACCESS_SHARE
    itemsize = itemsize_bytes(work.dtype)
    if not work.columns or work.columns * itemsize % WIDE_ACCESS_BYTES == 0:
        return 1.0
    if work.traffic_class == "softmax":
        narrow = work.columns > WARP_COLUMNS
    else:
        narrow = "layer_norm" in work.operation or "rms_norm" in work.operation
    return itemsize / WIDE_ACCESS_BYTES if narrow else 1.0
