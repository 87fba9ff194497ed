"""What a price says beside its time: its limiter, its share of peak, whether Tensor Cores run, how sure it
is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import GraphBuilder, convolution, linear, price
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.cost.kernels.assess import LIMITER_OF_PART, THIN_ERROR_PERCENT
from tclint.graph.lowering.step import lower
from tclint.graph.lowering.work import Attention, Gemm, Traffic, Work

WORKS = st.one_of(
    st.builds(linear, *[st.integers(1, 4096)] * 3),
    st.builds(convolution, st.integers(1, 256), st.integers(1, 256), st.integers(7, 56)),
    st.builds(
        Traffic, st.just("elementwise"), st.just("add"), st.integers(1, 1 << 28), st.integers(1, 1 << 28)
    ),
)


@given(work=WORKS, gpu=st.sampled_from(["a100", "h100", "v100", "l40s"]))
@settings(max_examples=60, deadline=None)
def test_the_limiter_is_the_largest_part(work: Work, gpu: str) -> None:
    found = price(work, gpu)
    assert found.limiter == LIMITER_OF_PART[max(found.parts_us, key=lambda part: part[1])[0]]


def test_causal_attention_stays_below_the_peak() -> None:
    for gpu in ("a100", "h100", "h200", "b200"):
        work = Attention(8, 16, 16, 16384, 16384, 128, 128, "float16", is_causal=True)
        whole = price(replace(work, is_causal=False), gpu)
        assert price(work, gpu).fraction_of_peak == pytest.approx(whole.fraction_of_peak, rel=0.1)
        assert price(work, gpu).fraction_of_peak < 1


@pytest.mark.parametrize(
    ("work", "precision", "tensor_cores"),
    [
        (Gemm(98304, 647, 15, "float32"), "tf32", False),
        (Gemm(4096, 2798, 64, "float32"), "tf32", False),
        (Gemm(15, 647, 98304, "float32", a_contiguous="m"), "tf32", True),
        (linear(1024, 512, 32, "float32"), "tf32", True),
        (linear(1024, 1, 5185, "float32"), "tf32", False),
        (linear(1, 400, 768, "bfloat16"), "bf16", False),
        (Gemm(1, 32, 32, "float16", batch=1024), "fp16", False),
        (linear(2, 400, 768, "bfloat16"), "bf16", True),
        (linear(4096, 4095, 15), "fp16", True),
    ],
)
def test_which_products_leave_tensor_cores(work: Gemm, precision: str, tensor_cores: bool) -> None:
    """Kernels in published traces of A100 and H100."""
    found = price(work, "a100", precision)
    assert found.uses_tensor_cores == tensor_cores
    assert tensor_cores or "CUDA cores" in found.tensor_core_reason


def test_pointwise_convolutions_of_four_channels_leave_tensor_cores() -> None:
    assert not price(convolution(4, 64, 56, 1)).uses_tensor_cores
    assert price(convolution(8, 64, 56, 1)).uses_tensor_cores
    assert price(convolution(4, 64, 56, 3)).uses_tensor_cores


@pytest.mark.parametrize(
    ("gpu", "rows", "columns", "measured_us"),
    [
        ("a100-sxm4-40gb", 1024, 100, 12.0),
        ("a100-sxm4-40gb", 1024, 2048, 13.0),
        ("v100-sxm2-32gb", 16, 256, 6.0),
        ("v100-sxm2-32gb", 32, 1000, 7.0),
    ],
)
def test_sums_by_column_wait_for_their_rows(gpu: str, rows: int, columns: int, measured_us: float) -> None:
    """Gradients of biases in public traces; as bytes alone they took a third of that, or less."""
    moved = 4 * rows * columns
    summed = Traffic("reduction", "sum", moved, 4 * columns, summed=rows)
    assert price(summed, gpu, "fp32").time_us == pytest.approx(measured_us, rel=0.3)
    assert price(replace(summed, summed=0), gpu, "fp32").time_us < 0.6 * measured_us


def test_narrow_products_run_in_narrow_tiles() -> None:
    """CaiT's talking heads: about 160 us implied by its throughput."""
    found = price(linear(4917248, 8, 8))
    assert found.time_us == pytest.approx(160, rel=0.25)
    assert found.tile is not None
    assert min(found.tile) <= 32 < min(price(linear(8192, 8192, 8192)).tile or (0, 0))


