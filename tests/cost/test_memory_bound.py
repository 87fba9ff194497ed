"""Memory-bound kernels: the L2, what an SM can load, and rows that start off 16 bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cost_support import price

from tclint.cost.gpu import all_gpus
from tclint.graph.lowering.walks import concatenation, walk
from tclint.graph.lowering.work import Traffic, Walk
from tclint.graph.ops import TensorSpec, contiguous_strides

MIB = 1 << 20


def gb_per_s(work: Traffic, gpu: str) -> float:
    found = price(work, gpu)
    launch_us = dict(found.parts_us)["launch"]
    return (work.bytes_read + work.bytes_written) / (found.time_us - launch_us) / 1e3


@pytest.mark.parametrize("gpu", [gpu.id for gpu in all_gpus()])
@pytest.mark.parametrize("traffic_class", ["elementwise", "norm", "softmax", "copy"])
def test_the_l2_is_never_slower_than_dram(gpu: str, traffic_class: str) -> None:
    small = Traffic(traffic_class, "x", MIB, MIB)  # type: ignore[arg-type]
    large = replace(small, bytes_read=1024 * MIB, bytes_written=1024 * MIB)
    assert gb_per_s(small, gpu) >= 0.999 * gb_per_s(large, gpu)


def test_tensors_in_a_large_l2_are_faster_than_dram() -> None:
    assert gb_per_s(Traffic("elementwise", "add", 16 * MIB, 8 * MIB), "h100") > 3350


def test_an_add_of_25_mb_on_h100() -> None:
    """7.0 us in a published trace."""
    assert price(Traffic("elementwise", "add", 17_000_000, 8_500_000), "h100").time_us == pytest.approx(
        7.0, rel=0.25
    )


def layer_norm(columns: int, rows: int = 8192) -> Traffic:
    size = rows * columns * 2
    return Traffic("norm", "layer_norm", size, size, rows=rows, columns=columns, dtype="float16")


def test_norms_over_rows_off_16_bytes_load_element_by_element() -> None:
    assert price(layer_norm(4095)).time_us > 1.5 * price(layer_norm(4096)).time_us
    assert price(replace(layer_norm(4095), operation="batch_norm")).time_us < price(layer_norm(4096)).time_us


def test_norms_over_few_columns_cost_their_rows() -> None:
    few, many = layer_norm(128, 65536), layer_norm(4096, 2048)
    assert few.bytes_read == many.bytes_read
    assert price(few).time_us > 1.5 * price(many).time_us


def test_long_odd_softmax_is_slow_and_short_is_not() -> None:
    """700 GB/s on an H100 over 3,137 columns of bfloat16, in a published trace."""

    def softmax(columns: int) -> Traffic:
        size = 300_000 * columns * 2
        return Traffic("softmax", "softmax", size, size, rows=300_000, columns=columns, dtype="bfloat16")

    assert gb_per_s(softmax(3137), "h100") == pytest.approx(700, rel=0.2)
    assert gb_per_s(softmax(3136), "h100") > 2000
    assert gb_per_s(softmax(1001), "h100") > 2000


def test_few_rows_draw_what_their_sms_can() -> None:
    one = Traffic(
        "elementwise", "vllm_silu_and_mul", 4 * 28672, 2 * 28672, rows=1, columns=28672, dtype="float16"
    )
    assert price(one).time_us > 2 * price(replace(one, rows=0)).time_us


def test_padding_costs_more_than_a_copy() -> None:
    copy = Traffic("copy", "clone", 1 << 28, 1 << 28, dtype="float16")
    assert price(replace(copy, operation="constant_pad_nd")).time_us > 1.2 * price(copy).time_us


def heads(strides: tuple[int, ...] | None = None, shape: tuple[int, ...] = (16, 16, 559, 64)) -> TensorSpec:
    return TensorSpec(shape, "bfloat16", strides or contiguous_strides(shape), input_name="x")


TRANSPOSED = heads((559 * 1024, 64, 1024, 1))


def walked(operation: str, walk: Walk | None, read: int = 1) -> Traffic:
    size = 2 * heads().numel
    return Traffic("elementwise", operation, read * size, size, dtype="bfloat16", walk=walk)


@pytest.mark.parametrize(
    ("work", "measured_us"),
    [
        (walked("add", walk(heads(), [TRANSPOSED, heads()]), 2), 34.8),
        (walked("mul", walk(TRANSPOSED, [TRANSPOSED, heads(shape=(1, 1, 559, 64))])), 32.0),
        (walked("clone", walk(heads(), [TRANSPOSED])), 29.3),
        (walked("cat", concatenation(heads(), 2 * [replace(TRANSPOSED, shape=(16, 16, 559, 32))], -1)), 42.0),
    ],
)
def test_what_walks_element_by_element_on_h100(work: Traffic, measured_us: float) -> None:
    """A public trace of Qwen1.5-0.5B, where contiguous sums of the same bytes take 17.8 us."""
    assert price(work, "h100").time_us == pytest.approx(measured_us, rel=0.15)
    assert price(replace(work, walk=None), "h100").time_us < 0.6 * measured_us
