"""From works to prices: grouped, deduplicated, priced as arrays, and remembered per GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tclint.config.settings import Precision
from tclint.cost.gpu import Calibration, Factor, Gpu
from tclint.cost.kernels.assess import (
    TOLD_ERROR_PERCENT,
    WALKED_ERROR_PERCENT,
    latency_us,
    limiter,
    matrix_prices,
    traffic_times_us,
    uncertainty_percent,
)
from tclint.cost.kernels.attention import attention_times
from tclint.cost.kernels.attention_kernels import kernel_of
from tclint.cost.kernels.constants import (
    AttentionConstants,
    ConstantsT,
    ConvolutionConstants,
    GemmConstants,
    TrafficConstants,
)
from tclint.cost.kernels.convolution import SMALL_CHANNELS, convolution_times
from tclint.cost.kernels.matmul import GemmShapes, gemm_times, is_unsplit, misalignment_factor
from tclint.cost.math_units import UnitClass, tf32_switches, unit_class
from tclint.cost.rows import Price
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work
from tclint.graph.ops.spec import itemsize_bytes

WorkT = TypeVar("WorkT", Gemm, Convolution, Attention, Traffic)

BATCHED = "_batched"
"""Suffix of the calibration class of batched products."""
CACHE_ENTRIES = 40_000
"""Works remembered per GPU and precision, of half a KiB each with its price: a fleet has millions of them."""
LARGEST_KNOWN_DEPTHWISE = 5
TF32_LEAST_K = 64
NO_TF32_KERNEL = "cuBLAS runs such a product in float32 on CUDA cores, TF32 or not"
_DATA_CLASS = {"float16": "half", "bfloat16": "half", "float32": "fp32"}
NO_VECTOR_KERNEL = "products with a vector run on CUDA cores"

_PRICES: dict[tuple[str, tuple[Factor, ...], bool, bool], dict[Work, Price | None]] = {}


def price_works(works: Sequence[Work], gpu: Gpu, precision: Precision) -> list[Price | None]:
    """Prices of works on one GPU, in order; None where tclint has no formula (the dtype is unknown).

    Equal works are priced once, and remembered for later calls.
    """
    switches = tf32_switches(precision)
    known = _PRICES.setdefault((gpu.id, gpu.factors, *switches), {})
    if len(known) > CACHE_ENTRIES:
        known.clear()
    new = [work for work in dict.fromkeys(works) if work not in known]
    if new:
        _price_new(new, gpu, *switches, known)
        if gpu.factors:
            _multiply(new, gpu, precision, known)
    return [known[work] for work in works]


def calibration_key(work: Work, gpu: Gpu, precision: Precision) -> tuple[str, str] | None:
    """Kind and precision that a user's own calibration has one factor for; None where no measured kernels of
    the same precision stand behind the price."""
    if isinstance(work, Traffic):
        return work.traffic_class, _DATA_CLASS.get(work.dtype, work.dtype)
    matmul_tf32, convolution_tf32 = tf32_switches(precision)
    kind, tf32 = "attention", matmul_tf32
    if isinstance(work, Gemm):
        kind, tf32 = "gemm", convolution_tf32 if work.in_cudnn else matmul_tf32
    elif isinstance(work, Convolution):
        kind, tf32 = "conv", convolution_tf32
    unit = unit_class(gpu, work.dtype, tf32=tf32)
    return None if unit is None or not unit.modelled else (kind, unit.calibration)


def _multiply(works: Iterable[Work], gpu: Gpu, precision: Precision, known: dict[Work, Price | None]) -> None:
    """Times by the factors of the user's own calibration, whose held-out errors become the uncertainties."""
    factors = {(factor.kind, factor.precision): factor for factor in gpu.factors}
    for work in works:
        price, key = known[work], calibration_key(work, gpu, precision)
        if price is not None and key in factors:
            by = factors[key].factor
            known[work] = replace(
                price,
                time_us=price.time_us * by,
                parts_us=tuple((name, part_us * by) for name, part_us in price.parts_us),
                fraction_of_peak=price.fraction_of_peak / by,
                uncertainty_percent=factors[key].error_percent,
                calibrated=True,
            )