def test_patch_embeddings_are_far_from_their_products() -> None:
    """1,233 us for 128 images on an H100 in a published trace, where a linear layer took 47."""
    patches = convolution(
        3, 768, 224, 16, batch=128, stride=(16, 16), padding=(0, 0), output_size=(14, 14), channels_last=False
    )
    found = price(patches, "h100")
    assert found.time_us == pytest.approx(1233, rel=0.25)
    assert found.uncertainty_percent >= THIN_ERROR_PERCENT
    assert price(linear(128 * 196, 768, 768), "h100").time_us < 60


@pytest.mark.parametrize(("k", "slower"), [(4095, (2.4, 3.3)), (4094, (2.0, 3.0))])
def test_misaligned_products_fall_back_to_older_kernels_on_hopper(
    k: int, slower: tuple[float, float]
) -> None:
    ratio = price(linear(8192, 8192, k), "h100").time_us / price(linear(8192, 8192, 4096), "h100").time_us
    assert slower[0] <= ratio <= slower[1]


def test_an_odd_vocabulary_on_hopper_and_odd_sizes_on_ada() -> None:
    """6.57 ms for 0.91 of the padded head on an H100; 150 us for 109 of 2,040 each way on an RTX 4090."""
    head = price(linear(8192, 50257, 768), "h100", alone=True)
    assert head.time_us == pytest.approx(6570, rel=0.25)
    assert price(linear(8192, 50264, 768), "h100", alone=True).time_us == pytest.approx(910, rel=0.1)
    odd = Gemm(2055, 2055, 2055, "bfloat16")
    assert price(odd, "rtx-4090").time_us == pytest.approx(150, rel=0.35)
    assert head.uncertainty_percent >= THIN_ERROR_PERCENT
    assert price(odd, "rtx-4090").uncertainty_percent >= THIN_ERROR_PERCENT
    assert price(odd, "a100").uncertainty_percent < THIN_ERROR_PERCENT


def test_odd_rows_draw_a_part_of_the_bandwidth_on_hopper() -> None:
    """Attention over 3,137 tokens of TimeSformer: 1,694 us in a published trace."""
    scores = Gemm(3137, 64, 3137, "bfloat16", batch=96)
    assert price(scores, "h100").time_us == pytest.approx(1694, rel=0.15)


def test_kernels_with_thin_data_say_so() -> None:
    nine = convolution(256, 256, 28, 9, groups=256)
    direct = convolution(216, 216, 28, groups=9, direction="wgrad")
    for work in (nine, direct):
        assert price(work, "rtx-3090").uncertainty_percent >= THIN_ERROR_PERCENT
    assert price(replace(nine, kernel_size=(3, 3), padding=(1, 1)), "rtx-3090").uncertainty_percent < 50


@pytest.mark.parametrize(("beta", "copies"), [(1, 1), (0, 0)])
def test_an_input_times_zero_is_not_read(beta: int, copies: int) -> None:
    builder = GraphBuilder()
    bias, a = builder.input(8, 64, 64), builder.input(8, 64, 32, name="a")
    b = builder.input(8, 32, 64, name="b")
    operands = {"input": bias, "batch1": a, "batch2": b}
    out = builder.op("baddbmm", "matmul", operands, 8, 64, 64, attributes={"beta": beta})
    kernels, _ = lower(builder.graph(out), "infer")
    assert sum(isinstance(kernel.work, Traffic) for kernel in kernels) == copies


@pytest.mark.parametrize(
    ("work", "precision", "slower"),
    [
        (linear(8192, 8192, 8192, "bfloat16"), "bf16", 1.35),
        (linear(8192, 8192, 8192, "float32"), "tf32", 1.14),
        (Attention(8, 16, 16, 4096, 4096, 128, 128, "bfloat16", is_causal=True), "bf16", 1.35),
        (linear(8192, 8192, 8192, "float32"), "fp32", 1.0),
        (Traffic("elementwise", "add", 1 << 28, 1 << 28), "bf16", 1.0),
    ],
)
def test_tensor_cores_are_slower_within_a_step_on_hopper(work: Work, precision: str, slower: float) -> None:
    """Steps of MPT and of GPT-2 on an H100 take that much longer than their kernels alone."""
    within, alone = price(work, "h100", precision), price(work, "h100", precision, alone=True)
    assert within.time_us == pytest.approx(slower * alone.time_us, rel=0.02)
    assert price(work, "a100", precision) == price(work, "a100", precision, alone=True)
