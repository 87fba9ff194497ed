"""The time of matrix products C[M,N] = A[M,K] B[K,N], vectorised over many.

A library picks a tile of C per thread block and, when there are too few tiles for the SMs, splits K. The
model does the same over a short list of both and takes the fastest:

    time = launch + (math^p + l2^p + memory^p)^(1/p) + split-K reduction

`math` counts whole waves of full tiles, `l2` the operand traffic of the tiles, `memory` the bytes of A, B
and C, of which a part may still lie in the L2. Constants: tclint.cost.kernels.constants.GemmConstants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tclint.cost.gpu import Gpu
from tclint.cost.kernels.constants import GemmConstants
from tclint.cost.math_units import UnitClass
from tclint.cost.rows import FloatArray

# A short list predicts the steps in cuBLAS's times better than a long one does.
TENSOR_TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
# cuBLAS has them for narrow matrices alone (wmma kernels of 16x16 and 32x32 in published traces).
NARROW_TILES = ((128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64), (16, 16))
NARROW = 32
# Kernels for CUDA cores exist for narrow matrices too.
CUDA_TILES = (*TENSOR_TILES, (128, 32), (32, 128), (64, 32), (32, 64), (32, 32))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)

TENSOR_K_STEP = 32
CUDA_K_STEP = 8
"""Elements of K per main-loop step; K is padded to it."""
PIPELINE_K = 128
"""Elements of K that the pipeline of loads holds; shorter products fill a part of it."""
LARGEST_TILE = 256 * 128
POWER_SCALE_US = 1000.0
"""Kernel time at which half of GemmConstants.power_slowdown applies."""
LONG_ROW_BYTES = 2.0**17
"""Length of the rows of A and B in memory at which half of GemmConstants.long_k_slowdown applies."""
ONE_TILE_SIDES = (16, 128)
"""The largest shorter and longer side of a result that one tile holds (is_unsplit)."""
UNSPLIT_STEP_NS = 2.9
"""Time per element of K of such products: 274 to 330 us for 3 to 15 (odd) x 100 over 100,000 rows
(pytorch/pytorch#106469; 10 us for even sides)."""
UNSPLIT_FAR_STEP_NS = 22.0
"""The same where K lies in rows as far apart as LONG_ROW_BYTES: 685 ms for 16 x 3 over 30 million on an A100
(#146817; 5 ms for 16 x 2), 449 ms for 2 x 13 over 20.6 million (#125650; 1.3 ms padded)."""
GEMM_CHUNK = 4096
"""Products priced at once, so that the working set (products x tiles x splits) stays in the caches."""

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GemmShapes:
    """Many products as arrays of equal length; sizes in elements.

    `contiguous_*` are the sizes of the contiguous dims of A, B and C, which decide alignment;
    `k_contiguous` says whether that dim is K in both operands (x @ W.T).
    """

    m: FloatArray
    n: FloatArray
    k: FloatArray
    batch: FloatArray
    contiguous_a: FloatArray
    contiguous_b: FloatArray
    contiguous_c: FloatArray
    k_contiguous: BoolArray
    a_bytes: FloatArray | None = None
    """DRAM bytes of A where they are not m * k elements (convolutions)."""
    b_bytes: FloatArray | None = None
    rate_factor: FloatArray | None = None
    """Main-loop time relative to an aligned GEMM, instead of the alignment law."""

    def __len__(self) -> int:
        return len(self.m)

    @classmethod
    def of(
        cls,
        m: npt.ArrayLike,
        n: npt.ArrayLike,
        k: npt.ArrayLike,
        batch: npt.ArrayLike = 1,
        *,
        a_contiguous_is_k: npt.ArrayLike = True,
        b_contiguous_is_k: npt.ArrayLike = True,
        c_contiguous_is_n: npt.ArrayLike = True,
    ) -> GemmShapes:
        """From sizes and layouts, broadcast against each other; the defaults are a linear's forward."""
        arrays = np.broadcast_arrays(m, n, k, batch, a_contiguous_is_k, b_contiguous_is_k, c_contiguous_is_n)
        fm, fn, fk, fb = (np.atleast_1d(array).astype(np.float64) for array in arrays[:4])
        ak, bk, cn = (np.atleast_1d(array).astype(bool) for array in arrays[4:])
        return cls(
            fm,
            fn,
            fk,
            fb,
            contiguous_a=np.where(ak, fk, fm),
            contiguous_b=np.where(bk, fk, fn),
            contiguous_c=np.where(cn, fn, fm),
            k_contiguous=ak & bk,
        )

    def take(self, index: npt.NDArray[np.intp]) -> GemmShapes:
        columns = (getattr(self, column.name) for column in fields(self))
        taken: list[Any] = [None if column is None else column[index] for column in columns]
        return GemmShapes(*taken)


@dataclass(frozen=True)
class GemmTimes:
    """Times in microseconds and the choices behind them, one element per product."""

    time_us: FloatArray
    math_us: FloatArray
    latency_us: FloatArray
    """Beside the arithmetic: filling and emptying tiles, steps of the main loop that wait for the last one,
    and SMs without a tile."""
    l2_us: FloatArray
    memory_us: FloatArray
    is_vector: BoolArray
    """Computed by a matrix-vector kernel."""
    tile_m: FloatArray
    tile_n: FloatArray
    split_k: FloatArray
    waves: FloatArray
    """Tiles per SM, split-K slices counted."""
    tile_efficiency: FloatArray


def alignment_elements(size: FloatArray, largest: int = 16) -> FloatArray:
    """The largest power of two, up to `largest`, that divides each size."""
    whole = size.astype(np.int64)
    lowest_bit = whole & -whole
    return np.clip(np.where(whole > 0, lowest_bit, largest), 1, largest).astype(np.float64)


def misalignment_factor(shapes: GemmShapes, unit: UnitClass, constants: GemmConstants) -> FloatArray:
    """Main-loop time relative to aligned operands, decided by the worst of the three contiguous dims.

    Tensor Core kernels load 16 bytes at a time; the law is measured on compute capability 8.0 with
    spread +-5 % and applied to the others too (uncalibrated there). CUDA-core kernels do not care.
    """
    if not unit.tensor_cores or unit.element_bytes > 4:
        return np.ones(len(shapes))
    worst = np.minimum(
        np.minimum(alignment_elements(shapes.contiguous_a), alignment_elements(shapes.contiguous_b)),
        alignment_elements(shapes.contiguous_c),
    )
    # Counted in 16-bit elements, so that 8 always means 16 bytes.
    worst = worst * unit.element_bytes / 2
    odd = np.where(
        shapes.k_contiguous & (shapes.k % 2 == 1), constants.misaligned_1_tn, constants.misaligned_1
    )
    return np.select(
        [worst >= 8, worst >= 4, worst >= 2],
        [
            np.ones(len(shapes)),
            np.full(len(shapes), constants.misaligned_4),
            np.full(len(shapes), constants.misaligned_2),
        ],
        odd,
    )


def is_unsplit(shapes: GemmShapes, gpu: Gpu, unit: UnitClass) -> BoolArray:
    """Whether products are so narrow, and of odd sizes, that cuBLAS has no kernel which splits their K: in
    bf16 before Hopper (the condition of Inductor's pad_mm). One SM walks all of K and waits for the loads of
    every step."""
    if unit.name != "bf16" or gpu.compute_capability >= (9, 0) or shapes.rate_factor is not None:
        return np.zeros(len(shapes), dtype=bool)
    shorter, longer = np.minimum(shapes.m, shapes.n), np.maximum(shapes.m, shapes.n)
    odd = (shapes.contiguous_a % 2 == 1) | (shapes.contiguous_b % 2 == 1) | (shapes.contiguous_c % 2 == 1)
    found: BoolArray = odd & (shorter > 1) & (shorter <= ONE_TILE_SIDES[0]) & (longer <= ONE_TILE_SIDES[1])
    return found


def gemm_times(shapes: GemmShapes, gpu: Gpu, unit: UnitClass, constants: GemmConstants) -> GemmTimes:
    """Predict the kernel times of many products on one GPU."""
    narrow = (np.minimum(shapes.m, shapes.n) <= NARROW) & unit.tensor_cores
    order = np.concatenate([np.flatnonzero(~narrow), np.flatnonzero(narrow)])
    wide = int(len(shapes) - narrow.sum())
    parts = []
    for first, last, known in (
        (0, wide, TENSOR_TILES if unit.tensor_cores else CUDA_TILES),
        (wide, len(shapes), TENSOR_TILES + NARROW_TILES),
    ):
        for start in range(first, last, GEMM_CHUNK):
            chunk = shapes.take(order[start : min(start + GEMM_CHUNK, last)])
            parts.append(_chunk_times(chunk, gpu, unit, constants, _tiles(known, constants)))
    if not parts:
        return _chunk_times(shapes, gpu, unit, constants, _tiles(TENSOR_TILES, constants))
    back = np.argsort(order)
    names = [column.name for column in fields(GemmTimes)]
    return GemmTimes(*(np.concatenate([getattr(part, name) for part in parts])[back] for name in names))


def _tiles(known: Sequence[tuple[int, int]], constants: GemmConstants) -> FloatArray:
    """(M, N) of the tiles that the library has kernels for."""
    tiles = np.array(known, dtype=np.float64)
    within = (tiles >= constants.least_tile_side) & (tiles <= constants.most_tile_side)
    return tiles[within.all(axis=1)]


def _chunk_times(
    shapes: GemmShapes, gpu: Gpu, unit: UnitClass, constants: GemmConstants, tiles: FloatArray
) -> GemmTimes:
    c = constants
    k_step = TENSOR_K_STEP if unit.tensor_cores else CUDA_K_STEP
    # Axes: product, tile, split.
    m, n, k, batch = (array[:, None, None] for array in (shapes.m, shapes.n, shapes.k, shapes.batch))
    tile_m, tile_n = tiles[None, :, :1], tiles[None, :, 1:]
    # Batched kernels do not split K.
    splits = SPLITS if shapes.batch.min(initial=2) <= 1 else SPLITS[:1]
    split = np.array(splits, dtype=np.float64)[None, None, :]
    sms = float(gpu.sm_count)
    bytes_per_us = 1e3 * gpu.dram_gb_per_s
    l2_bytes_per_us = 1e3 * gpu.l2_gb_per_s
    known = gpu.sustained.get(unit.name, gpu.sustained.get(unit.calibration))
    efficiency = c.math_efficiency if known is None else known
    flop_per_us_per_sm = 1e6 * gpu.peak_tflops[unit.name] * efficiency / sms / unit.work_factor
    # Convolutions have been padded already and give a factor of their own for the main loop.
    slowdown: FloatArray | float = 1.0
    loop_factor: FloatArray | float = 1.0
    if shapes.rate_factor is None:
        slowdown = misalignment_factor(shapes, unit, c)[:, None, None]
    else:
        loop_factor = shapes.rate_factor[:, None, None]

    k_slice = np.ceil(k / (split * k_step)) * k_step
    count = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch * split
    waves = count / sms
    rounds = c.wave_rounding * np.ceil(waves) + (1 - c.wave_rounding) * np.maximum(waves, 1.0)
    resident = np.clip(np.floor(c.occupancy * LARGEST_TILE / (tile_m * tile_n)), 1, 8)
    resident_rounds = np.ceil(rounds / resident)
    is_batched = batch > 1
    per_tile_us = 2 * tile_m * tile_n * k_slice / flop_per_us_per_sm
    per_tile_us = per_tile_us * (1 + c.tile_overhead * (64 / tile_m + 64 / tile_n)) * loop_factor
    long_rows = 1 / (1 + (LONG_ROW_BYTES / (k * unit.element_bytes)) ** 4)
    per_tile_us = per_tile_us * (1 + c.long_k_slowdown * long_rows)
    loop_us = rounds * per_tile_us
    unsplit = is_unsplit(shapes, gpu, unit)[:, None, None]
    in_rows = ((shapes.contiguous_a == shapes.k) | (shapes.contiguous_b == shapes.k))[:, None, None]
    waiting_ns = UNSPLIT_STEP_NS + (UNSPLIT_FAR_STEP_NS - UNSPLIT_STEP_NS) * long_rows * in_rows
    step_ns = np.where(unsplit, waiting_ns / slowdown, c.k_step_ns)
    busy_us = np.maximum(loop_us, resident_rounds * k_slice * (step_ns / 1e3))
    # Only long kernels at full rate heat the chip up to its power limit.
    throttled = 1 + c.power_slowdown * busy_us / (busy_us + POWER_SCALE_US)
    in_step = gpu.step_slowdown.get(unit.calibration, 1.0) if unit.tensor_cores else 1.0
    throttled = throttled * in_step
    filled = np.minimum(k_slice / PIPELINE_K, 1.0)
    filling_us = resident_rounds * (c.prologue_us * filled + c.epilogue_us * tile_m * tile_n / LARGEST_TILE)
    # Narrow loads and stores slow down everything but DRAM.
    # While few tiles are computed, the other SMs wait.
    math_us = loop_us * np.minimum(waves, 1.0) * throttled * slowdown
    latency_us = (busy_us * throttled + filling_us) * slowdown - math_us

    operand_bytes = count * (tile_m + tile_n) * k_slice * unit.element_bytes
    l2_us = in_step * slowdown * operand_bytes / (l2_bytes_per_us * c.l2_operand_ratio)

    size = float(unit.element_bytes)
    a_bytes = m * k * batch * size if shapes.a_bytes is None else shapes.a_bytes[:, None, None]
    b_bytes = k * n * batch * size if shapes.b_bytes is None else shapes.b_bytes[:, None, None]
    c_elements = m * n * batch
    moved = a_bytes + b_bytes + c_elements * size
    l2_bytes = c.l2_capacity_share * gpu.l2_mib * 2**20
    in_l2 = np.clip(l2_bytes / moved, 0, 1) ** c.l2_residency_exponent
    memory_us = moved * (1 - in_l2) / (bytes_per_us * c.dram_efficiency)
    memory_us = memory_us + moved * in_l2 / (l2_bytes_per_us * c.l2_efficiency)
    # Few thread blocks cannot draw the whole bandwidth.
    drawn = np.minimum(count, sms) / sms * bytes_per_us * c.sm_bandwidth_ratio
    memory_us = np.maximum(memory_us, operand_bytes / drawn)
    # What is odd is loaded element by element.
    odd = min(c.misaligned_1, c.misaligned_1_tn)
    memory_us = memory_us * np.where(slowdown >= odd, c.misaligned_memory, 1.0)

    p = c.softness
    core_us = ((math_us + latency_us) ** p + l2_us**p + memory_us**p) ** (1 / p)
    # Partial sums are written and read in fp32.
    reduction_us = c.split_k_us + split * c_elements * 8 / (l2_bytes_per_us * c.split_k_bandwidth)
    time_us = c.launch_us + core_us + np.where(split > 1, reduction_us, 0.0)
    time_us = np.where((is_batched | unsplit) & (split > 1), np.inf, time_us)
    is_gemv = np.minimum(np.minimum(m, n), k) <= 1
    # Two vectors' worth of work never costs less than one's.
    gemv_us = np.minimum(c.gemv_launch_us + memory_us * c.gemv_memory_factor, time_us)
    is_gemv = np.broadcast_to(is_gemv, time_us.shape)
    time_us = np.where(is_gemv, gemv_us, time_us)
    on_tiles = ~is_gemv

    best = time_us.reshape(len(shapes), -1).argmin(axis=1)
    rows = np.arange(len(shapes))

    def chosen(values: Any) -> Any:
        return np.broadcast_to(values, time_us.shape).reshape(len(shapes), -1)[rows, best]

    best_m, best_n = chosen(tile_m), chosen(tile_n)
    computed = np.ceil(shapes.m / best_m) * best_m * np.ceil(shapes.n / best_n) * best_n
    return GemmTimes(
        time_us=chosen(time_us),
        math_us=chosen(math_us * on_tiles),
        latency_us=chosen(latency_us * on_tiles),
        l2_us=chosen(l2_us * on_tiles),
        memory_us=chosen(memory_us),
        is_vector=chosen(is_gemv),
        tile_m=best_m,
        tile_n=best_n,
        split_k=chosen(split),
        waves=chosen(waves),
        tile_efficiency=shapes.m * shapes.n / computed,
    )
