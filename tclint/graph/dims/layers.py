"""Propagation rules of layers: matrix products, norms, embeddings, attention, recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.dims.call import Axes, OpCall, Unmodelled, rule
from tclint.graph.dims.size import ONE, Size, concatenation, product

# ------------------------------------------------------------------------------ products


@rule("linear")
def _linear(call: OpCall) -> Sequence[Axes]:
    axes, weight = call.tensor("input"), call.tensor("weight")
    call.unify(axes[-1], weight[-1])
    outputs: Axes = weight[:1] if len(weight) == 2 else ()
    bias = call.optional("bias")
    if bias:
        call.unify(bias[-1], outputs[0])
    return ((*axes[:-1], *outputs),)


def product_axes(call: OpCall, left: Axes, right: Axes) -> Axes:
    """The symbolic shape of `torch.matmul(left, right)`."""
    if not left or not right:
        raise Unmodelled("a product with a scalar")
    call.unify(left[-1], right[-2] if len(right) > 1 else right[-1])
    batch = call.broadcast((left[:-2], right[:-2]))
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "linalg_matmul", "_int_mm")
def _matmul(call: OpCall) -> Sequence[Axes]:
    if len(call.inputs) < 2:
        raise Unmodelled("no second operand")
    return (product_axes(call, call.inputs[0], call.inputs[1]),)


@rule("addmm", "_addmm_activation", "baddbmm", "addmv")
def _addmm(call: OpCall) -> Sequence[Axes]:
    bias, left, right = call.inputs[:3]
    return (call.broadcast((bias, product_axes(call, left, right))),)


@rule("addbmm")
def _addbmm(call: OpCall) -> Sequence[Axes]:
    bias, left, right = call.inputs[:3]
    return (call.broadcast((bias, product_axes(call, left, right)[1:])),)


@rule("_grouped_mm", "grouped_mm_fallback")
def _grouped_mm(call: OpCall) -> Sequence[Axes]:
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
def _outer(call: OpCall) -> Sequence[Axes]:
    left, right = call.inputs[-2:]
    return ((left[0], right[0]),)


@rule("bilinear")
def _bilinear(call: OpCall) -> Sequence[Axes]:
    first, second, weight = call.tensor("input1"), call.tensor("input2"), call.tensor("weight")
    call.unify(first[-1], weight[1])
    call.unify(second[-1], weight[2])
    bias = call.optional("bias")
    if bias:
        call.unify(bias[0], weight[0])
    return ((*call.broadcast((first[:-1], second[:-1])), weight[0]),)


@rule("einsum")
def _einsum(call: OpCall) -> Sequence[Axes]:
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
def _tensordot(call: OpCall) -> Sequence[Axes]:
    left, right = call.inputs[:2]
    ours = [call.axis(dim, len(left)) for dim in call.integers("dims_self")]
    theirs = [call.axis(dim, len(right)) for dim in call.integers("dims_other")]
    for one, other in zip(ours, theirs, strict=True):
        call.unify(left[one], right[other])
    kept = [axis for position, axis in enumerate(left) if position not in ours]
    return ((*kept, *(axis for position, axis in enumerate(right) if position not in theirs)),)


# ------------------------------------------------------------------------------ norms


@rule(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm", "instance_norm",
)  # fmt: skip
def _channel_norm(call: OpCall) -> Sequence[Axes]:
    axes = call.tensor("input")
    for name in ("weight", "bias", "running_mean", "running_var"):
        per_channel = call.optional(name)
        if per_channel:
            call.unify(axes[1], per_channel[0])
    others = tuple((axes[1],) if len(spec.shape) == 1 else () for spec in call.op.outputs[1:])
    return (axes, *others)


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(call: OpCall) -> Sequence[Axes]:
    axes = call.tensor("input")
    count = len(call.integers("normalized_shape"))
    for name in ("weight", "bias"):
        affine = call.optional(name)
        if affine:
            call.unify_axes(axes[-count:], affine)
    statistics = (*axes[:-count], *(ONE,) * count)
    return (axes, *(statistics,) * (len(call.op.outputs) - 1))


@rule("group_norm", "native_group_norm")
def _group_norm(call: OpCall) -> Sequence[Axes]:
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
def _weight_norm(call: OpCall) -> Sequence[Axes]:
    direction, magnitude = call.inputs[:2]
    return (call.broadcast((direction, magnitude)), *(magnitude,) * (len(call.op.outputs) - 1))


# ------------------------------------------------------------------------------ embeddings, attention


@rule("embedding")
def _embedding(call: OpCall) -> Sequence[Axes]:
    return ((*call.tensor("indices"), call.tensor("weight")[1]),)


@rule("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(call: OpCall) -> Sequence[Axes]:
    offsets = call.optional("offsets")
    if offsets is None or call.attribute("include_last_offset", False):
        raise Unmodelled("bags that are not given by offsets")
    result: Axes = (offsets[0], call.tensor("weight")[1])
    return (result, *(call.free_shape(spec.shape) for spec in call.op.outputs[1:]))


@rule("scaled_dot_product_attention", "flex_attention")
def _attention(call: OpCall) -> Sequence[Axes]:
    query, key, value = call.inputs[:3]
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    if len(query) == 4 and call.value(query[1]) != call.value(key[1]):
        # Grouped queries: each key head serves a fixed number of query heads.
        call.unify(query[0], key[0])
        call.unify(key[1], value[1])
        served = call.free(call.value(query[1]) // call.value(key[1]), "expansion")
        call.unify(query[1], product((key[1], served)))
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
def _recurrent(call: OpCall) -> Sequence[Axes]:
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
def _cell(call: OpCall) -> Sequence[Axes]:
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


@rule("ctc_loss", "_ctc_loss", "_use_cudnn_ctc_loss", "cudnn_ctc_loss")
def _ctc_loss(call: OpCall) -> Sequence[Axes]:
    log_probabilities, targets = call.inputs[:2]
    if len(log_probabilities) == 3 and len(targets) == 2:
        call.unify(targets[0], log_probabilities[1])
    if len(call.op.outputs) != 1:
        raise Unmodelled("its second output")
    return (log_probabilities[1:2] if call.op.outputs[0].shape else (),)


@rule("multinomial")
def _multinomial(call: OpCall) -> Sequence[Axes]:
    return ((*call.inputs[0][:-1], Size.constant(call.op.outputs[0].shape[-1])),)


@rule("threshold_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward")
def _activation_backward(call: OpCall) -> Sequence[Axes]:
    return (call.broadcast(call.inputs[:2]),)
