"""Transfer rules of matrix products: where entries are summed, added ones have to meet zeros."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.weights.axis import Axis, Fill, Pad, Run, Scattered, Values, product, split
from tclint.graph.weights.step import Padded, Step, rule
from tclint.graph.weights.values import is_finite, is_zero, plus, times

Labels = list[str]


def contract(step: Step, operands: Sequence[tuple[Padded, Labels]], output: Labels) -> Padded:
    """The sum over all labels that the output has not of the products of the operands.

    Raises:
        Inexact: an added entry that is not zero would be summed.
    """
    axes: dict[str, Axis] = {}
    for tensor, labels in operands:
        for label, axis in zip(labels, tensor.axes, strict=True):
            axes[label] = step.meet(axes[label], axis) if label in axes else axis
    for label, axis in axes.items():
        if axis.is_padded and label not in output:
            for _, pad, values in _together(operands, label, axis):
                if not is_zero(values):
                    what = "are not zero" if is_finite(values) else "may not be finite"
                    raise step.inexact(f"added entries that {what} are summed", pad.groups)
    infinite = any(tensor.is_infinite for tensor, _ in operands)
    return step.result([_summed(operands, label, axes[label]) for label in output], is_infinite=infinite)


def _together(
    operands: Sequence[tuple[Padded, Labels]], label: str, axis: Axis
) -> list[tuple[Run, Pad, Values]]:
    """Each added run of one label, and what the products hold there."""
    found = []
    position = 0
    for run in axis.runs:
        if run.pad is not None:
            values = Fill.POSITIVE
            for tensor, labels in operands:
                if label in labels:
                    own = tensor.axes[labels.index(label)]
                    here = own.cut(position, position + run.length)
                    values = times(values, here.values if here.is_padded else tensor.kept)
                else:
                    values = times(values, tensor.kept)
                if tensor.is_infinite:
                    values |= Fill.ANY
            found.append((run, run.pad, values))
        position += run.length
    return found


def _summed(operands: Sequence[tuple[Padded, Labels]], label: str, axis: Axis) -> Axis:
    if not axis.is_padded:
        return axis
    values = iter([values for *_, values in _together(operands, label, axis)])
    runs = []
    for run in axis.runs:
        if run.pad is None:
            runs.append(run)
        else:
            found = next(values)
            # Sums of positive ones with those of other signs may be anything.
            kept = found if is_zero(found) else found | Fill.FINITE
            runs.append(Run(run.length, Pad(kept, run.pad.groups)))
    return Axis.of(runs, axis.origin)


def added(step: Step, left: Padded, right: Padded) -> Padded:
    """The elementwise sum, right-aligned."""
    rank = max(len(left.axes), len(right.axes))
    one = (Axis.kept(1),) * (rank - len(left.axes)) + left.axes
    other = (Axis.kept(1),) * (rank - len(right.axes)) + right.axes
    axes = []
    for position in range(rank):
        axis = step.meet(one[position], other[position])
        if axis.is_padded:
            first = _values_along(one[position], left, axis)
            second = _values_along(other[position], right, axis)
            runs = (
                run if run.pad is None else Run(run.length, Pad(plus(a, b), run.pad.groups))
                for (run, a), (_, b) in zip(first, second, strict=True)
            )
            axis = Axis.of(runs, axis.origin)
        axes.append(axis)
    return step.result(axes, is_infinite=left.is_infinite or right.is_infinite)


def _values_along(own: Axis, tensor: Padded, axis: Axis) -> list[tuple[Run, Values]]:
    """What a tensor holds in each run of the axis that it is broadcast to."""
    found, position = [], 0
    for run in axis.runs:
        here = own.cut(position, position + run.length) if own.new_size > 1 else own
        found.append((run, here.values if here.is_padded else tensor.kept))
        position += run.length
    return found


# ------------------------------------------------------------------------------ products


@rule("linear")
def _linear(step: Step) -> Sequence[Padded]:
    tensor, weight = step.tensor("input"), step.tensor("weight")
    batch = [f"b{position}" for position in range(len(tensor.axes) - 1)]
    rows = ["o"] if len(weight.axes) == 2 else []
    result = contract(step, [(tensor, [*batch, "i"]), (weight, [*rows, "i"])], [*batch, *rows])
    bias = step.optional("bias")
    return [added(step, result, bias) if bias is not None else result]


def matrix_product(step: Step, left: Padded, right: Padded) -> Padded:
    """`torch.matmul(left, right)`."""
    ranks = len(left.axes), len(right.axes)
    if 0 in ranks:
        raise step.inexact("a product with a scalar")
    batch = max(*ranks, 2) - 2
    names = [f"b{position}" for position in range(batch)]
    rows = ["m"] if ranks[0] > 1 else []
    columns = ["n"] if ranks[1] > 1 else []
    first = [*names[batch - max(ranks[0] - 2, 0) :], *rows, "k"]
    second = [*names[batch - max(ranks[1] - 2, 0) :], "k", *columns]
    return contract(step, [(left, first), (right, second)], [*names, *rows, *columns])


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "linalg_matmul")
def _matmul(step: Step) -> Sequence[Padded]:
    return [matrix_product(step, step.inputs[0], step.inputs[1])]


@rule("addmm", "baddbmm", "addmv")
def _addmm(step: Step) -> Sequence[Padded]:
    bias, left, right = step.inputs[:3]
    return [added(step, matrix_product(step, left, right), bias)]


@rule("outer", "ger")
def _outer(step: Step) -> Sequence[Padded]:
    left, right = step.inputs[:2]
    return [contract(step, [(left, ["m"]), (right, ["n"])], ["m", "n"])]


@rule("bilinear")
def _bilinear(step: Step) -> Sequence[Padded]:
    first, second, weight = (step.tensor(name) for name in ("input1", "input2", "weight"))
    batch = [f"b{position}" for position in range(len(first.axes) - 1)]
    operands = [(first, [*batch, "i"]), (second, [*batch, "j"]), (weight, ["o", "i", "j"])]
    result = contract(step, operands, [*batch, "o"])
    bias = step.optional("bias")
    return [added(step, result, bias) if bias is not None else result]


@rule("einsum")
def _einsum(step: Step) -> Sequence[Padded]:
    equation = str(step.attribute("equation", "")).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    operands = step.tensors("tensors") or list(step.inputs)
    terms = inputs.split(",")
    if not arrow or len(terms) != len(operands):
        raise step.inexact(f"the equation {equation!r} is not modelled")
    labelled, most = [], 0
    for term, tensor in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        middle = len(tensor.axes) - len(before) - len(after)
        if middle < 0 or (middle and not dots):
            raise step.inexact(f"the equation {equation!r} is not modelled")
        most = max(most, middle)
        labelled.append((tensor, before, middle, after))
    names = [f"...{position}" for position in range(most)]
    given = [
        (tensor, [*before, *names[most - middle :], *after]) for tensor, before, middle, after in labelled
    ]
    before, dots, after = output.partition("...")
    if any(len(set(labels)) != len(labels) for _, labels in given):
        raise step.inexact("a diagonal")
    return [contract(step, given, [*before, *(names if dots else ()), *after])]


# ------------------------------------------------------------------------------ convolutions


@rule("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "thnn_conv2d", "slow_conv3d")
def _conv(step: Step) -> Sequence[Padded]:
    transposed = bool(step.attribute("transposed", False))
    return [_convolved(step, transposed=transposed)]


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(step: Step) -> Sequence[Padded]:
    return [_convolved(step, transposed=True)]


def _convolved(step: Step, *, transposed: bool) -> Padded:
    """A convolution as the product over channels that it is; kernels and images may not grow."""
    tensor, weight = step.tensor("input", "self"), step.tensor("weight")
    rank = len(weight.axes) - 2
    channel = len(tensor.axes) - rank - 1
    spatial = (*tensor.axes[channel + 1 :], *weight.axes[2:])
    if any(axis.is_padded for axis in spatial):
        raise step.inexact("its image or its kernel grows")
    old_groups, new_groups = int(step.attribute("groups", 1)), int(step.new.attributes.get("groups") or 1)
    batch = [f"b{position}" for position in range(channel)]
    pixels = [f"s{position}" for position in range(rank)]
    kernel = [f"k{position}" for position in range(rank)]
    if old_groups == new_groups == 1:
        labels = ["i", "o", *kernel] if transposed else ["o", "i", *kernel]
        result = contract(step, [(tensor, [*batch, "i", *pixels]), (weight, labels)], [*batch, "o", *pixels])
    else:
        result = _grouped(step, tensor, weight, channel, (old_groups, new_groups), transposed=transposed)
    axes = list(result.axes)
    axes[channel + 1 :] = [Axis.kept(size) for size in step.old.outputs[0].shape[channel + 1 :]]
    if step.shape()[channel + 1 :] != tuple((axis.new_size,) * 2 for axis in axes[channel + 1 :]):
        raise step.inexact("its image grows")
    result = Padded(tuple(axes), result.touched)
    bias = step.optional("bias")
    if bias is None:
        return result
    ones = (Axis.kept(1),) * rank
    return added(step, result, Padded((*bias.axes, *ones), bias.touched))


def _grouped(
    step: Step,
    tensor: Padded,
    weight: Padded,
    channel: int,
    groups: tuple[int, int],
    *,
    transposed: bool,
) -> Padded:
    """Channels as (group, channel of it), so that each group is a product of its own."""
    given = split_axis(step, tensor.axes[channel], groups)
    rows = split_axis(step, weight.axes[0], groups, given[0])
    rank = len(weight.axes) - 2
    batch = [f"b{position}" for position in range(channel)]
    pixels = [f"s{position}" for position in range(rank)]
    kernel = [f"k{position}" for position in range(rank)]
    apart = Padded(
        (*tensor.axes[:channel], *given, *tensor.axes[channel + 1 :]), tensor.touched, tensor.is_infinite
    )
    filters = Padded((*rows, *weight.axes[1:]), weight.touched)
    inner = ["g", "i", "o", *kernel] if transposed else ["g", "o", "i", *kernel]
    result = contract(
        step, [(apart, [*batch, "g", "i", *pixels]), (filters, inner)], [*batch, "g", "o", *pixels]
    )
    joint = product(result.axes[channel : channel + 2])
    return Padded((*result.axes[:channel], joint, *result.axes[channel + 2 :]), result.touched)


def split_axis(step: Step, axis: Axis, outer: tuple[int, int], like: Axis | None = None) -> tuple[Axis, Axis]:
    """An axis as (outer, inner), where (old size, new size) of the outer one are given.

    Args:
        like: how the outer one has to be laid out.
    """
    inner = axis.old_size // outer[0], axis.new_size // outer[1]
    try:
        return split(axis, outer, inner)
    except Scattered as error:
        if like is not None and (like.old_size, like.new_size) == outer:
            pad = Pad(Fill.ZERO, axis.groups)
            step.move(axis, product([like, Axis.grown(*inner, pad)]))
        raise step.inexact(f"its groups mix old and added channels: {error}", axis.groups or None) from None


# ------------------------------------------------------------------------------ attention


@rule("scaled_dot_product_attention")
def _attention(step: Step) -> Sequence[Padded]:
    query, key, value = step.inputs[:3]
    key, value = (_as_queries(step, query, tensor) for tensor in (key, value))
    batch = [f"b{position}" for position in range(len(query.axes) - 2)]
    if len(key.axes) != len(query.axes) or len(value.axes) != len(query.axes):
        raise step.inexact("tensors of different rank")
    scores = contract(step, [(query, [*batch, "l", "e"]), (key, [*batch, "s", "e"])], [*batch, "l", "s"])
    _check_scale(step, query.axes[-1])
    mask = step.optional("attn_mask")
    if mask is not None:
        scores = added(step, scores, mask)
    if scores.axes[-1].is_padded:
        raise step.inexact("softmax over the keys, some of which are added", scores.axes[-1].groups)
    shares = Padded(tuple(axis.filled(Fill.FINITE) for axis in scores.axes), scores.touched)
    result = contract(step, [(shares, [*batch, "l", "s"]), (value, [*batch, "s", "v"])], [*batch, "l", "v"])
    return [result, *(step.result(step.by_size(position)) for position in range(1, len(step.old.outputs)))]


def _as_queries(step: Step, query: Padded, tensor: Padded) -> Padded:
    """Keys or values with as many heads as the queries have, where each serves several."""
    if len(query.axes) != 4 or len(tensor.axes) != 4:
        return tensor
    wanted, heads = query.axes[1], tensor.axes[1]
    if heads.old_size in (1, wanted.old_size) and heads.new_size in (1, wanted.new_size):
        return tensor
    served = wanted.old_size // heads.old_size
    if wanted.new_size != served * heads.new_size:
        raise step.inexact("heads of keys and queries grow apart")
    spread = product((heads, Axis.kept(served)))
    return Padded((tensor.axes[0], spread, *tensor.axes[2:]), tensor.touched, tensor.is_infinite)


def _check_scale(step: Step, features: Axis) -> None:
    """The default scale, and one that follows from the head's size, change with it."""
    scale = step.old.attributes.get("scale")
    if scale is None:
        if features.is_padded:
            value = 1 / features.old_size**0.5
            formula = f"1/sqrt({features.old_size})"
            step.needs("attention_scale", features.groups, value=value, formula=formula)
        return
    for formula, groups in step.around.formulas(float(scale), step.touched | features.groups):
        step.needs("attention_scale", groups, value=float(scale), formula=formula)


