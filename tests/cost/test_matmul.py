"""Matrix products: the documents' own figures, and what must hold for any shape."""

from __future__ import annotations

import numpy as np
import pytest
from cost_support import linear, price
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.cost.gpu import all_gpus, load_gpu
from tclint.cost.kernels.constants import GemmConstants
from tclint.cost.kernels.matmul import (
    GEMM_CHUNK,
    GemmShapes,
    GemmTimes,
    alignment_elements,
    gemm_times,
    misalignment_factor,
)
from tclint.cost.kernels.pricing import price_works
from tclint.cost.math_units import unit_class
from tclint.graph.lowering.work import Gemm

SIZES = st.integers(1, 256).map(lambda value: 8 * value)
GPUS = st.sampled_from(["a100", "h100", "v100", "t4", "rtx-3090"])


@pytest.mark.parametrize(
    ("m", "n", "k", "intensity"),
    [(512, 4096, 1024, 315.1), (1, 4096, 1024, 1.0), (8192, 128, 8192, 124.1), (8192, 8192, 8192, 2730.7)],
)
def test_arithmetic_intensity_of_the_guides(m: int, n: int, k: int, intensity: float) -> None:
    assert price(linear(m, n, k)).arithmetic_intensity == pytest.approx(intensity, abs=0.1)


def test_limiters_of_the_guides_on_v100() -> None:
    assert price(linear(512, 4096, 1024), "v100").limiter == "math"
    assert price(linear(1, 4096, 1024), "v100").limiter == "memory"
    assert price(linear(32, 64, 64), "v100").limiter == "latency"
    assert price(linear(512, 4096, 1024), "v100").balance == pytest.approx(138.9, abs=0.05)


def test_gpt2_vocabulary_on_a100() -> None:
    before, after = price(linear(8192, 50257, 768)), price(linear(8192, 50304, 768))
    assert before.time_us / after.time_us == pytest.approx(2.9, abs=0.25)
    assert "misaligned" in before.tensor_core_reason
    assert not before.is_efficient
    assert after.is_efficient


@given(m=SIZES, n=SIZES, k=SIZES, gpu=GPUS, factor=st.integers(2, 4), grown=st.sampled_from("mnk"))
@settings(max_examples=150, deadline=None)
def test_more_work_is_never_cheaper(m: int, n: int, k: int, gpu: str, factor: int, grown: str) -> None:
    sizes = {"m": m, "n": n, "k": k}
    larger = sizes | {grown: factor * sizes[grown]}
    # Another tile may fit the larger shape better: a few percent, as on hardware.
    assert price(linear(**larger), gpu).time_us >= 0.97 * price(linear(**sizes), gpu).time_us


