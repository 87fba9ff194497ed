"""Propagation rules of convolutions, pooling, resampling and unfolding: ops along spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tclint.graph.dims.call import Axes, OpCall, Unmodelled, rule
from tclint.graph.dims.size import ONE, Size, product


@dataclass(frozen=True, slots=True)
class _Window:
    """A convolution's or pool's window along one spatial axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool = False

    def positions(self, call: OpCall, size: Size) -> Size:
        """How often it fits: floor((size + 2p - d(k-1) - 1) / s) + 1."""
        extent = self.dilation * (self.kernel - 1) + 1
        reach = size + Size.constant(2 * self.padding - extent)
        if self.stride == 1:
            return size if 2 * self.padding == extent - 1 else reach + ONE
        if self.ceil_mode:
            numbers = (self.stride, extent, self.padding)
            return call.solver.derived("window_ceil", size, numbers, call.op.index)
        # (size + c) // s + 1 == (size + c + s) // s; one form makes equal windows equal sizes.
        return call.solver.derived(
            "floor_div", reach + Size.constant(self.stride), (self.stride,), call.op.index
        )


def _grouped_channels(call: OpCall, channels: Size, weight: Axes, groups: int) -> Size:
    """Couple the input channels of a convolution with its weight [K, C/g, ...]; returns its K."""
    if groups == 1:
        call.unify(channels, weight[1])
        return weight[0]
    count, outputs = call.value(channels), call.value(weight[0])
    if count == groups:
        # Depthwise: the number of groups follows the channels.
        call.unify(weight[1], ONE)
        made = product((channels, Size.constant(outputs // count)))
        call.unify(weight[0], made)
        return made
    call.unify(channels, weight[1].scaled(groups))
    per_group = call.divided(weight[0], groups)
    return per_group.scaled(groups)


@rule("conv1d", "conv2d", "conv3d", "thnn_conv2d", "slow_conv3d")
def _conv(call: OpCall) -> Sequence[Axes]:
    axes, weight = call.tensor("input", "self"), call.tensor("weight")
    rank = len(weight) - 2
    if len(axes) not in (rank + 1, rank + 2):
        raise Unmodelled("an input of unexpected rank")
    channels = axes[-rank - 1]
    outputs = _grouped_channels(call, channels, weight, call.integer("groups", 1))
    bias = call.optional("bias")
    if bias:
        call.unify(bias[0], outputs)
    kernel = [call.value(size) for size in weight[2:]]
    for size in weight[2:]:
        call.unify(size, Size.constant(call.value(size)))
    stride = call.integers("stride", rank)
    dilation = call.integers("dilation", rank) if "dilation" in call.op.attributes else (1,) * rank
    padding = call.attribute("padding", 0)
    if padding == "same":
        return ((*axes[: -rank - 1], outputs, *axes[-rank:]),)
    pads = (0,) * rank if padding == "valid" else call.integers("padding", rank)
    spatial = [
        _Window(width, step, pad, spread).positions(call, size)
        for size, width, step, pad, spread in zip(axes[-rank:], kernel, stride, pads, dilation, strict=True)
    ]
    return ((*axes[: -rank - 1], outputs, *spatial),)


@rule("convolution", "_convolution")
def _convolution(call: OpCall) -> Sequence[Axes]:
    return _conv_transpose(call) if call.attribute("transposed", False) else _conv(call)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(call: OpCall) -> Sequence[Axes]:
    axes, weight = call.tensor("input"), call.tensor("weight")
    rank = len(weight) - 2
    if len(axes) not in (rank + 1, rank + 2):
        raise Unmodelled("an input of unexpected rank")
    channels, groups = axes[-rank - 1], call.integer("groups", 1)
    # The weight is [C, K/g, ...]: the input's channels come first and are not divided by the groups.
    call.unify(channels, weight[0])
    if groups == 1:
        outputs = weight[1]
    elif call.value(channels) == groups:
        call.unify(weight[1], Size.constant(call.value(weight[1])))
        outputs = product((channels, Size.constant(call.value(weight[1]))))
    else:
        call.divided(channels, groups)
        outputs = weight[1].scaled(groups)
    bias = call.optional("bias")
    if bias:
        call.unify(bias[0], outputs)
    spatial = []
    for position, size in enumerate(axes[-rank:]):
        kernel = call.value(weight[2 + position])
        call.unify(weight[2 + position], Size.constant(kernel))
        stride, padding, extra, dilation = (
            call.integers(name, rank)[position]
            for name in ("stride", "padding", "output_padding", "dilation")
        )
        added = dilation * (kernel - 1) + 1 + extra - 2 * padding - stride
        spatial.append(size.scaled(stride) + Size.constant(added) if added else size.scaled(stride))
    return ((*axes[: -rank - 1], outputs, *spatial),)


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
)  # fmt: skip
def _pool(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    rank = int(call.op.name.split("pool", 1)[1][0])
    kernel = call.integers("kernel_size", rank)
    stride = call.integers("stride", rank) if call.attribute("stride") else kernel
    padding = call.integers("padding", rank) if "padding" in call.op.attributes else (0,) * rank
    dilation = call.integers("dilation", rank) if "dilation" in call.op.attributes else (1,) * rank
    ceil_mode = bool(call.attribute("ceil_mode", False))
    spatial = [
        _Window(width, step, pad, spread, ceil_mode).positions(call, size)
        for size, width, step, pad, spread in zip(
            axes[-rank:], kernel, stride, padding, dilation, strict=True
        )
    ]
    return ((*axes[:-rank], *spatial),) * len(call.op.outputs)


@rule(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
)  # fmt: skip
def _adaptive_pool(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    rank = int(call.op.name.split("pool", 1)[1][0])
    spatial = tuple(Size.constant(size) for size in call.output_shape[-rank:])
    return ((*axes[:-rank], *spatial),) * len(call.op.outputs)


@rule(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "interpolate",
)  # fmt: skip
def _upsample(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    spatial = []
    by_size = call.attribute("output_size", call.attribute("size")) is not None
    for size, wanted in zip(axes[2:], call.output_shape[2:], strict=True):
        have = call.value(size)
        # A size is written as a number or taken from another tensor: whatever it meets will tell.
        if by_size:
            spatial.append(call.free(wanted, "expansion"))
        elif wanted % have == 0:
            spatial.append(size.scaled(wanted // have))
        else:
            spatial.append(call.solver.derived("scaled", size, (wanted / have,), call.op.index))
    return ((*axes[:2], *spatial),)


@rule("im2col")
def _im2col(call: OpCall) -> Sequence[Axes]:
    *batch, channels, height, width = call.first()
    kernel, stride, padding, dilation = (
        call.integers(name, 2) for name in ("kernel_size", "stride", "padding", "dilation")
    )
    blocks = product(
        _Window(kernel[i], stride[i], padding[i], dilation[i]).positions(call, size)
        for i, size in enumerate((height, width))
    )
    return ((*batch, product((channels, Size.constant(kernel[0] * kernel[1]))), blocks),)


@rule("col2im")
def _col2im(call: OpCall) -> Sequence[Axes]:
    *batch, columns, blocks = call.first()
    kernel = call.integers("kernel_size", 2)
    # The blocks must be those of the output size, a number that only the code knows.
    call.unify(blocks, Size.constant(call.value(blocks)))
    spatial = (Size.constant(size) for size in call.integers("output_size", 2))
    return ((*batch, call.divided(columns, kernel[0] * kernel[1]), *spatial),)


@rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(call: OpCall) -> Sequence[Axes]:
    axes, grid = call.tensor("input"), call.tensor("grid")
    call.unify(axes[0], grid[0])
    return ((*axes[:2], *grid[1:-1]),)