def _price_new(
    works: Iterable[Work],
    gpu: Gpu,
    matmul_tf32: bool,
    convolution_tf32: bool,
    known: dict[Work, Price | None],
) -> None:
    gemms: dict[str, list[Gemm]] = defaultdict(list)
    recurrent: dict[str, list[Gemm]] = defaultdict(list)
    convolutions: dict[str, list[Convolution]] = defaultdict(list)
    attentions: dict[str, list[Attention]] = defaultdict(list)
    traffic: dict[tuple[str, str], list[Traffic]] = defaultdict(list)
    for work in works:
        if isinstance(work, Gemm):
            (recurrent if work.in_cudnn else gemms)[work.dtype].append(work)
        elif isinstance(work, Convolution):
            convolutions[work.dtype].append(work)
        elif isinstance(work, Attention):
            attentions[work.dtype].append(work)
        else:
            traffic[work.traffic_class, work.operation].append(work)

    def matrix(
        groups: dict[str, list[WorkT]],
        tf32: bool,
        price: Callable[[Sequence[WorkT], Gpu, UnitClass], list[Price]],
    ) -> None:
        for dtype, group in groups.items():
            unit = unit_class(gpu, dtype, tf32=tf32)
            prices = [None] * len(group) if unit is None else price(group, gpu, unit)
            known.update(zip(group, prices, strict=True))

    matrix(gemms, matmul_tf32, price_gemms)
    matrix(recurrent, convolution_tf32, price_gemms)
    matrix(convolutions, convolution_tf32, price_convolutions)
    matrix(attentions, matmul_tf32, price_attentions)
    for (traffic_class, operation), group in traffic.items():
        known.update(zip(group, _price_traffic(group, gpu, traffic_class, operation), strict=True))


def constants_of(
    gpu: Gpu, kind: str, precision_class: str, table: type[ConstantsT]
) -> tuple[ConstantsT, Calibration | None]:
    """Constants of a kind, falling back on the 16-bit class's, then on the documented defaults."""
    for key in (precision_class, "half"):
        calibration = gpu.calibration(kind, key)
        if calibration is not None:
            used = calibration if key == precision_class else calibration.inherited(gpu.id)
            return table(**calibration.constants), used
    return table(), None


def gemm_shapes(works: Sequence[Gemm]) -> GemmShapes:
    """Gemms of one dtype as arrays."""
    return GemmShapes.of(
        [w.m for w in works],
        [w.n for w in works],
        [w.k for w in works],
        [w.batch for w in works],
        a_contiguous_is_k=[w.a_contiguous == "k" for w in works],
        b_contiguous_is_k=[w.b_contiguous == "k" for w in works],
        c_contiguous_is_n=[w.c_contiguous == "n" for w in works],
    )


def leaves_tensor_cores(work: Gemm) -> bool:
    """Whether cuBLAS computes a product of float32 on CUDA cores though TF32 is allowed: of 146 sizes in
    traces of two A100s, all but 3 of those with a vector, or with a short K and a dim off 16 bytes, and no
    other."""
    if min(work.m, work.n, work.k) == 1:
        return True
    return work.k <= TF32_LEAST_K and any(size % 4 for _, size in work.contiguous)


