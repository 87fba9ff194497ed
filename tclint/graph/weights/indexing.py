"""Transfer rules of ops that pick entries by index, and of those that make new tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.weights.axis import Axis, Fill, Values
from tclint.graph.weights.step import Padded, Step, rule, values_of

# ------------------------------------------------------------------------------ picking


@rule("embedding")
def _embedding(step: Step) -> Sequence[Padded]:
    """Rows by their numbers, of which the added ones are never asked for."""
    indices, weight = step.tensor("indices"), step.tensor("weight")
    if indices.is_padded:
        raise step.inexact("its indices grow", indices.groups)
    _require_front(step, weight.axes[0])
    return [step.result((*indices.axes, weight.axes[1]))]


def _require_front(step: Step, axis: Axis) -> None:
    """What is asked for by number has to keep its number."""
    if axis.is_front:
        return
    if axis.origin is not None:
        new = axis.new_size - axis.old_size
        pad = next(run.pad for run in axis.runs if run.pad is not None)
        step.move(axis, Axis.grown(axis.old_size, axis.old_size + new, pad))
    raise step.inexact("it asks by number for entries that move", axis.groups)


@rule("index_select")
def _index_select(step: Step) -> Sequence[Padded]:
    tensor, index = step.inputs[0], step.tensor("index")
    axes = list(tensor.axes)
    dim = step.dims("dim", len(axes))[0]
    if index.is_padded:
        raise step.inexact("its indices grow", index.groups)
    _require_front(step, axes[dim])
    axes[dim] = index.axes[0] if index.axes else Axis.kept(1)
    return [step.result(axes, is_infinite=tensor.is_infinite)]


@rule("gather", "take_along_dim")
def _gather(step: Step) -> Sequence[Padded]:
    tensor, index = step.inputs[0], step.tensor("index", "indices")
    dim = step.dims("dim", len(tensor.axes))[0]
    if index.axes[dim].is_padded:
        raise step.inexact("its indices grow", index.groups)
    _require_front(step, tensor.axes[dim])
    axes = [
        own if position == dim or not own.is_padded else step.meet(other, own)
        for position, (own, other) in enumerate(zip(index.axes, tensor.axes, strict=True))
    ]
    for position, axis in enumerate(axes):
        if position != dim and tensor.axes[position].is_padded and not axis.is_padded:
            _require_front(step, tensor.axes[position])
    return [step.result(axes, is_infinite=tensor.is_infinite)]


def _indexed_dims(step: Step) -> tuple[list[int], list[Padded]]:
    """Which dims of the first tensor are indexed, and the index tensors; a mask stands for all its dims."""
    dims: list[int] = []
    indices: list[Padded] = []
    shift = 0
    prefix = "indices["
    for spec, name, index in zip(step.old.inputs, step.old.input_names, step.inputs, strict=False):
        if not name.startswith(prefix):
            continue
        number = int(name[len(prefix) :].rstrip("]")) + shift
        span = len(index.axes) if spec.dtype in ("bool", "uint8") else 1
        dims.extend(range(number, number + span))
        shift += span - 1
        indices.append(index)
    return dims, indices


@rule("index", "_unsafe_index")
def _index(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    dims, indices = _indexed_dims(step)
    if not dims or any(index.is_padded for index in indices):
        raise step.inexact("its indices grow" if dims else "indices that are not tensors")
    for dim in dims:
        _require_front(step, tensor.axes[dim])
    shape = step.old.outputs[0].shape
    kept = [axis for position, axis in enumerate(tensor.axes) if position not in dims]
    joint = len(shape) - len(kept)
    first = min(dims) if max(dims) - min(dims) + 1 == len(dims) else 0
    middle = [Axis.kept(size) for size in shape[first : first + joint]]
    axes = [*kept[:first], *middle, *kept[first:]]
    if tuple(axis.old_size for axis in axes) != shape:
        raise step.inexact("indices of an unexpected shape")
    return [step.result(axes, is_infinite=tensor.is_infinite)]


@rule("index_put", "_unsafe_index_put")
def _index_put(step: Step) -> Sequence[Padded]:
    tensor, values = step.inputs[0], step.tensor("values")
    dims, indices = _indexed_dims(step)
    if any(index.is_padded for index in indices) or dims != list(range(len(dims))):
        raise step.inexact("no rule says where its entries go")
    for dim in dims:
        _require_front(step, tensor.axes[dim])
    axes = list(tensor.axes)
    for back in range(1, len(axes) - len(dims) + 1):
        own = values.axes[-back] if back <= len(values.axes) else Axis.kept(1)
        if axes[-back].is_padded and not own.is_padded:
            axes[-back] = axes[-back].filled(axes[-back].values | values.kept)
        else:
            axes[-back] = step.meet(axes[-back], own)
    return [step.result(axes, is_infinite=tensor.is_infinite or values.is_infinite)]


@rule("index_add")
def _index_add(step: Step) -> Sequence[Padded]:
    tensor, source, index = step.inputs[0], step.tensor("source"), step.tensor("index")
    dim = step.dims("dim", len(tensor.axes))[0]
    if index.is_padded:
        raise step.inexact("its indices grow", index.groups)
    _require_front(step, tensor.axes[dim])
    axes = []
    for position, (own, other) in enumerate(zip(tensor.axes, source.axes, strict=True)):
        axis = own if position == dim else step.meet(own, other)
        both = own.values | other.values
        axes.append(axis.filled(both if both <= Fill.ZERO else Fill.FINITE) if axis.is_padded else axis)
    return [step.result(axes)]


# ------------------------------------------------------------------------------ new tensors


def _made(step: Step, values: Values) -> list[Padded]:
    return [
        step.result(step.by_size(position, values), kept=values & Fill.FINITE)
        for position in range(len(step.old.outputs))
    ]


@rule("zeros", "new_zeros", "zeros_like", "zero")
def _zeros(step: Step) -> Sequence[Padded]:
    return _like(step, Fill.ZERO, 0.0)


@rule("ones", "new_ones", "ones_like")
def _ones(step: Step) -> Sequence[Padded]:
    return _like(step, Fill.POSITIVE, 1.0)


@rule("full", "new_full", "full_like", "fill", "scalar_tensor")
def _full(step: Step) -> Sequence[Padded]:
    number = step.old.attributes.get(
        "fill_value", step.old.attributes.get("value", step.old.attributes.get("s"))
    )
    if not isinstance(number, (int, float)):
        return _like(step, Fill.FINITE, None)
    return _like(step, values_of(float(number)), float(number))


def _like(step: Step, values: Values, value: float | None) -> list[Padded]:
    infinite = value is not None and not abs(value) < float("inf")
    if infinite:
        values = Fill.FINITE
    if step.name.endswith("_like") or step.name in ("zero", "fill"):
        axes = step.inputs[0].axes
        filled = [axis.filled(values) if axis.is_padded else axis for axis in axes]
        # What it is made like says nothing of what it holds.
        return [Padded(tuple(axis.without_origin() for axis in filled), frozenset(), infinite, values)]
    made = _made(step, values)
    return [Padded(tensor.axes, frozenset(), infinite, values) for tensor in made]


@rule("arange")
def _arange(step: Step) -> Sequence[Padded]:
    made = _made(step, Fill.FINITE)[0]
    starts = [op.attributes.get("start") for op in (step.old, step.new)]
    if made.is_padded and not (made.axes[0].is_front and starts[0] in (None, 0)):
        raise step.inexact("it counts entries that move", made.groups)
    return [Padded(made.axes)]


@rule("one_hot")
def _one_hot(step: Step) -> Sequence[Padded]:
    index = step.inputs[0]
    *_, classes = step.by_size(0, Fill.ZERO)
    if index.is_padded or not classes.is_front:
        raise step.inexact("its classes move", index.groups | classes.groups)
    return [step.result((*index.axes, classes))]


@rule("empty_like", "new_empty", "empty", "empty_strided", "empty_permuted", "new_empty_strided")
def _empty(step: Step) -> Sequence[Padded]:
    return _made(step, Fill.ANY)
