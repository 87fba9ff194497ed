"""Propagation rules of ops that rearrange, cut, repeat and join tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.graph.dims.call import Axes, OpCall, Piece, Unmodelled, rule
from tclint.graph.dims.reshape import reshape
from tclint.graph.dims.size import ONE, Size, concatenation, product
from tclint.graph.ops.axis_order import PERMUTES, axis_order

_OPEN_END = 1 << 60
"""torch writes the end of an open slice as the largest int64."""


@rule("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "ravel")
def _view(call: OpCall) -> Sequence[Axes]:
    return (reshape(call, call.first(), call.output_shape),)


@rule("view_as", "reshape_as")
def _view_as(call: OpCall) -> Sequence[Axes]:
    result = reshape(call, call.tensor("self"), call.output_shape)
    call.unify_axes(result, call.tensor("other"))
    return (result,)


@rule(*PERMUTES)
def _permute(call: OpCall) -> Sequence[Axes]:
    axes, order = call.first(), axis_order(call.op)
    if order is None:
        raise Unmodelled("an order of axes that it does not say")
    return (tuple(axes[axis] for axis in order),)


@rule("unsqueeze")
def _unsqueeze(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    axes.insert(call.axis(call.integer("dim"), len(axes) + 1), ONE)
    return (tuple(axes),)


@rule("squeeze")
def _squeeze(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    if call.op.attributes.get("dim") is None:
        dims = set(range(len(axes)))
    else:
        dims = {call.axis(dim, len(axes)) for dim in call.integers("dim")}
    kept = []
    for position, axis in enumerate(axes):
        if position in dims and call.value(axis) == 1:
            call.unify(axis, ONE)
        else:
            kept.append(axis)
    return (tuple(kept),)


@rule("expand", "broadcast_to")
def _expand(call: OpCall) -> Sequence[Axes]:
    axes, shape = call.first(), call.output_shape
    added = len(shape) - len(axes)
    result = list(call.free_shape(shape[:added], "expansion"))
    for axis, size in zip(axes, shape[added:], strict=True):
        if call.value(axis) == size:
            result.append(axis)
        else:
            call.unify(axis, ONE)
            result.append(call.free(size, "expansion"))
    return (tuple(result),)


@rule("expand_as", "broadcast_tensors")
def _expand_as(call: OpCall) -> Sequence[Axes]:
    joint = call.broadcast(call.inputs)
    return (joint,) * len(call.op.outputs)


@rule("select")
def _select(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    dim = call.axis(call.integer("dim"), len(axes))
    return (axes[:dim] + axes[dim + 1 :],)


@rule("slice")
def _slice(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    dim = call.axis(call.integer("dim", 0), len(axes))
    bounds = slice_bounds(call.op.attributes, call.value(axes[dim]))
    start, step = bounds[0], call.integer("step", 1)
    if step == 1:
        axes[dim] = _piece(call, 0, dim, bounds)
        return (tuple(axes),)
    size = call.value(axes[dim])
    if bounds[1] != size:
        raise Unmodelled("a slice with a step and an end")
    resolved = call.resolve(axes[dim])
    number = resolved.only_atom
    of_constants = number is not None and call.solver.atoms[number].origin == "constant"
    multiple = resolved.divided_by(Size.constant(step)) is not None
    # The even and the odd frequencies of a table of sines and cosines are halves of it.
    if start < step and (multiple or (of_constants and size % step == 0)):
        axes[dim] = call.divided(axes[dim], step)
        return (tuple(axes),)
    left = axes[dim] if start == 0 else axes[dim] - Size.constant(start)
    axes[dim] = call.solver.derived("ceil_div", left, (step,), call.op.index)
    return (tuple(axes),)


@rule("narrow")
def _narrow(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    dim = call.axis(call.integer("dim"), len(axes))
    start = call.integer("start")
    start = start + call.value(axes[dim]) if start < 0 else start
    axes[dim] = _piece(call, 0, dim, (start, start + call.integer("length")))
    return (tuple(axes),)


def slice_bounds(attributes: object, size: int) -> Piece:
    """(start, end) of a slice op of an axis of that size, both within it."""
    if not hasattr(attributes, "get"):
        raise Unmodelled("a slice without bounds")
    start, end = attributes.get("start"), attributes.get("end")
    start = 0 if start is None else int(start)
    end = _OPEN_END if end is None else int(end)
    start = max(0, start + size if start < 0 else min(start, size))
    end = max(start, end + size if end < 0 else min(end, size))
    return start, end


def _piece(call: OpCall, position: int, dim: int, bounds: Piece) -> Size:
    """The size of a slice.

    Slices that together tile an axis are its parts (x[:, :n], x[:, n:]), as a split's are. Else the bounds
    are numbers, those written from the end excepted.
    """
    whole = call.inputs[position][dim]
    size = call.value(whole)
    start, end = bounds
    if (start, end) == (0, size):
        return whole
    if start == end:
        return Size.constant(0)
    tiles = call.pieces(position, dim)
    if tiles is not None and bounds in tiles:
        return parts_of(call, whole, [stop - first for first, stop in tiles])[tiles.index(bounds)]
    written_end = call.op.attributes.get("end")
    if isinstance(written_end, int) and written_end < 0:
        return whole - Size.constant(start - written_end)
    if end == size:
        return whole - Size.constant(start)
    return Size.constant(end - start)


def parts_of(call: OpCall, whole: Size, sizes: Sequence[int]) -> list[Size]:
    """The parts of an axis that is cut into pieces of these sizes, in order."""
    if len(sizes) == 1:
        return [whole]
    resolved = call.resolve(whole)
    structure = resolved.structure or whole.structure
    if structure is not None and structure[0] == "+":
        parts = [call.resolve(part) for part in structure[1]]
        if [call.value(part) for part in parts] == list(sizes):
            return parts
    if len(set(sizes)) == 1:
        return [call.divided(whole, len(sizes))] * len(sizes)
    number = resolved.only_atom
    if number is not None and call.solver.atoms[number].kind == "free":
        parts = [call.free(size, "factor") for size in sizes]
        call.unify(resolved, concatenation(parts))
        return parts
    # Nothing tells which part follows the whole: all but the largest stay.
    constants = [Size.constant(size) for size in sizes]
    largest = max(range(len(sizes)), key=lambda position: sizes[position])
    rest = whole
    for position, constant in enumerate(constants):
        if position != largest:
            rest = rest - constant
    return [rest if position == largest else constant for position, constant in enumerate(constants)]


@rule(
    "split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk",
    "unsafe_split_with_sizes", "hsplit", "vsplit", "dsplit",
)  # fmt: skip
def _split(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    default = {"hsplit": 0 if len(axes) == 1 else 1, "vsplit": 0, "dsplit": 2}.get(call.op.name, 0)
    dim = call.axis(call.integer("dim", default), len(axes))
    parts = parts_of(call, axes[dim], [output.shape[dim] for output in call.op.outputs])
    return tuple((*axes[:dim], part, *axes[dim + 1 :]) for part in parts)


@rule("unbind")
def _unbind(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    dim = call.axis(call.integer("dim", 0), len(axes))
    call.unify(axes[dim], Size.constant(len(call.op.outputs)))
    return (axes[:dim] + axes[dim + 1 :],) * len(call.op.outputs)


@rule("cat", "concat", "concatenate")
def _cat(call: OpCall) -> Sequence[Axes]:
    # torch ignores empty one-dimensional tensors, whatever the rank of the others.
    shapes = [axes for axes in call.tensors("tensors") if not (len(axes) == 1 and call.value(axes[0]) == 0)]
    if not shapes:
        raise Unmodelled("nothing to concatenate")
    dim = call.axis(call.integer("dim", 0), len(shapes[0]))
    return (_joined(call, shapes, dim),)


def _joined(call: OpCall, shapes: Sequence[Axes], dim: int) -> Axes:
    result = list(shapes[0])
    for shape in shapes[1:]:
        for position, (axis, other) in enumerate(zip(result, shape, strict=True)):
            if position != dim:
                call.unify(axis, other)
    result[dim] = concatenation(shape[dim] for shape in shapes)
    return tuple(result)


@rule("hstack", "vstack", "dstack", "row_stack", "column_stack")
def _stack_along(call: OpCall) -> Sequence[Axes]:
    shapes = call.tensors("tensors")
    rank = max((len(shape) for shape in shapes), default=0)
    dim = {"vstack": 0, "row_stack": 0, "dstack": 2}.get(call.op.name, 0 if rank == 1 else 1)
    if rank <= dim or any(len(shape) != rank for shape in shapes) or rank == 1:
        raise Unmodelled("tensors of too few dims")
    return (_joined(call, shapes, dim),)


@rule("stack")
def _stack(call: OpCall) -> Sequence[Axes]:
    shapes = call.tensors("tensors")
    if not shapes:
        raise Unmodelled("nothing to stack")
    result = list(shapes[0])
    for shape in shapes[1:]:
        call.unify_axes(result, shape)
    result.insert(call.axis(call.integer("dim", 0), len(result) + 1), Size.constant(len(shapes)))
    return (tuple(result),)


@rule("repeat", "tile")
def _repeat(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    name = "repeats" if "repeats" in call.op.attributes else "dims"
    counts = call.integers(name)
    rank = max(len(axes), len(counts))
    padded = (ONE,) * (rank - len(axes)) + axes
    counts = (1,) * (rank - len(counts)) + counts
    result = []
    for axis, count in zip(padded, counts, strict=True):
        if count == 1:
            result.append(axis)
        elif call.value(axis) == 1:
            call.unify(axis, ONE)
            result.append(call.free(count, "expansion"))
        else:
            result.append(product((Size.constant(count), axis)))
    return (tuple(result),)


@rule("repeat_interleave")
def _repeat_interleave(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    count = call.attribute("repeats")
    if not isinstance(count, int) or call.op.attributes.get("dim") is None:
        raise Unmodelled("repeats that vary along the axis")
    dim = call.axis(call.integer("dim"), len(axes))
    axes[dim] = product((axes[dim], Size.constant(count)))
    return (tuple(axes),)


@rule("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
      "replication_pad1d", "replication_pad2d", "replication_pad3d")  # fmt: skip
def _pad(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    amounts = call.integers("pad" if "pad" in call.op.attributes else "padding")
    for position in range(len(amounts) // 2):
        before, after = amounts[2 * position : 2 * position + 2]
        if before or after:
            axes[-1 - position] = axes[-1 - position] + Size.constant(before + after)
    return (tuple(axes),)


@rule("pixel_shuffle")
def _pixel_shuffle(call: OpCall) -> Sequence[Axes]:
    *batch, channels, height, width = call.first()
    factor = call.integer("upscale_factor")
    outer = call.divided(channels, factor * factor, as_inner=True)
    return ((*batch, outer, height.scaled(factor), width.scaled(factor)),)


@rule("pixel_unshuffle")
def _pixel_unshuffle(call: OpCall) -> Sequence[Axes]:
    *batch, channels, height, width = call.first()
    factor = call.integer("downscale_factor")
    parts = (call.divided(size, factor) for size in (height, width))
    return ((*batch, product((channels, Size.constant(factor * factor))), *parts),)


@rule("unfold")
def _unfold(call: OpCall) -> Sequence[Axes]:
    axes = list(call.first())
    dim = call.axis(call.integer("dimension"), len(axes))
    size, step = call.integer("size"), call.integer("step")
    windows = call.solver.derived("floor_div", axes[dim] - Size.constant(size), (step,), call.op.index)
    axes[dim] = windows + ONE
    return ((*axes, Size.constant(size)),)


@rule("meshgrid")
def _meshgrid(call: OpCall) -> Sequence[Axes]:
    axes = [shape[0] if shape else ONE for shape in call.tensors("tensors")]
    if call.attribute("indexing", "ij") == "xy" and len(axes) > 1:
        axes[0], axes[1] = axes[1], axes[0]
    return (tuple(axes),) * len(call.op.outputs)


@rule("view_as_real")
def _view_as_real(call: OpCall) -> Sequence[Axes]:
    return ((*call.first(), Size.constant(2)),)


@rule("view_as_complex")
def _view_as_complex(call: OpCall) -> Sequence[Axes]:
    *axes, pair = call.first()
    call.unify(pair, Size.constant(2))
    return (tuple(axes),)


@rule("diagonal", "linalg_diagonal")
def _diagonal(call: OpCall) -> Sequence[Axes]:
    axes = call.first()
    rank = len(axes)
    first = call.axis(call.integer("dim1", 0), rank)
    second = call.axis(call.integer("dim2", 1), rank)
    if call.integer("offset", 0):
        raise Unmodelled("a diagonal off the main one")
    call.unify(axes[first], axes[second])
    kept = tuple(axis for position, axis in enumerate(axes) if position not in (first, second))
    return ((*kept, axes[first]),)