# ------------------------------------------------------------------------------ recurrent layers

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(step: Step) -> Sequence[Padded]:
    """A hidden unit whose weights and biases are zero, and that starts at zero, stays at zero.

    Its gates are sigmoid(0) or tanh(0), its cell 0.5 * 0 + 0.5 * tanh(0) = 0 (Hochreiter and Schmidhuber,
    Cho et al., as torch.nn.LSTM and GRU write them), and so is its output.
    """
    gates = _GATES[step.name]
    tensor = step.tensor("input", "data")
    params = step.tensors("params")
    layers = int(step.attribute("num_layers", 1))
    directions = 2 if step.attribute("bidirectional", False) else 1
    per_cell = len(params) // (layers * directions)
    biased = bool(step.attribute("has_biases", True))
    if any(axis.is_padded for axis in tensor.axes[:-1]):
        raise step.inexact("its batch or its sequence grows")
    hidden_axes: list[Axis] = []
    cell_axes: list[Axis] = []
    features = tensor
    for layer in range(layers):
        emitted = []
        for direction in range(directions):
            first = (layer * directions + direction) * per_cell
            cell = params[first : first + per_cell]
            contract(step, [(Padded(features.axes[-1:], frozenset(), features.is_infinite), ["i"]),
                            (cell[0], ["o", "i"])], ["o"])  # fmt: skip
            out = hidden = split_axis(step, cell[0].axes[0], (gates, gates))[1]
            for weight in cell[1 : 4 if biased else 2]:
                rows = split_axis(step, weight.axes[0], (gates, gates))[1]
                hidden = out = step.meet(hidden, rows)
            if per_cell == (5 if biased else 3):
                step.meet(cell[-1].axes[1], hidden)
                out = cell[-1].axes[0]
            step.meet(cell[1].axes[1], out)
            for axis in (hidden, out):
                if not is_zero(axis.values):
                    raise step.inexact("added hidden units do not start at zero", axis.groups)
            emitted.append(out)
            hidden_axes.append(out)
            cell_axes.append(hidden)
        joint = Axis.of(run for axis in emitted for run in axis.runs)
        features = Padded((*tensor.axes[:-1], joint), tensor.touched)
    states = step.tensors("hx") or [state for state in (step.optional("hx"),) if state is not None]
    for state, axes in zip(states, (hidden_axes, cell_axes), strict=False):
        for axis in axes:
            if not is_zero(step.meet(state.axes[-1], axis).values):
                raise step.inexact("added hidden units do not start at zero", axis.groups)
    batch = step.old.outputs[1].shape[1:-1] if len(step.old.outputs) > 1 else ()
    outer = (Axis.kept(layers * directions), *(Axis.kept(size) for size in batch))
    results = [step.result(features.axes)]
    for axes in (hidden_axes, cell_axes)[: len(step.old.outputs) - 1]:
        joint = axes[0]
        for axis in axes[1:]:
            joint = step.meet(joint, axis)
        results.append(step.result((*outer, joint)))
    return results


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(step: Step) -> Sequence[Padded]:
    gates = _GATES[step.name.removesuffix("_cell")]
    tensor, w_ih, w_hh = step.tensor("input"), step.tensor("w_ih"), step.tensor("w_hh")
    contract(step, [(Padded(tensor.axes[-1:]), ["i"]), (w_ih, ["o", "i"])], ["o"])
    hidden = w_hh.axes[1]
    for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
        weight = step.optional(name)
        if weight is not None:
            hidden = step.meet(hidden, split_axis(step, weight.axes[0], (gates, gates))[1])
    for state in step.tensors("hx") or [step.tensor("hx")]:
        hidden = step.meet(hidden, state.axes[-1])
    if not is_zero(hidden.values):
        raise step.inexact("added hidden units do not start at zero", hidden.groups)
    return step.results((*tensor.axes[:-1], hidden))
