"""Convolutions: mirrored sizes, directions, layout, and what torch adds around cuDNN's kernel."""

from __future__ import annotations

from typing import Any

import pytest
from graph_support import make_op, spec, traffic_of
from hypothesis import assume, given
from hypothesis import strategies as st

from tclint.graph.lowering.convolution import suggests_channels_last
from tclint.graph.lowering.step import lower_op
from tclint.graph.lowering.work import Convolution, Kernel
from tclint.graph.ops import Op
from tclint.graph.ops.spec import channels_last_strides


def convolutions(kernels: list[Kernel]) -> dict[str, Convolution]:
    """By the role of the kernel."""
    return {kernel.role: kernel.work for kernel in kernels if isinstance(kernel.work, Convolution)}


def conv2d(
    batch: int = 2, channels: int = 8, size: int = 9, out: int = 12, kernel: int = 3, **attributes: Any
) -> Op:
    attributes = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **attributes}
    reach = attributes["dilation"] * (kernel - 1) + 1
    result = (size + 2 * attributes["padding"] - reach) // attributes["stride"] + 1
    return make_op(
        "conv2d",
        "conv",
        {
            "input": spec(batch, channels, size, size),
            "weight": spec(out, channels // attributes["groups"], kernel, kernel, parameter="w"),
        },
        spec(batch, out, result, result),
        attributes=attributes,
    )


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(3, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
)
def test_three_directions_cost_the_same(
    batch: int, groups: int, per_group: int, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    assume(size + 2 * padding > dilation * (kernel - 1))
    op = conv2d(
        batch, groups * per_group, size, 2 * groups, kernel,
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip
    found = convolutions(lower_op(op, (True, True)))
    assert {role: work.direction for role, work in found.items()} == {
        "forward": "forward",
        "dgrad": "dgrad",
        "wgrad": "wgrad",
    }
    positions = op.outputs[0].numel
    expected = 2 * positions * per_group * kernel * kernel
    assert {work.flops for work in found.values()} == {expected}


def test_transposed_convolution_is_a_convolution_mirrored() -> None:
    """16 -> 8 channels, 5x5 -> 10x10: the dgrad of a convolution 8 -> 16, 10x10 -> 5x5."""
    op = make_op(
        "conv_transpose2d",
        "conv",
        {"input": spec(2, 16, 5, 5), "weight": spec(16, 8, 2, 2, parameter="w")},
        spec(2, 8, 10, 10),
        attributes={"stride": [2], "padding": [0], "dilation": [1], "groups": 1, "output_padding": [0]},
    )
    found = convolutions(lower_op(op, (True, True)))
    assert [(role, work.direction) for role, work in found.items()] == [
        ("forward", "dgrad"),
        ("dgrad", "forward"),
        ("wgrad", "wgrad"),
    ]
    work = found["forward"]
    assert (work.in_channels, work.out_channels) == (8, 16)
    assert (work.input_size, work.output_size, work.stride) == ((10, 10), (5, 5), (2, 2))
    assert work.flops == 2 * 2 * 5 * 5 * 16 * 8 * 2 * 2


@pytest.mark.parametrize(("padding", "expected"), [("same", (2, 2)), ("valid", (0, 0)), ([1], (1, 1))])
def test_padding_spelt_any_way(padding: Any, expected: tuple[int, int]) -> None:
    op = make_op(
        "conv2d",
        "conv",
        {"input": spec(1, 4, 9, 9), "weight": spec(4, 4, 3, 3)},
        spec(1, 4, 9, 9),
        attributes={"padding": padding, "dilation": [2, 2], "stride": [1], "groups": 1},
    )
    assert convolutions(lower_op(op, ()))["forward"].padding == expected


def test_depthwise_is_recognised() -> None:
    assert convolutions(lower_op(conv2d(channels=8, out=8, groups=8), ()))["forward"].is_depthwise
    assert not convolutions(lower_op(conv2d(channels=8, out=8, groups=4), ()))["forward"].is_depthwise


def test_channels_last_when_either_operand_is() -> None:
    """The other operand is then converted first."""
    input_bytes, weight_bytes = 2 * 8 * 9 * 9 * 4, 12 * 8 * 3 * 3 * 4
    for x_last in (False, True):
        for w_last in (False, True):
            x = spec(2, 8, 9, 9, strides=channels_last_strides((2, 8, 9, 9)) if x_last else None)
            w = spec(12, 8, 3, 3, strides=channels_last_strides((12, 8, 3, 3)) if w_last else None)
            kernels = lower_op(make_op("conv2d", "conv", {"input": x, "weight": w}, spec(2, 12, 7, 7)), ())
            assert convolutions(kernels)["forward"].channels_last is (x_last or w_last)
            copied = 0 if x_last == w_last else weight_bytes if x_last else input_bytes
            assert traffic_of(kernels) == (copied, copied)


SHAPES = [(2, 3, 5, 4), (8, 1, 3, 3), (8, 4, 1, 1), (1, 1, 1, 1), (2, 3, 2, 5, 4), (2, 1, 2, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_reads_strides_as_torch_does(shape: tuple[int, ...], last: bool) -> None:
    """Also where both layouts fit: one channel, or one position."""
    torch = pytest.importorskip("torch")
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    tensor = torch.empty(shape, memory_format=layout if last else torch.contiguous_format)
    expected = torch._prims_common.suggest_memory_format(tensor) == layout
    assert suggests_channels_last(spec(*shape, strides=tensor.stride())) == expected


def test_bias_is_a_pass_over_the_output() -> None:
    op = conv2d()
    with_bias = make_op(
        "conv2d",
        "conv",
        {"input": op.inputs[0], "weight": op.inputs[1], "bias": spec(12, parameter="b")},
        op.outputs[0],
        attributes=op.attributes,
    )
    size = op.outputs[0].bytes
    kernels = lower_op(with_bias, (True, True, True))
    assert traffic_of(kernels) == (size, size)
    assert traffic_of(kernels, "backward") == (size, 12 * 4)


def test_deformable_convolution_is_a_product_of_sampled_columns() -> None:
    op = make_op(
        "deform_conv2d",
        "conv",
        {
            "input": spec(2, 8, 9, 9),
            "weight": spec(12, 8, 3, 3, parameter="w"),
            "offset": spec(2, 18, 7, 7),
            "mask": spec(2, 9, 7, 7),
            "bias": spec(12, parameter="b"),
        },
        spec(2, 12, 7, 7),
    )
    kernels = lower_op(op, (True,) * 5)
    conv = convolutions(lower_op(conv2d(), ()))["forward"]
    assert [kernel.role for kernel in kernels if kernel.flops == conv.flops] == ["forward", "wgrad", "dgrad"]
    columns, biased = 2 * 49 * 8 * 9 * 4, op.outputs[0].bytes
    assert traffic_of(kernels)[1] == columns + biased
