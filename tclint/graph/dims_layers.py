"""Propagation rules of layers: products, convolutions, norms, embeddings, attention, recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tclint.graph.dims_call import Axes, Call, Unmodelled, rule
from tclint.graph.dims_size import ONE, Size, concatenation, product

# ------------------------------------------------------------------------------ products


def _add_bias(call: Call, bias: Axes | None, result: Axes) -> Axes:
    return result if bias is None else call.broadcast((bias, result))


@rule("linear")
def _linear(call: Call) -> Sequence[Axes]:
    axes, weight = call.tensor("input"), call.tensor("weight")
    call.unify(axes[-1], weight[-1])
    outputs: Axes = weight[:1] if len(weight) == 2 else ()
    bias = call.optional("bias")
    if bias:
        call.unify(bias[-1], outputs[0])
    return ((*axes[:-1], *outputs),)


def product_axes(call: Call, left: Axes, right: Axes) -> Axes:
    """The symbolic shape of `torch.matmul(left, right)`."""
    if not left or not right:
        raise Unmodelled("a product with a scalar")
    call.unify(left[-1], right[-2] if len(right) > 1 else right[-1])
    batch = call.broadcast((left[:-2], right[:-2]))
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "linalg_matmul", "_int_mm")
def _matmul(call: Call) -> Sequence[Axes]:
    if len(call.inputs) < 2:
        raise Unmodelled("no second operand")
    return (product_axes(call, call.inputs[0], call.inputs[1]),)


@rule("addmm", "_addmm_activation", "baddbmm", "addmv")
def _addmm(call: Call) -> Sequence[Axes]:
    bias, left, right = call.inputs[:3]
    return (_add_bias(call, bias, product_axes(call, left, right)),)


@rule("addbmm")
def _addbmm(call: Call) -> Sequence[Axes]:
    bias, left, right = call.inputs[:3]
    return (_add_bias(call, bias, product_axes(call, left, right)[1:]),)


@rule("_grouped_mm")
def _grouped_mm(call: Call) -> Sequence[Axes]:
    left, right = call.inputs[:2]
    call.unify(left[-1], right[-2])
    if len(left) == len(right) == 2:
        # Both are ragged along the contracted dim, of which each group is a run.
        return ((call.tensor("offs")[0], left[0], right[1]),)
    batch: Axes = ()
    if len(left) == len(right) == 3:
        call.unify(left[0], right[0])
        batch = left[:1]
    return ((*batch, left[-2], right[-1]),)


@rule("outer", "ger", "addr")
def _outer(call: Call) -> Sequence[Axes]:
    left, right = call.inputs[-2:]
    return ((left[0], right[0]),)


@rule("bilinear")
def _bilinear(call: Call) -> Sequence[Axes]:
    first, second, weight = call.tensor("input1"), call.tensor("input2"), call.tensor("weight")
    call.unify(first[-1], weight[1])
    call.unify(second[-1], weight[2])
    bias = call.optional("bias")
    if bias:
        call.unify(bias[0], weight[0])
    return ((*call.broadcast((first[:-1], second[:-1])), weight[0]),)


@rule("einsum")
def _einsum(call: Call) -> Sequence[Axes]:
    equation = str(call.attribute("equation", "")).replace(" ", "")
    operands = call.tensors("tensors") or list(call.inputs)
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != len(operands):
        raise Unmodelled(f"the equation {equation!r}")
    letters: dict[str, Size] = {}
    ellipsis: list[Axes] = []
    for term, axes in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        named = (*axes[: len(before)], *axes[len(axes) - len(after) :])
        if len(named) != len(axes) and not dots:
            raise Unmodelled(f"the equation {equation!r}")
        ellipsis.append(axes[len(before) : len(axes) - len(after)])
        for letter, axis in zip(before + after, named, strict=True):
            known = letters.get(letter)
            letters[letter] = axis if known is None else call.broadcast(((known,), (axis,)))[0]
    before, dots, after = output.partition("...")
    middle = call.broadcast(ellipsis) if dots else ()
    return ((*(letters[i] for i in before), *middle, *(letters[i] for i in after)),)


@rule("tensordot")
def _tensordot(call: Call) -> Sequence[Axes]:
    left, right = call.inputs[:2]
    ours = [call.axis(dim, len(left)) for dim in call.integers("dims_self")]
    theirs = [call.axis(dim, len(right)) for dim in call.integers("dims_other")]
    for one, other in zip(ours, theirs, strict=True):
        call.unify(left[one], right[other])
    kept = [axis for position, axis in enumerate(left) if position not in ours]
    return ((*kept, *(axis for position, axis in enumerate(right) if position not in theirs)),)


# ------------------------------------------------------------------------------ convolutions and pools


@dataclass(frozen=True, slots=True)
class _Window:
    """A convolution's or pool's window along one spatial axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool = False

    def positions(self, call: Call, size: Size) -> Size:
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