@given(m=SIZES, n=st.integers(9, 4096), k=st.integers(9, 4096), gpu=GPUS)
@settings(max_examples=150, deadline=None)
def test_cutting_down_to_aligned_sizes_never_costs(m: int, n: int, k: int, gpu: str) -> None:
    aligned = linear(m, n // 8 * 8, k // 8 * 8)
    assert price(aligned, gpu).time_us <= 1.03 * price(linear(m, n, k), gpu).time_us


@given(m=SIZES, n=SIZES, k=SIZES, gpu=GPUS, precision=st.sampled_from(["fp16", "fp32"]))
@settings(max_examples=100, deadline=None)
def test_figures_are_consistent(m: int, n: int, k: int, gpu: str, precision: str) -> None:
    dtype = "float16" if precision == "fp16" else "float32"
    found = price(linear(m, n, k, dtype), gpu, precision)
    ideal_us = found.flops / (1e6 * load_gpu(gpu).peak_tflops[precision])
    assert found.fraction_of_peak == pytest.approx(ideal_us / found.time_us)
    assert 0 < found.fraction_of_peak <= 1.0
    assert 0 < found.tile_efficiency <= 1.0
    assert 0 < found.wave_efficiency <= 1.0
    assert found.tile is not None
    assert found.flops == 2 * m * n * k
    assert found.bytes_read + found.bytes_written == (m * k + n * k + m * n) * (
        2 if precision == "fp16" else 4
    )
    assert found.uncertainty_percent > 0


def test_an_odd_batch_is_harmless_in_forward_but_not_in_wgrad() -> None:
    forward = price(linear(4097, 4096, 4096)), price(linear(4096, 4096, 4096))
    assert forward[0].time_us < 1.1 * forward[1].time_us

    def wgrad(tokens: int) -> Gemm:
        # dW[N,K] = dY[M,N]^T X[M,K]: M, the tokens, is contiguous nowhere.
        return Gemm(4096, 4096, tokens, "float16", a_contiguous="m", b_contiguous="n")

    assert price(wgrad(4097)).time_us < 1.1 * price(wgrad(4096)).time_us
    transposed = Gemm(4096, 4096, 4097, "float16", a_contiguous="k", b_contiguous="k")
    assert price(transposed).time_us > 2 * price(wgrad(4096)).time_us


def test_alignment_counts_in_16_bytes() -> None:
    assert alignment_elements(np.array([1.0, 6, 12, 8, 40, 64])).tolist() == [1, 2, 4, 8, 8, 16]
    assert alignment_elements(np.array([0.0])).tolist() == [16], "an empty dim misaligns nothing"
    tf32 = [price(linear(4096, n, 4096, "float32"), precision="tf32").time_us for n in (4096, 4100, 4098)]
    assert tf32[1] < 1.1 * tf32[0]
    assert tf32[2] > 1.4 * tf32[0]
    fp32 = [price(linear(4096, n, 4096, "float32"), precision="fp32").time_us for n in (4096, 4098)]
    assert fp32[1] < 1.1 * fp32[0]


@pytest.mark.parametrize(
    ("dtype", "tf32", "sizes", "layout", "factor"),
    [
        ("float16", False, (64, 64, 64), {}, 1),
        ("float16", False, (61, 64, 64), {}, 1),  # rows of x are contiguous nowhere
        ("float16", False, (64, 60, 64), {}, 1.5),
        ("float16", False, (64, 62, 64), {}, 2),
        ("float16", False, (64, 63, 64), {}, 3),
        ("float16", False, (64, 60, 62), {}, 2),  # the worst dim decides
        ("float16", False, (64, 64, 63), {}, 4),
        ("float16", False, (64, 64, 63), {"b_contiguous_is_k": False}, 3),
        ("float16", False, (62, 64, 64), {"c_contiguous_is_n": False}, 2),
        ("float16", False, (60, 64, 64), {"a_contiguous_is_k": False}, 1.5),
        ("float32", True, (64, 60, 64), {}, 1),
        ("float32", True, (64, 62, 64), {}, 1.5),
        ("float32", False, (64, 63, 64), {}, 1),  # CUDA cores
        ("float64", False, (64, 63, 64), {}, 1),
        ("float8_e4m3fn", False, (64, 48, 64), {}, 1),
        ("float8_e4m3fn", False, (64, 40, 64), {}, 1.5),
    ],
)
def test_a_product_is_as_slow_as_its_worst_alignment(
    dtype: str, tf32: bool, sizes: tuple[int, int, int], layout: dict[str, bool], factor: float
) -> None:
    unit = unit_class(load_gpu("h100"), dtype, tf32=tf32)
    assert unit is not None
    constants = GemmConstants(misaligned_4=1.5, misaligned_2=2, misaligned_1=3, misaligned_1_tn=4)
    assert misalignment_factor(GemmShapes.of(*sizes, **layout), unit, constants).tolist() == [factor]


def test_operands_that_fit_the_l2_are_read_from_it() -> None:
    gpu = load_gpu("a100")
    unit = unit_class(gpu, "float16", tf32=False)
    assert unit is not None
    constants = GemmConstants(
        l2_capacity_share=0.5, l2_efficiency=0.5, dram_efficiency=1.0, sm_bandwidth_ratio=100.0
    )
    sides = np.array([1024, 2048, 4096, 8192, 65536])
    times = gemm_times(GemmShapes.of(sides, sides, 32), gpu, unit, constants)
    moved_bytes = 2.0 * sides * (sides + 2 * 32)
    rates_gb_per_s = (moved_bytes / times.memory_us / 1e3).tolist()
    # 20 of 40 MiB are there for operands: 2048 x 2048 fits, 4096 x 4096 does not.
    assert rates_gb_per_s[:2] == pytest.approx([0.5 * gpu.l2_gb_per_s] * 2)
    assert rates_gb_per_s[1] > rates_gb_per_s[2] > rates_gb_per_s[3] > rates_gb_per_s[4]
    assert rates_gb_per_s[-1] == pytest.approx(gpu.dram_gb_per_s, rel=0.02)


def half_times(shapes: GemmShapes, **constants: float) -> GemmTimes:
    gpu = load_gpu("a100")
    unit = unit_class(gpu, "float16", tf32=False)
    assert unit is not None
    return gemm_times(shapes, gpu, unit, GemmConstants(**constants))


def test_the_parts_of_a_price_explain_it() -> None:
    constants = GemmConstants()
    m, n, k = np.array([[8192, 8192, 8192], [1024, 768, 4096], [64, 64, 65536]]).T
    times = half_times(GemmShapes.of(m, n, k))
    assert {1, 2} < set(times.split_k.tolist())
    p = constants.softness
    overlapped_us = ((times.math_us + times.latency_us) ** p + times.l2_us**p + times.memory_us**p) ** (1 / p)
    rest_us = times.time_us - constants.launch_us - overlapped_us
    # Partial sums are written and read in fp32.
    partial_bytes = 2 * 4 * times.split_k * m * n
    rate = 1e3 * load_gpu("a100").l2_gb_per_s * constants.split_k_bandwidth
    expected_us = np.where(times.split_k == 1, 0, constants.split_k_us + partial_bytes / rate)
    assert rest_us.tolist() == pytest.approx(expected_us.tolist(), abs=1e-6)


def test_less_than_a_wave_takes_as_long_as_a_wave_and_then_partial_waves_their_share() -> None:
    sms = load_gpu("a100").sm_count
    only = {"least_tile_side": 128.0, "most_tile_side": 128.0, "wave_rounding": 0.0, "power_slowdown": 0.0}
    no_latency = {"k_step_ns": 0.0, "prologue_us": 0.0, "epilogue_us": 0.0, "split_k_us": 1e9}
    tiles = np.array([1, sms // 2, sms, 3 * sms // 2, 2 * sms])
    times = half_times(GemmShapes.of(128 * tiles, 128, 4096), **only, **no_latency)
    assert times.waves.tolist() == pytest.approx((tiles / sms).tolist())
    loop_us = times.math_us + times.latency_us
    assert (loop_us / loop_us[0]).tolist() == pytest.approx([1, 1, 1, 1.5, 2])
    assert (times.math_us / loop_us[0]).tolist() == pytest.approx((tiles / sms).tolist())


def test_a_vector_is_multiplied_by_kernels_of_its_own() -> None:
    vector = half_times(
        GemmShapes.of([1, 4096, 64, 1], [4096, 1, 64, 64], [4096, 4096, 1, 64], [1, 1, 1, 8]),
        gemv_launch_us=0.5,
    )
    assert vector.is_vector.all()
    assert vector.time_us.tolist() == pytest.approx((0.5 + 1.05 * vector.memory_us).tolist())
    others = GemmShapes.of([2, 4096], [4096, 2], 4096, [1, 2])
    without, with_own = (half_times(others, gemv_launch_us=us).time_us.tolist() for us in (1e9, 0.5))
    assert without == with_own


def test_only_rows_of_128_kib_and_more_are_slowed_for_their_length() -> None:
    rows = GemmShapes.of(4096, 4096, np.array([1024, 65536, 1 << 22]))
    without, with_slowdown = (
        half_times(rows, long_k_slowdown=share, power_slowdown=0.0, split_k_us=1e9) for share in (0.0, 0.4)
    )
    ratio = with_slowdown.math_us / without.math_us
    assert ratio.tolist() == pytest.approx([1.0, 1.2, 1.4], abs=0.005)


def test_batched_products_do_not_split_k_beside_one_that_does() -> None:
    times = half_times(GemmShapes.of(64, 64, 65536, np.array([1, 2, 3])))
    assert times.split_k[0] > 1
    assert times.split_k[1:].tolist() == [1, 1]


def test_split_k_is_chosen_where_tiles_are_few() -> None:
    assert price(linear(64, 64, 65536)).split_k > 1
    assert price(linear(8192, 8192, 8192)).split_k == 1
    assert price(Gemm(64, 64, 65536, "float16", batch=2)).split_k == 1


def test_repeats_run_one_after_the_other() -> None:
    once, often = Gemm(64, 2048, 512, "float16"), Gemm(64, 2048, 512, "float16", repeats=50)
    assert price(often).time_us == pytest.approx(50 * price(once).time_us)
    assert price(often).flops == 50 * price(once).flops


@pytest.mark.parametrize(
    ("gpu", "dtype", "precision", "tensor_cores", "says"),
    [
        ("a100", "float16", "fp16", True, "fp16 Tensor Cores"),
        ("a100", "bfloat16", "bf16", True, "bf16 Tensor Cores"),
        ("v100", "bfloat16", "bf16", False, "bf16 needs compute capability 8.0"),
        ("t4", "bfloat16", "bf16", False, "bf16 needs compute capability 8.0"),
        ("v100", "float32", "tf32", False, "TF32 needs compute capability 8.0"),
        ("a100", "float32", "tf32", True, "TF32 Tensor Cores"),
        ("a100", "float32", "fp32", False, "TF32 off"),
        ("a100", "float32", "fp16", False, "TF32 off"),
        ("a100", "float64", "fp32", True, "fp64 Tensor Cores"),
    ],
)
def test_what_a_gpu_cannot_do_is_said(
    gpu: str, dtype: str, precision: str, tensor_cores: bool, says: str
) -> None:
    found = price(linear(1024, 1024, 1024, dtype), gpu, precision)
    assert found.uses_tensor_cores == tensor_cores
    assert says in found.tensor_core_reason


def test_what_runs_instead_is_priced() -> None:
    bf16 = price(linear(4096, 4096, 4096, "bfloat16"), "v100", "bf16")
    fp32 = price(linear(4096, 4096, 4096, "float32"), "v100", "fp32")
    fp16 = price(linear(4096, 4096, 4096), "v100")
    assert bf16.time_us == pytest.approx(fp32.time_us, rel=0.1)
    assert bf16.time_us > 4 * fp16.time_us
    assert not bf16.calibrated
    assert bf16.uncertainty_percent > fp32.uncertainty_percent


def test_dtypes_without_formula_have_no_price() -> None:
    assert price_works([linear(64, 64, 64, "int64")], load_gpu("a100"), "fp32") == [None]


def test_products_priced_together_are_priced_as_alone() -> None:
    rng = np.random.default_rng(7)
    works = [linear(*(int(size) for size in rng.integers(1, 9000, 3))) for _ in range(50)]
    together = price_works(works, load_gpu("l40s"), "fp16")
    for work, kernel in zip(works, together, strict=True):
        [alone] = price_works([work], load_gpu("l40s"), "fp16")
        assert kernel is not None
        assert alone is not None
        assert kernel.time_us == pytest.approx(alone.time_us)


def test_any_number_of_products_is_priced() -> None:
    gpu = load_gpu("a100")
    unit = unit_class(gpu, "float16", tf32=False)
    assert unit is not None
    rows = np.arange(1, GEMM_CHUNK + 3)
    times = gemm_times(GemmShapes.of(rows, 64, 64), gpu, unit, GemmConstants())
    assert len(times.time_us) == len(rows)
    for position in (0, GEMM_CHUNK - 1, GEMM_CHUNK, len(rows) - 1):
        alone = gemm_times(GemmShapes.of(rows[position], 64, 64), gpu, unit, GemmConstants())
        assert times.time_us[position] == pytest.approx(alone.time_us[0])
        assert times.waves[position] == pytest.approx(alone.waves[0])


def test_every_gpu_prices_large_products_near_its_own_rate() -> None:
    for gpu in all_gpus():
        found = price(linear(8192, 8192, 8192), gpu.id)
        # A card may boost above the clock that its datasheet's rate is for.
        assert 0.4 < found.fraction_of_peak <= max(1.0, gpu.sustained.get("half", 1.0)), gpu.id
