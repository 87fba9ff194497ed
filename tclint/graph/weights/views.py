"""Transfer rules of ops that rearrange, cut, repeat and join tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.dims.views import slice_bounds
from tclint.graph.ops.axis_order import PERMUTES, axis_order
from tclint.graph.weights.axis import Axis, Fill, Scattered, concatenated, product, split
from tclint.graph.weights.step import Padded, Step, rule, values_of
from tclint.graph.weights.values import is_zero


def _viewed(step: Step, axes: Sequence[Axis]) -> Padded:
    tensor = step.inputs[0]
    return step.result(axes, is_infinite=tensor.is_infinite, kept=tensor.kept)


# ------------------------------------------------------------------------------ reshape


@rule("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "ravel", "view_as",
      "reshape_as")  # fmt: skip
def _view(step: Step) -> Sequence[Padded]:
    try:
        return [_viewed(step, reshaped(list(step.inputs[0].axes), list(step.shape())))]
    except Scattered as error:
        raise step.inexact(f"the view takes other entries together: {error}") from None


def reshaped(axes: list[Axis], shape: list[tuple[int, int]]) -> list[Axis]:
    """Axes read in row-major order as axes of these (old, new) sizes.

    Raises:
        Scattered: old and added entries do not part so.
    """
    result: list[Axis] = []
    pending = [axis for axis in axes if (axis.old_size, axis.new_size) != (1, 1) or axis.is_padded]
    wanted = [size for size in shape if size != (1, 1)]
    pending.reverse()
    for position, (old, new) in enumerate(wanted):
        taken: list[Axis] = []
        have_old = have_new = 1
        while (have_old, have_new) != (old, new):
            if not pending:
                raise Scattered("it has too few elements")
            axis = pending.pop()
            if old % (have_old * axis.old_size) == 0 and new % (have_new * axis.new_size) == 0:
                have_old *= axis.old_size
                have_new *= axis.new_size
                taken.append(axis)
                continue
            outer = old // have_old, new // have_new
            if axis.old_size % outer[0] or axis.new_size % outer[1]:
                if not pending:
                    raise Scattered(f"{axis.old_size} entries are no rows of {old}")
                pending.append(product([axis, pending.pop()]))
                continue
            inner = axis.old_size // outer[0], axis.new_size // outer[1]
            first, second = split(axis, outer, inner)
            taken.append(first)
            pending.append(second)
            have_old, have_new = old, new
        result.append(product(taken))
        del position
    if any((axis.old_size, axis.new_size) != (1, 1) for axis in pending):
        raise Scattered("it has too many elements")
    parts = iter(result)
    return [Axis.kept(1) if size == (1, 1) else next(parts) for size in shape]


@rule(*PERMUTES)
def _permute(step: Step) -> Sequence[Padded]:
    axes, order = step.inputs[0].axes, axis_order(step.old)
    if order is None:
        raise step.inexact("it does not say the order of its axes")
    return [_viewed(step, [axes[axis] for axis in order])]


@rule("unsqueeze")
def _unsqueeze(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    axes.insert(step.dims("dim", len(axes) + 1)[0], Axis.kept(1))
    return [_viewed(step, axes)]


@rule("squeeze")
def _squeeze(step: Step) -> Sequence[Padded]:
    axes = step.inputs[0].axes
    dims = step.dims("dim", len(axes), range(len(axes)))
    gone = [dim for dim in dims if axes[dim].old_size == 1]
    for dim in gone:
        if axes[dim].is_padded:
            raise step.inexact("a dim of size 1 that it takes away grows", axes[dim].groups)
    return [_viewed(step, [axis for dim, axis in enumerate(axes) if dim not in gone])]


@rule("expand", "broadcast_to", "expand_as")
def _expand(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    shape, by_size = step.shape(), step.by_size()
    ones = (Axis.kept(1),) * (len(shape) - len(tensor.axes))
    axes = []
    for axis, sizes, grown in zip((*ones, *tensor.axes), shape, by_size, strict=True):
        if (axis.old_size, axis.new_size) == sizes:
            axes.append(axis)
        elif axis.is_padded or axis.old_size != 1:
            raise step.inexact("it repeats a dim that grows", axis.groups)
        else:
            axes.append(grown.filled(tensor.kept))
    return [_viewed(step, axes)]


# ------------------------------------------------------------------------------ parts


def _part(step: Step, axis: Axis, old: tuple[int, int], new: tuple[int, int]) -> Axis:
    """The entries of an axis from one place to another, which must be those that the original takes."""
    part = axis.cut(*new)
    if axis.old_before(new[0]) != old[0] or part.old_size != old[1] - old[0]:
        raise step.inexact(
            f"of {axis.old_size} entries that grow to {axis.new_size} it takes others than before",
            axis.groups,
        )
    return part


@rule("slice", "narrow")
def _slice(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    dim = step.dims("dim", len(axes), [0])[0]
    axis = axes[dim]
    bounds = []
    for op, size in ((step.old, axis.old_size), (step.new, axis.new_size)):
        if step.name == "narrow":
            start = int(op.attributes["start"])
            start += size if start < 0 else 0
            bounds.append((start, start + int(op.attributes["length"])))
        else:
            bounds.append(slice_bounds(op.attributes, size))
    stride = int(step.attribute("step", 1))
    if stride == 1:
        axes[dim] = _part(step, axis, *bounds)
    elif axis.is_padded:
        axes[dim] = _strided(step, axis, bounds, stride)
    else:
        axes[dim] = Axis.kept(step.shape()[dim][0])
    return [_viewed(step, axes)]


def _strided(step: Step, axis: Axis, bounds: list[tuple[int, int]], stride: int) -> Axis:
    """Every n-th entry of an axis of whole pairs, triples ..."""
    (old_start, _), (new_start, new_end) = bounds
    if old_start != new_start or old_start >= stride or new_end != axis.new_size:
        raise step.inexact("a slice with a step of a dim that grows", axis.groups)
    try:
        sizes = (axis.old_size // stride, axis.new_size // stride)
        outer, inner = split(axis, sizes, (stride, stride))
    except Scattered:
        raise step.inexact("a slice with a step of a dim that grows", axis.groups) from None
    del inner
    return outer


@rule("select")
def _select(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    dim = step.dims("dim", len(axes))[0]
    old, new = int(step.old.attributes["index"]), int(step.new.attributes["index"])
    axis = axes.pop(dim)
    old += axis.old_size if old < 0 else 0
    new += axis.new_size if new < 0 else 0
    _part(step, axis, (old, old + 1), (new, new + 1))
    return [_viewed(step, axes)]


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk",
      "unsafe_split_with_sizes", "hsplit", "vsplit", "dsplit")  # fmt: skip
def _split(step: Step) -> Sequence[Padded]:
    axes = step.inputs[0].axes
    default = {"hsplit": 0 if len(axes) == 1 else 1, "vsplit": 0, "dsplit": 2}.get(step.name, 0)
    dim = step.dims("dim", len(axes), [default])[0]
    results = []
    old_start = new_start = 0
    for old, new in zip(step.old.outputs, step.new.outputs, strict=True):
        old_end, new_end = old_start + old.shape[dim], new_start + new.shape[dim]
        part = _part(step, axes[dim], (old_start, old_end), (new_start, new_end))
        results.append(_viewed(step, [*axes[:dim], part, *axes[dim + 1 :]]))
        old_start, new_start = old_end, new_end
    return results


@rule("unbind")
def _unbind(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    axis = axes.pop(step.dims("dim", len(axes), [0])[0])
    if axis.is_padded:
        raise step.inexact("it takes apart a dim that grows", axis.groups)
    return [_viewed(step, axes)] * len(step.old.outputs)


@rule("glu")
def _glu(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    dim = step.dims("dim", len(axes), [len(axes) - 1])[0]
    old, new = axes[dim].old_size // 2, axes[dim].new_size // 2
    value = _part(step, axes[dim], (0, old), (0, new))
    gate = _part(step, axes[dim], (old, 2 * old), (new, 2 * new))
    axis = step.meet(value, gate)
    axes[dim] = value if axis.is_padded and is_zero(value.values) else axis.filled(Fill.FINITE)
    others = [
        axis if position == dim or is_zero(axis.values) else axis.filled(Fill.FINITE)
        for position, axis in enumerate(axes)
    ]
    return [step.result(others)]


@rule("pixel_shuffle")
def _pixel_shuffle(step: Step) -> Sequence[Padded]:
    *batch, channels, height, width = step.inputs[0].axes
    factor = int(step.attribute("upscale_factor"))
    if height.is_padded or width.is_padded:
        raise step.inexact("its image grows")
    square = factor * factor
    sizes = channels.old_size // square, channels.new_size // square
    try:
        outer, _ = split(channels, sizes, (square, square))
    except Scattered as error:
        pad = next(run.pad for run in channels.runs if run.pad is not None)
        step.move(channels, product([Axis.grown(*sizes, pad), Axis.kept(square)]))
        raise step.inexact(f"the pixels of a channel part: {error}", channels.groups) from None
    spatial = (Axis.kept(height.old_size * factor), Axis.kept(width.old_size * factor))
    return [_viewed(step, [*batch, outer, *spatial])]


@rule("pixel_unshuffle")
def _pixel_unshuffle(step: Step) -> Sequence[Padded]:
    *batch, channels, height, width = step.inputs[0].axes
    factor = int(step.attribute("downscale_factor"))
    if height.is_padded or width.is_padded:
        raise step.inexact("its image grows")
    joint = product([channels, Axis.kept(factor * factor)])
    return [
        _viewed(
            step, [*batch, joint, Axis.kept(height.old_size // factor), Axis.kept(width.old_size // factor)]
        )
    ]


# ------------------------------------------------------------------------------ joining and repeating


@rule("cat", "concat", "concatenate")
def _cat(step: Step) -> Sequence[Padded]:
    tensors = [t for t in step.tensors("tensors") if [axis.old_size for axis in t.axes] != [0]]
    if not tensors:
        raise step.inexact("nothing to concatenate")
    dim = step.dims("dim", len(tensors[0].axes), [0])[0]
    axes = list(tensors[0].axes)
    for tensor in tensors[1:]:
        axes = [
            axis if position == dim else step.meet(axis, tensor.axes[position])
            for position, axis in enumerate(axes)
        ]
    axes[dim] = concatenated(tensor.axes[dim] for tensor in tensors)
    return [step.result(axes, is_infinite=any(tensor.is_infinite for tensor in tensors))]


@rule("stack")
def _stack(step: Step) -> Sequence[Padded]:
    tensors = step.tensors("tensors")
    axes = list(tensors[0].axes)
    for tensor in tensors[1:]:
        axes = [step.meet(axis, other) for axis, other in zip(axes, tensor.axes, strict=True)]
    axes.insert(step.dims("dim", len(axes) + 1, [0])[0], Axis.kept(len(tensors)))
    return [step.result(axes, is_infinite=any(tensor.is_infinite for tensor in tensors))]


@rule("repeat", "tile")
def _repeat(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    shape, by_size = step.shape(), step.by_size()
    ones = (Axis.kept(1),) * (len(shape) - len(tensor.axes))
    axes = []
    for axis, (old, new), grown in zip((*ones, *tensor.axes), shape, by_size, strict=True):
        if not axis.is_padded and axis.old_size == 1 and old != new:
            axes.append(grown.filled(tensor.kept))
        elif old % max(axis.old_size, 1) or new != old // max(axis.old_size, 1) * axis.new_size:
            raise step.inexact("it repeats a dim in a number that grows", axis.groups or None)
        else:
            axes.append(product([Axis.kept(old // max(axis.old_size, 1)), axis]))
    return [_viewed(step, axes)]


@rule("repeat_interleave")
def _repeat_interleave(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    count = step.attribute("repeats")
    dim = step.dims("dim", len(axes))
    if not isinstance(count, int) or not dim:
        raise step.inexact("repeats that vary along the axis")
    axes[dim[0]] = product([axes[dim[0]], Axis.kept(count)])
    return [_viewed(step, axes)]


@rule("pad", "constant_pad_nd")
def _pad(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    axes = list(tensor.axes)
    amounts = [int(amount) for amount in step.attribute("pad", step.attribute("padding", ()))]
    mode, value = step.attribute("mode", "constant"), float(step.attribute("value", 0))
    padded = set()
    for position in range(len(amounts) // 2):
        before, after = amounts[2 * position : 2 * position + 2]
        place = len(axes) - 1 - position
        if not (before or after):
            continue
        padded.add(place)
        axis = axes[place]
        if axis.is_padded and (mode != "constant" or min(before, after) < 0):
            raise step.inexact("it adds to a dim that grows", axis.groups)
        if min(before, after) < 0:
            axes[place] = Axis.kept(axis.old_size + before + after)
        else:
            axes[place] = concatenated([Axis.kept(before), axis, Axis.kept(after)])
    if value and padded:
        axes = [axis.filled(axis.values | Fill.FINITE) if axis.is_padded else axis for axis in axes]
    infinite = tensor.is_infinite or not abs(value) < float("inf")
    return [step.result(axes, is_infinite=infinite, kept=tensor.kept | values_of(value) & Fill.FINITE)]


@rule("flip", "roll", "tril", "triu", "fliplr", "flipud")
def _in_place_of_order(step: Step) -> Sequence[Padded]:
    """Ops for which the places of entries matter: only along dims that do not grow."""
    tensor = step.inputs[0]
    rank = len(tensor.axes)
    dims = [rank - 2, rank - 1] if step.name in ("tril", "triu") else step.dims("dims", rank, range(rank))
    for dim in dims:
        if tensor.axes[dim].is_padded:
            raise step.inexact(f"{step.name} of a dim that grows", tensor.axes[dim].groups)
    return [_viewed(step, tensor.axes)]


@rule("unfold")
def _unfold(step: Step) -> Sequence[Padded]:
    axes = list(step.inputs[0].axes)
    dim = step.dims("dimension", len(axes))[0]
    if axes[dim].is_padded:
        raise step.inexact("windows of a dim that grows", axes[dim].groups)
    old = step.old.outputs[0].shape
    axes[dim] = Axis.kept(old[dim])
    return [_viewed(step, [*axes, Axis.kept(old[-1])])]


@rule("im2col")
def _im2col(step: Step) -> Sequence[Padded]:
    *batch, channels, height, width = step.inputs[0].axes
    if height.is_padded or width.is_padded:
        raise step.inexact("its image grows")
    kernel = step.old.outputs[0].shape[-2] // channels.old_size
    blocks = Axis.kept(step.old.outputs[0].shape[-1])
    return [_viewed(step, [*batch, product([channels, Axis.kept(kernel)]), blocks])]


@rule("meshgrid")
def _meshgrid(step: Step) -> Sequence[Padded]:
    if step.groups:
        raise step.inexact("a grid of a dim that grows")
    return [step.result([Axis.kept(size) for size in out.shape]) for out in step.old.outputs]