def _grouped_channels(call: Call, channels: Size, weight: Axes, groups: int) -> Size:
    """Couple the input channels of a convolution with its weight [K, C/g, ...]; returns its K."""
    if groups == 1:
        call.unify(channels, weight[1])
        return weight[0]
    count, outputs = call.value(channels), call.value(weight[0])
    if count == groups:
        # Depthwise: the number of groups follows the channels.
        call.unify(weight[1], ONE)
        call.unify(weight[0], channels.scaled(outputs // count))
        return channels.scaled(outputs // count) if outputs > count else channels
    call.unify(channels, weight[1].scaled(groups))
    per_group = call.divided(weight[0], groups)
    return per_group.scaled(groups)


@rule("conv1d", "conv2d", "conv3d", "thnn_conv2d", "slow_conv3d")
def _conv(call: Call) -> Sequence[Axes]:
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
def _convolution(call: Call) -> Sequence[Axes]:
    return _conv_transpose(call) if call.attribute("transposed", False) else _conv(call)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(call: Call) -> Sequence[Axes]:
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
        outputs = channels.scaled(call.value(weight[1]))
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
def _pool(call: Call) -> Sequence[Axes]:
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
def _adaptive_pool(call: Call) -> Sequence[Axes]:
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
def _upsample(call: Call) -> Sequence[Axes]:
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
def _im2col(call: Call) -> Sequence[Axes]:
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
def _col2im(call: Call) -> Sequence[Axes]:
    *batch, columns, blocks = call.first()
    kernel = call.integers("kernel_size", 2)
    # The blocks must be those of the output size, a number that only the code knows.
    call.unify(blocks, Size.constant(call.value(blocks)))
    spatial = (Size.constant(size) for size in call.integers("output_size", 2))
    return ((*batch, call.divided(columns, kernel[0] * kernel[1]), *spatial),)


@rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(call: Call) -> Sequence[Axes]:
    axes, grid = call.tensor("input"), call.tensor("grid")
    call.unify(axes[0], grid[0])
    return ((*axes[:2], *grid[1:-1]),)


# ------------------------------------------------------------------------------ norms


@rule(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm", "instance_norm",
)  # fmt: skip
def _channel_norm(call: Call) -> Sequence[Axes]:
    axes = call.tensor("input")
    for name in ("weight", "bias", "running_mean", "running_var"):
        per_channel = call.optional(name)
        if per_channel:
            call.unify(axes[1], per_channel[0])
    others = tuple((axes[1],) if len(spec.shape) == 1 else () for spec in call.op.outputs[1:])
    return (axes, *others)


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(call: Call) -> Sequence[Axes]:
    axes = call.tensor("input")
    count = len(call.integers("normalized_shape"))
    for name in ("weight", "bias"):
        affine = call.optional(name)
        if affine:
            call.unify_axes(axes[-count:], affine)
    statistics = (*axes[:-count], *(ONE,) * count)
    return (axes, *(statistics,) * (len(call.op.outputs) - 1))


@rule("group_norm", "native_group_norm")
def _group_norm(call: Call) -> Sequence[Axes]:
    axes = call.tensor("input")
    groups = call.integer("num_groups" if "num_groups" in call.op.attributes else "group")
    for name in ("weight", "bias"):
        affine = call.optional(name)
        if affine:
            call.unify(axes[1], affine[0])
    call.solver.require_divisible(axes[1], groups, call.op.index)
    statistics = (axes[0], Size.constant(groups))
    return (axes, *(statistics,) * (len(call.op.outputs) - 1))


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(call: Call) -> Sequence[Axes]:
    direction, magnitude = call.inputs[:2]
    return (call.broadcast((direction, magnitude)), *(magnitude,) * (len(call.op.outputs) - 1))


# ------------------------------------------------------------------------------ embeddings, attention


@rule("embedding")
def _embedding(call: Call) -> Sequence[Axes]:
    return ((*call.tensor("indices"), call.tensor("weight")[1]),)


@rule("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(call: Call) -> Sequence[Axes]:
    offsets = call.optional("offsets")
    if offsets is None or call.attribute("include_last_offset", False):
        raise Unmodelled("bags that are not given by offsets")
    result: Axes = (offsets[0], call.tensor("weight")[1])
    return (result, *(call.free_shape(spec.shape) for spec in call.op.outputs[1:]))


@rule("scaled_dot_product_attention", "flex_attention")
def _attention(call: Call) -> Sequence[Axes]:
    query, key, value = call.inputs[:3]
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    if len(query) == 4 and call.value(query[1]) != call.value(key[1]):
        # Grouped queries: each key head serves a fixed number of query heads.
        call.unify(query[0], key[0])
        call.unify(key[1], value[1])
        call.unify(query[1], key[1].scaled(call.value(query[1]) // call.value(key[1])))
        batch: Axes = query[:-2]
    else:
        batch = call.broadcast((query[:-2], key[:-2], value[:-2]))
    mask = call.optional("attn_mask")
    if mask is not None:
        call.broadcast((mask, (*batch, query[-2], key[-2])))
    result = (*batch, query[-2], value[-1])
    return (result, *((*batch, query[-2]) for _ in call.op.outputs[1:]))


# ------------------------------------------------------------------------------ recurrent layers

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(call: Call) -> Sequence[Axes]:
    gates = _GATES[call.op.name]
    axes = call.tensor("input", "data")
    packed = call.optional("data") is not None
    layers = call.integer("num_layers")
    directions = 2 if call.attribute("bidirectional", False) else 1
    params = call.tensors("params")
    per_cell, left_over = divmod(len(params), layers * directions)
    if left_over or per_cell < 2:
        raise Unmodelled("an unexpected number of weights")
    biased = bool(call.attribute("has_biases", True))
    projected = per_cell == (5 if biased else 3)
    features, hidden, emitted = axes[-1], ONE, ONE
    for layer in range(layers):
        for direction in range(directions):
            first = (layer * directions + direction) * per_cell
            cell = params[first : first + per_cell]
            size = call.divided(cell[1][0], gates)
            for weight in cell[: 4 if biased else 2]:
                call.unify(weight[0], size.scaled(gates))
            call.unify(cell[0][1], features)
            out = cell[-1][0] if projected else size
            call.unify(cell[1][1], out)
            if projected:
                call.unify(cell[-1][1], size)
            if layer or direction:
                call.unify(hidden, size)
                call.unify(emitted, out)
            hidden, emitted = size, out
        features = concatenation((emitted,) * directions)
    batch = axes[:-1]
    state_batch: Axes = ()
    if len(axes) == 3:
        state_batch = (axes[0 if call.attribute("batch_first", False) else 1],)
    states = call.tensors("hx") or ([call.tensor("hx")] if call.optional("hx") else [])
    if packed and states:
        state_batch = states[0][1:-1]
    count = Size.constant(layers * directions)
    for position, state in enumerate(states):
        call.unify_axes(state, (count, *state_batch, hidden if position else emitted))
    outputs: list[Axes] = [(*batch, features), (count, *state_batch, emitted)]
    if gates == 4:
        outputs.append((count, *state_batch, hidden))
    return outputs


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(call: Call) -> Sequence[Axes]:
    gates = _GATES[call.op.name.removesuffix("_cell")]
    axes, w_ih, w_hh = call.tensor("input"), call.tensor("w_ih"), call.tensor("w_hh")
    hidden = w_hh[1]
    call.unify(axes[-1], w_ih[1])
    for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
        weight = call.optional(name)
        if weight:
            call.unify(weight[0], hidden.scaled(gates))
    result = (*axes[:-1], hidden)
    for state in call.tensors("hx") or [call.tensor("hx")]:
        call.unify_axes(state, result)
    return (result,) * len(call.op.outputs)
