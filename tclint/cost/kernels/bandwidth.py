"""The time of memory-bound kernels: bytes over the bandwidth that their class achieves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tclint.cost.gpu import Gpu
from tclint.cost.kernels.constants import TrafficConstants
from tclint.cost.rows import FloatArray


def traffic_times_us(
    bytes_moved: npt.ArrayLike, launches: npt.ArrayLike, gpu: Gpu, constants: TrafficConstants
) -> FloatArray:
    """Predicted microseconds for kernels that read and write `bytes_moved` bytes in `launches` launches.

    The part that fits the L2 may still lie there from the kernel before and is served at its speed.
    """
    moved = np.asarray(bytes_moved, dtype=np.float64)
    count = np.asarray(launches, dtype=np.float64)
    cached = constants.l2_capacity_share * gpu.l2_mib * 2**20
    in_l2 = np.clip(cached / np.maximum(moved, 1.0), 0.0, 1.0)
    dram_us = moved * (1 - in_l2) / (1e3 * gpu.dram_gb_per_s * constants.dram_efficiency)
    l2_us = moved * in_l2 / (1e3 * gpu.l2_gb_per_s * constants.l2_efficiency)
    total: FloatArray = count * constants.launch_us + dram_us + l2_us
    return total