def price_gemms(works: Sequence[Gemm], gpu: Gpu, unit: UnitClass) -> list[Price]:
    """Prices of matrix products that run in one class; repeats run one after the other.

    Batched products run other kernels than single ones, and have constants of their own where measured. Some
    products leave Tensor Cores where TF32 is allowed (leaves_tensor_cores).
    """
    left = [i for i, w in enumerate(works) if unit.name == "tf32" and leaves_tensor_cores(w)]
    if left:
        chosen_unit = replace(
            unit, name="fp32", calibration="fp32", tensor_cores=False, reason=NO_TF32_KERNEL
        )
        found = dict(zip(left, price_gemms([works[i] for i in left], gpu, chosen_unit), strict=True))
        others = [i for i in range(len(works)) if i not in found]
        found |= zip(
            others, price_gemms([works[i] for i in others], gpu, unit) if others else [], strict=True
        )
        return [found[i] for i in range(len(works))]
    batched = unit.calibration + BATCHED
    if gpu.calibration("gemm", batched) is None:
        return _price_gemms(works, gpu, unit, unit.calibration)
    prices: dict[int, Price] = {}
    for key, chosen in (
        (unit.calibration, [i for i, w in enumerate(works) if w.batch == 1]),
        (batched, [i for i, w in enumerate(works) if w.batch > 1]),
    ):
        if chosen:
            group = _price_gemms([works[i] for i in chosen], gpu, unit, key)
            prices.update(zip(chosen, group, strict=True))
    return [prices[i] for i in range(len(works))]


def _price_gemms(works: Sequence[Gemm], gpu: Gpu, unit: UnitClass, key: str) -> list[Price]:
    constants, calibration = constants_of(gpu, "gemm", key, GemmConstants)
    if unit.element_bytes == 1:
        # A step of the main loop takes 32 bytes of K whatever the elements are.
        constants = replace(constants, k_step_ns=constants.k_step_ns / 2)
    shapes = gemm_shapes(works)
    result_bytes = np.array(
        [itemsize_bytes(w.out_dtype) if w.out_dtype else unit.element_bytes for w in works], dtype=np.float64
    )
    if (result_bytes != unit.element_bytes).any():
        # What C's elements have more than the operands' is DRAM traffic like any other.
        wider = (result_bytes - unit.element_bytes) * shapes.m * shapes.n * shapes.batch
        operand = shapes.m * shapes.k * shapes.batch * unit.element_bytes
        shapes = replace(shapes, a_bytes=operand + wider)
    times = gemm_times(shapes, gpu, unit, constants)
    repeats = np.array([w.repeats for w in works], dtype=np.float64)
    elements = unit.element_bytes * shapes.batch * repeats
    factors = misalignment_factor(shapes, unit, constants)
    unsplit = is_unsplit(shapes, gpu, unit)
    reasons = [
        unit.reason
        if factor == 1
        else f"{unit.reason}, slowed by an odd side, for which no kernel splits K"
        if one_tile
        else f"{unit.reason}, slowed {factor:.2f}x by a misaligned contiguous dim"
        for factor, one_tile in zip(factors, unsplit, strict=True)
    ]
    vectors = [unit.tensor_cores and min(w.m, w.n, w.k) == 1 for w in works]
    return matrix_prices(
        gpu,
        unit,
        calibration,
        time_us=times.time_us * repeats,
        flops=[w.flops for w in works],
        bytes_read=(shapes.m * shapes.k + shapes.k * shapes.n) * elements,
        bytes_written=shapes.m * shapes.n * shapes.batch * repeats * result_bytes,
        aligned=[factor == 1 for factor in factors],
        uses_tensor_cores=[unit.tensor_cores and not vector for vector in vectors],
        # The law of misaligned sizes was measured on the A100; elsewhere a few products were.
        thin=unsplit | ((factors > 1) & (gpu.compute_capability != (8, 0))),
        reasons=[NO_VECTOR_KERNEL if v else reason for v, reason in zip(vectors, reasons, strict=True)],
        gemm=times,
        parts={
            "math": times.math_us * repeats,
            "latency": times.latency_us * repeats,
            "L2": times.l2_us * repeats,
            "memory": times.memory_us * repeats,
            "launch": constants.launch_us * repeats,
        },
    )


