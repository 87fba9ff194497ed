"""Which kernels a library has: tiles of CUDA-core products, grouped convolutions in NHWC, borders."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import GraphBuilder

from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.pricing import price_works
from tclint.cost.transforms.layout import apply_layout
from tclint.graph.lowering.work import Convolution, Gemm


def time_us(work: Gemm | Convolution, gpu: str = "rtx-3090", precision: str = "fp16") -> float:
    price = price_works([work], load_gpu(gpu), precision)[0]  # type: ignore[arg-type]
    assert price is not None
    return price.time_us


def grouped(width: int, groups: int, direction: str, *, channels_last: bool = True) -> Convolution:
    channels = width * groups
    return Convolution(
        batch=128, in_channels=channels, out_channels=channels, input_size=(28, 28), output_size=(28, 28),
        kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=groups, dtype="float16",
        channels_last=channels_last, direction=direction,  # type: ignore[arg-type]
    )  # fmt: skip


def rate(work: Convolution) -> float:
    return work.flops / time_us(work)


def test_small_batched_products_fill_the_only_tile_there_is() -> None:
    """A100, fp32: any M up to 128 costs what 128 does (large batches of NeuSight's measurements)."""
    work = Gemm(40, 512, 512, "float32", batch=256)
    full = replace(work, m=128)
    assert time_us(work, "a100-pcie-40gb", "fp32") > 0.9 * time_us(full, "a100-pcie-40gb", "fp32")
    assert time_us(work, "v100-pcie-32gb", "fp32") < 0.8 * time_us(full, "v100-pcie-32gb", "fp32")


def test_cuda_cores_step_through_k_by_eight() -> None:
    wide = [Gemm(512, 512, k, "float32", batch=512) for k in (8, 9, 16)]
    first, second, third = (time_us(work, "a100-pcie-40gb", "fp32") for work in wide)
    assert first < second <= third


@pytest.mark.parametrize("direction", ["dgrad", "wgrad"])
def test_gradients_of_groups_without_kernels_are_slow_in_nhwc(direction: str) -> None:
    resnext, regnet = grouped(16, 32, direction), grouped(24, 9, direction)
    assert rate(regnet) < 0.4 * rate(resnext)
    assert time_us(regnet) > 2 * time_us(replace(regnet, channels_last=False))
    found = [price_works([work], load_gpu("rtx-3090"), "fp16")[0] for work in (resnext, regnet)]
    assert [price is not None and price.uses_tensor_cores for price in found] == [True, False]
    assert found[1] is not None
    assert "NHWC" in found[1].tensor_core_reason


def test_groups_of_odd_widths_run_as_nchw_in_forward() -> None:
    odd, even = grouped(24, 9, "forward"), grouped(32, 9, "forward")
    assert rate(odd) < 0.6 * rate(even)
    dilated = replace(even, dilation=(2, 2), padding=(2, 2))
    assert time_us(dilated) > 1.3 * time_us(even)


def test_general_depthwise_kernels_are_slower_than_compiled_ones() -> None:
    five = replace(grouped(1, 256, "forward"), kernel_size=(5, 5), padding=(2, 2))
    nine = replace(five, kernel_size=(9, 9), padding=(4, 4))
    # cuDNN has a kernel of 7x7, for NHWC alone.
    seven = replace(five, kernel_size=(7, 7), padding=(3, 3))
    assert rate(nine) < 0.9 * rate(seven)
    for direction in ("forward", "dgrad", "wgrad"):
        nhwc = replace(seven, direction=direction)
        assert rate(nhwc) > 1.3 * rate(replace(nhwc, channels_last=False))


def test_wide_groups_without_kernels_have_faster_direct_gradients() -> None:
    narrow, wide = grouped(64, 9, "wgrad"), grouped(120, 9, "wgrad")
    assert rate(wide) > 1.5 * rate(narrow)


@pytest.mark.parametrize(("mode", "after"), [("reflect", "contiguous"), ("constant", "channels_last")])
def test_reflected_borders_break_the_format(mode: str, after: str) -> None:
    build = GraphBuilder()
    x = build.input(2, 8, 16, 16)
    y = build.op("conv2d", "conv", {"input": x, "weight": build.parameter("w", 16, 8, 1, 1)}, 2, 16, 16, 16)
    padded = build.op("pad", "copy", {"input": y}, 2, 16, 18, 18, attributes={"mode": mode})
    graph = build.graph(build.op("relu", "elementwise", {"self": padded}, 2, 16, 18, 18))
    assert apply_layout(graph, "channels_last").ops[-1].outputs[0].memory_format == after
