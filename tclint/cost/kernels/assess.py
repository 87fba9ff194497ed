"""From times to prices: what limits a kernel, how far it is from the peak, and how sure its time is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tclint.cost.gpu import Calibration, Gpu, load_gpu
from tclint.cost.kernels.constants import TrafficConstants
from tclint.cost.kernels.matmul import BoolArray, GemmTimes
from tclint.cost.kernels.walking import all_sms_us, walk_cycles
from tclint.cost.math_units import UnitClass
from tclint.cost.rows import READY_FRACTION, READY_MEMORY_FRACTION, FloatArray, Limiter, Price
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
    walking_us = all_sms_us(np.array([walk_cycles(work) for work in works]), gpu)
    total: FloatArray = waiting_us + np.maximum(dram_us + l2_us, walking_us) + rows_us
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


STAND_IN_FACTOR = 1.5
"""Held-out errors are multiplied by this where constants stand in for another GPU or precision: GEMM
constants moved between generations were 11.7 % wrong where they were 8 % wrong at home."""
NOISE_FLOOR_PERCENT = 7.0
"""No uncertainty below this is stated: two campaigns on one GPU model disagree by a median of 7 % (H100) to
8 % (A100), whatever a fit to one of them says."""
OTHER_FORMAT_ERROR_PERCENT = 28.0
"""No uncertainty below this is stated where constants of another precision class stand in: those of 16 bits
were 28 % (A100 PCIe) and 21 % (V100 PCIe) wrong on 4,000 fp32 linear layers each."""
OTHER_GENERATION_ERROR_PERCENT = 25.0
"""No uncertainty below this is stated where constants come from GPUs that run other kernels: the A100's were
13 % wrong on the V100 and 47 % on the H100, the V100's 25 % on the A100 (16-bit products)."""
OTHER_MEMORY_ERROR_PERCENT = 15.0
"""The same for memory-bound kernels, whose L2s and start times differ: constants of the A100 were 23 to 33 %
wrong on the H100's sums and norms, 3 to 10 % on those of the A100 PCIe and the V100."""
_KERNELS_OF = {"volta": 70, "turing": 70, "ampere": 80, "ada": 80, "hopper": 90, "blackwell": 100}
"""Generations whose Tensor Cores are programmed alike, and which the libraries' kernels serve together."""
WALKED_ERROR_PERCENT = 15.0
"""The same for memory-bound kernels that find their elements one by one: twice the error on the public traces
that ELEMENT_CYCLES and its kin were taken from."""
TOLD_ERROR_PERCENT = 20.0
"""The same for attention kernels whose rates come from a few times that people told."""
THIN_ERROR_PERCENT = 50.0
"""No uncertainty below this is stated for kernels that only a few models or traces show."""
UNKNOWN_ERROR_PERCENT = 40.0
"""Stated where no measurement of the kind exists at all; about what a plain roofline is wrong by."""
LIMITER_OF_PART: Mapping[str, Limiter] = {
    "math": "math",
    "latency": "latency",
    "L2": "memory",
    "memory": "memory",
    "layout copies": "memory",
    "launch": "latency",
}
"""What a kernel is limited by when this part of its time is the largest."""


@cache
def _runs_other_kernels(donor: str, generation: str) -> bool:
    return _KERNELS_OF.get(load_gpu(donor.partition(" ")[0]).generation) != _KERNELS_OF.get(generation)


def uncertainty_percent(calibration: Calibration | None, gpu: Gpu, time_us: float, modelled: bool) -> float:
    """Mean error of a kernel of about that time: held out where measured, larger where constants stand in.

    `modelled`: the constants are of the precision class that runs.
    """
    if calibration is None:
        return UNKNOWN_ERROR_PERCENT
    error = max(calibration.error_percent(time_us), NOISE_FLOOR_PERCENT)
    if calibration.inherited_from is not None:
        error *= STAND_IN_FACTOR
        if calibration.kind == "traffic":
            error = max(error, OTHER_MEMORY_ERROR_PERCENT)
        if _runs_other_kernels(calibration.inherited_from, gpu.generation):
            error = max(error, OTHER_GENERATION_ERROR_PERCENT)
    return error if modelled else max(error, OTHER_FORMAT_ERROR_PERCENT)


