"""Ops that only move data: concatenation, padding, indexing, layout changes; and the backward of views."""

from __future__ import annotations

from dataclasses import replace

from tclint.graph.lowering.kernels import Lowering, LoweringRule, dense_bytes, distinct_bytes
from tclint.graph.lowering.walks import concatenation, walk
from tclint.graph.lowering.work import Walk
from tclint.graph.ops import contiguous_strides
from tclint.graph.ops.op_tables import operators


def _written(low: Lowering) -> int:
    return sum(dense_bytes(spec) for spec in low.op.outputs)


def copy(low: Lowering) -> None:
    """Read all, write all, element by element to where each belongs; backward moves each gradient the other
    way."""
    walked = Walk(low.output.numel, 2, len(low.output.shape), 0) if low.op.outputs else None
    low.traffic("copy", distinct_bytes(low.op.inputs), _written(low), walked=walked)
    for position, need in enumerate(low.needs):
        if need:
            size = dense_bytes(low.op.inputs[position])
            low.traffic("copy", max(size, dense_bytes(low.output)), size, backward=True)


def pass_through(low: Lowering) -> None:
    """Copies whose gradient is handed on, or sliced, as a view: cat, stack, clone, contiguous."""
    op = low.op
    if op.name in _CONCATENATIONS and op.outputs:
        walked = concatenation(low.output, op.inputs, int(low.attribute("dim", 0)))
    else:
        walked = _reshaped(low) if len(op.inputs) == 1 else None
    low.traffic("copy", distinct_bytes(op.inputs), _written(low), walked=walked)


def _reshaped(low: Lowering) -> Walk | None:
    """The copy of one tensor, perhaps because no view of another shape exists of it."""
    source, result = low.op.inputs[0], low.output
    if source.shape != result.shape:
        result = replace(source, strides=contiguous_strides(source.shape))
    return walk(result, [source])


def convert(low: Lowering) -> None:
    """_to_copy and to: a change of dtype is undone in backward, a change of place or layout is not."""
    x, y = low.op.inputs[0], low.output
    low.traffic("copy", x.bytes, _written(low), walked=low.walk(x))
    if low.any_needed and x.dtype != y.dtype:
        low.traffic("copy", dense_bytes(y), dense_bytes(x), backward=True)


def assign(low: Lowering) -> None:
    """copy_: writes the destination without reading it."""
    source = low.op.inputs[-1]
    low.traffic("copy", source.bytes, _written(low), walked=low.walk(source))
    if low.any_needed and source.dtype != low.output.dtype:
        low.traffic("copy", dense_bytes(low.output), dense_bytes(source), backward=True)


def create(low: Lowering) -> None:
    """Factories and fills: write only."""
    low.traffic("copy", 0, _written(low))


def gather(low: Lowering) -> None:
    """Reads what it picks and the indices; backward adds the picked gradients into zeros."""
    out = _written(low)
    indices = sum(spec.bytes for spec in low.op.inputs[1:] if not spec.is_floating)
    low.traffic("copy", out + indices, out)
    if low.needs and low.needs[0]:
        low.traffic("scatter", out + indices, dense_bytes(low.op.inputs[0]), launches=2, backward=True)


def scatter(low: Lowering) -> None:
    """Copies the destination unless in place, then writes the source at the indices."""
    op = low.op
    base = op.inputs[0]
    indices = sum(spec.bytes for spec in op.inputs[1:] if not spec.is_floating)
    source = sum(spec.bytes for spec in op.inputs[1:] if spec.is_floating)
    if not op.in_place:
        low.traffic("copy", base.bytes, dense_bytes(base), operation="clone")
    low.traffic("scatter", 2 * source + indices, source or dense_bytes(base))
    if low.needs and low.needs[0]:
        low.traffic(
            "scatter", dense_bytes(base) + indices, dense_bytes(base) + source, launches=2, backward=True
        )
    for spec, need in zip(op.inputs[1:], low.needs[1:], strict=True):
        if need:
            low.traffic("copy", dense_bytes(spec) + indices, dense_bytes(spec), backward=True)


def view(low: Lowering) -> None:
    """Free forward. The gradient of a part is written into zeros of the whole's size, that of an expanded
    tensor summed, that of a split put together again (slice_backward, select_backward, sum_to and
    split_backward in torch/csrc/autograd/FunctionsManual.cpp); other views pass the gradient on."""
    if not (low.needs and low.needs[0]) or not low.op.outputs:
        return
    x, name = low.op.inputs[0], low.op.name
    parts, whole = _written(low), dense_bytes(x)
    if len(low.op.outputs) > 1:
        if name in _PARTS:
            low.traffic("copy", parts, whole, operation="cat", backward=True)
    elif low.output.numel > x.numel:
        low.traffic("reduction", parts, whole, operation="sum", backward=True)
    elif low.output.numel < x.numel and name in _PARTS:
        low.traffic("copy", parts, whole + parts, launches=2, backward=True)


_PARTS = operators("memory", "parts")
_CONCATENATIONS = frozenset({"cat", "concat", "concatenate", "stack"})

RULES: dict[str, LoweringRule] = {
    **dict.fromkeys(operators("memory", "pass_through"), pass_through),
    **dict.fromkeys(operators("memory", "converts"), convert),
    **dict.fromkeys(operators("memory", "creators"), create),
    **dict.fromkeys(operators("memory", "gathers"), gather),
    **dict.fromkeys(operators("memory", "scatters"), scatter),
    "copy": assign,
}
BY_KIND: dict[str, LoweringRule] = {"copy": copy, "view": view}