def price_convolutions(works: Sequence[Convolution], gpu: Gpu, unit: UnitClass) -> list[Price]:
    """Prices of convolutions that run in one class.

    Depthwise kernels use CUDA cores whatever TF32's switch says, and are bound by bytes: the shares that
    they reach are the ones measured in 16 bits. Where TF32 is allowed, cuDNN may still choose a float32
    kernel (Winograd, or one that reads NCHW as it lies): the faster of both counts.
    """
    if unit.element_bytes < 4:
        return _price_convolutions(works, gpu, unit, unit.calibration)
    cuda_cores = unit
    if unit.name == "tf32":
        cuda_cores = UnitClass(
            "fp32", "fp32", unit.element_bytes, False, "float32 kernels are faster than TF32's"
        )
    depthwise = [w for w in works if w.is_depthwise]
    dense = [w for w in works if not w.is_depthwise]
    prices = dict(zip(depthwise, _price_convolutions(depthwise, gpu, cuda_cores, "half"), strict=True))
    prices |= zip(dense, _price_convolutions(dense, gpu, unit, unit.calibration), strict=True)
    if cuda_cores is not unit:
        others = _price_convolutions(dense, gpu, cuda_cores, cuda_cores.calibration)
        for work, other in zip(dense, others, strict=True):
            if other.time_us < prices[work].time_us:
                prices[work] = other
    return [prices[work] for work in works]


def _price_convolutions(works: Sequence[Convolution], gpu: Gpu, unit: UnitClass, key: str) -> list[Price]:
    if not works:
        return []
    constants, calibration = constants_of(gpu, "conv", key, ConvolutionConstants)
    gemm_constants, _ = constants_of(gpu, "gemm", unit.calibration, GemmConstants)
    times = convolution_times(works, gpu, unit, gemm_constants, constants)
    reasons = []
    # Neither is a product: its time is that of its bytes, or of its arithmetic.
    no_product = times.depthwise | times.direct
    large_depthwise = [w.is_depthwise and max(w.kernel_size) > LARGEST_KNOWN_DEPTHWISE for w in works]
    # Ends up as a product of four channels, which no Tensor Core kernel exists for.
    pointwise = np.array([max(w.kernel_size) == 1 and w.groups == 1 for w in works], dtype=bool)
    thin_channels = np.array(
        [min(w.in_channels, w.out_channels) <= SMALL_CHANNELS for w in works], dtype=bool
    )
    on_cuda_cores = no_product | (pointwise & thin_channels)
    for depthwise, direct, padded, winograd, cuda_cores in zip(
        times.depthwise, times.direct, times.padded, times.winograd, on_cuda_cores, strict=True
    ):
        if depthwise:
            reasons.append("depthwise convolutions run on CUDA cores")
        elif direct:
            reasons.append("in NHWC there is no Tensor Core kernel for the gradients of such groups")
        elif winograd:
            reasons.append(f"{unit.reason}, with Winograd's fewer multiplications")
        elif cuda_cores and unit.tensor_cores:
            reasons.append("1x1 convolutions of at most 4 channels run on CUDA cores")
        elif padded and unit.tensor_cores:
            reasons.append(f"{unit.reason}, channels padded by the library")
        else:
            reasons.append(unit.reason)
    return matrix_prices(
        gpu,
        unit,
        calibration,
        time_us=times.time_us,
        flops=[w.flops for w in works],
        saved_math=np.where(times.winograd, constants.winograd_gain, 1.0),
        bytes_read=times.bytes_read,
        bytes_written=times.bytes_written,
        aligned=[not padded for padded in times.padded],
        uses_tensor_cores=[unit.tensor_cores and not cuda_cores for cuda_cores in on_cuda_cores],
        thin=times.patches | times.direct | times.fallback | large_depthwise,
        reasons=reasons,
        gemm=times.gemm,
        parts={
            "math": np.where(
                no_product,
                np.where(times.direct, times.time_us - constants.launch_us, 0.0),
                times.gemm.math_us,
            ),
            "latency": np.where(no_product, 0.0, times.gemm.latency_us),
            "L2": np.where(no_product, 0.0, times.gemm.l2_us),
            "memory": np.where(times.depthwise, times.time_us - constants.launch_us, times.gemm.memory_us),
            "layout copies": times.copies_us,
            "launch": constants.launch_us,
        },
    )


