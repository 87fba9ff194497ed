"""Convolutions, attention and memory-bound kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import convolution, price
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.cost.gpu import load_gpu
from tclint.graph.lowering.work import Attention, Traffic


def first_layer(channels: int, **changes: object) -> float:
    work = convolution(channels, 64, 224, 7, stride=(2, 2), output_size=(112, 112), **changes)
    gpu = "v100" if changes.get("channels_last") is False else "a100"
    return price(work, gpu, "fp16" if work.dtype == "float16" else "fp32").time_us


def test_padding_three_input_channels_to_four_gains() -> None:
    assert first_layer(4) < 0.8 * first_layer(3)
    work = convolution(3, 64, 224, 7, stride=(2, 2), output_size=(112, 112))
    on_v100 = price(work, "v100").time_us, price(replace(work, in_channels=4), "v100").time_us
    assert on_v100[1] < 0.8 * on_v100[0]


def test_narrow_first_layers_lose_to_fp32_on_v100() -> None:
    for channels in (1, 3):
        half = first_layer(channels, channels_last=False)
        full = first_layer(channels, channels_last=False, dtype="float32")
        assert half > full


def test_channels_that_are_multiples_of_eight_are_efficient() -> None:
    assert price(convolution(256, 256, 28)).is_efficient
    padded = price(convolution(256, 250, 28))
    assert not padded.is_efficient
    assert "padded" in padded.tensor_core_reason
    assert padded.time_us >= price(convolution(256, 256, 28)).time_us


@pytest.mark.parametrize("direction", ["forward", "dgrad", "wgrad"])
def test_channels_last_is_not_slower_where_channels_are_aligned(direction: str) -> None:
    work = convolution(128, 128, 56, direction=direction)
    assert price(work).time_us <= price(replace(work, channels_last=False)).time_us


@pytest.mark.parametrize("direction", ["forward", "dgrad", "wgrad"])
@given(c=st.integers(2, 64), k=st.integers(2, 64), size=st.integers(7, 64), batch=st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_larger_batches_never_cost_less(direction: str, c: int, k: int, size: int, batch: int) -> None:
    work = convolution(8 * c, 8 * k, size, batch=batch, direction=direction)
    double = price(replace(work, batch=2 * batch))
    assert double.time_us >= 0.97 * price(work).time_us
    assert double.flops == 2 * work.flops
    assert 0 < double.fraction_of_peak <= 1.05


def test_depthwise_convolutions_are_bytes_on_cuda_cores() -> None:
    found = price(convolution(256, 256, 56, groups=256))
    assert not found.uses_tensor_cores
    assert "depthwise" in found.tensor_core_reason
    assert found.time_us < price(convolution(256, 256, 56)).time_us


def test_grouped_convolutions_cost_more_per_flop_than_dense_ones() -> None:
    grouped, dense = price(convolution(256, 256, 56, groups=32)), price(convolution(256, 256, 56))
    assert grouped.time_us / grouped.flops > dense.time_us / dense.flops


@pytest.mark.parametrize("dims", [1, 3])
def test_one_and_three_dimensional_convolutions(dims: int) -> None:
    work = replace(
        convolution(64, 64, 16),
        input_size=(16,) * dims,
        output_size=(16,) * dims,
        kernel_size=(3,) * dims,
        stride=(1,) * dims,
        padding=(1,) * dims,
        dilation=(1,) * dims,
    )
    assert price(work).time_us > 0


def test_winograd_makes_fp32_three_by_three_cheaper_than_its_flops() -> None:
    three = price(convolution(256, 256, 28, 3, dtype="float32", channels_last=False), "v100", "fp32")
    five = price(convolution(256, 256, 28, 5, dtype="float32", channels_last=False), "v100", "fp32")
    assert five.time_us / three.time_us > 1.3 * five.flops / three.flops


def test_convolutions_use_tf32_by_default_and_not_under_strict_fp32() -> None:
    work = convolution(256, 256, 28, dtype="float32")
    assert price(work, precision="fp16").uses_tensor_cores
    assert price(work, precision="tf32").uses_tensor_cores
    assert not price(work, precision="fp32").uses_tensor_cores


def attention(**changes: object) -> Attention:
    base = Attention(8, 16, 16, 1024, 1024, 64, 64, "float16")
    return replace(base, **changes)  # type: ignore[arg-type]


def test_attention_skips_the_masked_half() -> None:
    whole = price(attention(query_length=8192, key_length=8192))
    causal = price(attention(query_length=8192, key_length=8192, is_causal=True))
    assert causal.time_us == pytest.approx(whole.time_us / 2, rel=0.1)


def test_attention_grows_with_the_square_of_long_sequences() -> None:
    short, long = (price(attention(query_length=s, key_length=s)) for s in (4096, 8192))
    assert long.time_us / short.time_us == pytest.approx(4.0, rel=0.1)
    assert long.bytes_read == 2 * short.bytes_read


def test_attention_backward_costs_more_than_forward() -> None:
    assert price(attention(is_backward=True)).time_us > 2 * price(attention()).time_us


def test_traffic_takes_the_bandwidth_of_its_class() -> None:
    size = 1 << 30
    add = price(Traffic("elementwise", "add", 2 * size, size))
    gpu = load_gpu("a100")
    assert 3 * size / add.time_us / 1e3 == pytest.approx(0.87 * gpu.dram_gb_per_s, rel=0.1)
    assert add.limiter == "memory"
    assert not add.uses_tensor_cores
    assert price(Traffic("elementwise", "add", 1024, 1024)).limiter == "latency"


@given(size=st.integers(1, 1 << 32), gpu=st.sampled_from(["a100", "t4", "h100"]))
@settings(max_examples=60, deadline=None)
def test_more_bytes_never_cost_less(size: int, gpu: str) -> None:
    for traffic_class in ("elementwise", "norm", "softmax", "embedding", "optimizer"):
        small = Traffic(traffic_class, "x", size, size)  # type: ignore[arg-type]
        large = replace(small, bytes_read=2 * size, launches=2)
        # A second kernel finds a part of its own in the L2.
        assert price(large, gpu).time_us >= 0.99 * price(small, gpu).time_us


def test_fused_kernels_without_a_launch_of_their_own_cost_bytes_only() -> None:
    fused = Traffic("elementwise", "add", 1 << 20, 1 << 20, launches=0)
    assert 0 < price(fused).time_us < price(replace(fused, launches=1)).time_us


@pytest.mark.parametrize("gpu", ["v100", "a100", "rtx-3090"])
def test_allowing_tf32_slows_no_convolution_down(gpu: str) -> None:
    works = [
        convolution(c, k, 28, taps, dtype="float32", channels_last=layout, direction=direction)
        for c, k, taps in ((16, 96, 1), (64, 64, 3), (256, 64, 1))
        for layout in (False, True)
        for direction in ("forward", "dgrad", "wgrad")
    ]
    works.append(convolution(96, 96, 28, 3, dtype="float32", groups=96))
    for work in works:
        assert price(work, gpu, "tf32").time_us <= price(work, gpu, "fp32").time_us


def test_winograd_is_named_and_exceeds_no_peak() -> None:
    found = price(convolution(256, 256, 56, 3, dtype="float32", channels_last=False), "v100", "fp32")
    assert "Winograd" in found.tensor_core_reason
    assert 0.3 < found.fraction_of_peak <= 1.0


def test_what_fusion_leaves_without_bytes_is_still_computed() -> None:
    fused = Traffic("reduction", "mean", 0, 1024, flops=10**9, dtype="float16", launches=0)
    found = price(fused, "a100")
    assert found.limiter == "math"
    assert found.fraction_of_peak == 1.0
    assert found.time_us == pytest.approx(1e9 / 19.5e6, rel=0.01)