def limiter(parts_us: Iterable[tuple[str, float]]) -> Limiter:
    """What the largest part stands for."""
    return LIMITER_OF_PART[max(parts_us, key=lambda part: part[1])[0]]


def matrix_prices(
    gpu: Gpu,
    unit: UnitClass,
    calibration: Calibration | None,
    *,
    time_us: FloatArray,
    flops: Sequence[int],
    saved_math: float | FloatArray = 1.0,
    bytes_read: FloatArray,
    bytes_written: FloatArray,
    aligned: Sequence[bool],
    uses_tensor_cores: Sequence[bool] | None = None,
    thin: Sequence[bool] | BoolArray | None = None,
    reasons: Sequence[str] | None = None,
    gemm: GemmTimes | None = None,
    parts: Mapping[str, float | FloatArray],
) -> list[Price]:
    """Prices from arrays; what GEMMs, convolutions and attention have in common.

    `parts`: microseconds that each limit alone would take. `thin`: measured too rarely to state less than
    THIN_ERROR_PERCENT. `saved_math`: FLOPs over those that the kernel really does, which the share of peak
    counts.
    """
    count = len(flops)
    flop = np.array(flops, dtype=np.float64)
    moved = bytes_read + bytes_written
    ideal_math_us = flop * unit.work_factor / saved_math / (1e6 * gpu.peak_tflops[unit.name])
    ideal_memory_us = moved / (1e3 * gpu.dram_gb_per_s)
    fraction = ideal_math_us / time_us
    memory_fraction = ideal_memory_us / time_us
    tensor_cores = [unit.tensor_cores] * count if uses_tensor_cores is None else uses_tensor_cores
    texts = [unit.reason] * count if reasons is None else reasons
    calibrated = unit.modelled and calibration is not None and calibration.inherited_from is None
    alone = [np.broadcast_to(np.asarray(part, dtype=np.float64), count).tolist() for part in parts.values()]
    tilings = _tilings(gemm, count)
    parts_us = [tuple(zip(parts, values, strict=True)) for values in zip(*alone, strict=True)]
    limiters = [limiter(row) for row in parts_us]
    prices = []
    for i in range(count):
        time = float(time_us[i])
        well_used = fraction[i] >= READY_FRACTION or (
            limiters[i] == "memory" and memory_fraction[i] >= READY_MEMORY_FRACTION
        )
        prices.append(
            Price(
                time_us=time,
                flops=flops[i],
                bytes_read=int(bytes_read[i]),
                bytes_written=int(bytes_written[i]),
                limiter=limiters[i],
                balance=gpu.balance(unit.name),
                uses_tensor_cores=bool(tensor_cores[i]),
                tensor_core_reason=texts[i],
                uncertainty_percent=max(
                    uncertainty_percent(calibration, gpu, time, unit.modelled),
                    THIN_ERROR_PERCENT if thin is not None and thin[i] else 0.0,
                ),
                calibrated=calibrated,
                fraction_of_peak=float(fraction[i]),
                is_efficient=bool(tensor_cores[i] and aligned[i] and well_used),
                parts_us=parts_us[i],
                **tilings[i],
            )
        )
    return prices


def _tilings(gemm: GemmTimes | None, count: int) -> list[dict[str, Any]]:
    """What products add to a price."""
    if gemm is None:
        return [{}] * count
    columns = {
        "tile": zip(gemm.tile_m.astype(int).tolist(), gemm.tile_n.astype(int).tolist(), strict=True),
        "split_k": gemm.split_k.astype(int).tolist(),
        "waves": gemm.waves.tolist(),
        "tile_efficiency": gemm.tile_efficiency.tolist(),
        "wave_efficiency": (gemm.waves / np.ceil(gemm.waves)).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