def price_attentions(works: Sequence[Attention], gpu: Gpu, unit: UnitClass) -> list[Price]:
    """Prices of fused attention that runs in one class."""
    constants, calibration = constants_of(gpu, "attention", unit.calibration, AttentionConstants)
    times = attention_times(works, gpu, unit, constants)
    prices = matrix_prices(
        gpu,
        unit,
        calibration,
        time_us=times.time_us,
        # Work.flops counts the full square of scores, of which a mask leaves a triangle or some blocks.
        flops=[w.flops for w in works],
        saved_math=np.array(
            [
                2 * w.key_length / (w.key_length + 1) if w.is_causal else 1 / max(w.seen_share, 1e-6)
                for w in works
            ]
        ),
        bytes_read=times.bytes_read,
        bytes_written=times.bytes_written,
        aligned=[w.head_dim % 8 == 0 and w.value_head_dim % 8 == 0 for w in works],
        reasons=[f"{unit.reason}, attention by {kernel_of(w, gpu)}" for w in works],
        parts={"math": times.math_us, "memory": times.memory_us, "launch": constants.launch_us},
    )
    return [
        replace(
            price,
            waves=float(waves),
            wave_efficiency=float(efficiency),
            uncertainty_percent=max(price.uncertainty_percent, TOLD_ERROR_PERCENT if told else 0.0),
        )
        for price, waves, efficiency, told in zip(
            prices, times.waves, times.wave_efficiency, times.told, strict=True
        )
    ]


def traffic_constants(
    gpu: Gpu, traffic_class: str, operation: str
) -> tuple[TrafficConstants, Calibration | None]:
    """Constants of an operation, else of its class, else of elementwise kernels."""
    for key in (operation, traffic_class):
        calibration = gpu.calibration("traffic", key)
        if calibration is not None:
            return TrafficConstants(**calibration.constants), calibration
    calibration = gpu.calibration("traffic", "elementwise")
    if calibration is None:
        return TrafficConstants(), None
    return TrafficConstants(**calibration.constants), calibration.inherited(gpu.id)


def _price_traffic(works: Sequence[Traffic], gpu: Gpu, traffic_class: str, operation: str) -> list[Price]:
    constants, calibration = traffic_constants(gpu, traffic_class, operation)
    # What fusion keeps on the chip is still computed.
    flops = np.array([w.flops for w in works], dtype=np.float64)
    all_math_us = flops / (1e6 * gpu.peak_tflops["fp32"])
    all_bytes_us = traffic_times_us(works, gpu, constants)
    calibrated = calibration is not None and calibration.inherited_from is None
    prices = []
    for work, math_us, bytes_us in zip(works, all_math_us.tolist(), all_bytes_us.tolist(), strict=True):
        time_us = max(math_us, bytes_us)
        launch_us = latency_us(work, constants)
        parts_us = (("math", math_us), ("memory", bytes_us - launch_us), ("launch", launch_us))
        prices.append(
            Price(
                time_us=time_us,
                flops=work.flops,
                bytes_read=work.bytes_read,
                bytes_written=work.bytes_written,
                limiter=limiter(parts_us),
                balance=gpu.balance("fp32"),
                uses_tensor_cores=False,
                tensor_core_reason="moves data and multiplies no matrices",
                uncertainty_percent=max(
                    uncertainty_percent(calibration, gpu, time_us, modelled=True),
                    WALKED_ERROR_PERCENT if work.walk is not None else 0.0,
                ),
                calibrated=calibrated,
                parts_us=parts_us,
                fraction_of_peak=math_us / time_us if time_us else 0.0,
            )
        )
    return prices
