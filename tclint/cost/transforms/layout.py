"""What-if memory formats: the strides a graph would have if its images were NHWC, or NCHW.

Model and input are taken to be converted (`model.to(memory_format=...)`, likewise the batch), and the
format then travels as torch's kernels propagate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tclint.cost.scenario import Layout
from tclint.graph.ops import Graph, Op, TensorSpec, channels_last_strides, contiguous_strides, numel
from tclint.graph.ops.axis_order import PERMUTES, axis_order
from tclint.graph.ops.op_tables import operators

IMAGE_RANKS = (4, 5)

_CONTIGUOUS_RESULT = operators("layout", "contiguous_result")
_SLICES = operators("layout", "slices")


def apply_layout(graph: Graph, layout: Layout, keeping: frozenset[int] = frozenset()) -> Graph:
    """The graph with the strides it would have if model and inputs were in that memory format.

    'as_traced', and graphs without 2-D or 3-D convolutions, come back unchanged. Views that torch cannot
    make without a copy become copies: that is what a format costs where it breaks. The ops of `keeping`, by
    index, are taken to write what they read in the format in which they read it.
    """
    if layout == "as_traced" or not any(
        op.kind == "conv" and len(op.inputs[0].shape) in IMAGE_RANKS for op in graph.ops if op.inputs
    ):
        return graph
    return _Layout(graph, channels_last=layout == "channels_last", keeping=keeping).run()


class _Layout:
    """One pass over the ops in order, with the strides of every tensor made so far."""

    def __init__(self, graph: Graph, *, channels_last: bool, keeping: frozenset[int]) -> None:
        self.graph = graph
        self.keeping = keeping
        self.channels_last = channels_last
        self.made: dict[tuple[int, int], tuple[int, ...]] = {}

    def run(self) -> Graph:
        inputs = tuple(self._converted(spec) for spec in self.graph.inputs)
        ops = tuple(self._op(op) for op in self.graph.ops)
        outputs = tuple(self._as_made(spec) for spec in self.graph.outputs)
        return replace(self.graph, inputs=inputs, ops=ops, outputs=outputs)

    def _converted(self, spec: TensorSpec) -> TensorSpec:
        """An input or parameter in the wanted format; expanded and sparse tensors stay."""
        if len(spec.shape) not in IMAGE_RANKS or spec.memory_format == "strided":
            return spec
        return _with_strides(spec, self._wanted(spec.shape))

    def _wanted(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return channels_last_strides(shape) if self.channels_last else contiguous_strides(shape)

    def _as_made(self, spec: TensorSpec) -> TensorSpec:
        if spec.producer is None:
            return self._converted(spec)
        strides = self.made.get((spec.producer, spec.output_index))
        return spec if strides is None else _with_strides(spec, strides)

    def _op(self, op: Op) -> Op:
        inputs = tuple(self._as_made(spec) for spec in op.inputs)
        kind, outputs = op.kind, []
        for position, spec in enumerate(op.outputs):
            strides, copied = self._result(op, inputs, position)
            if copied:
                kind = "copy"
            made = spec if strides is None else _with_strides(spec, strides)
            if made.strides is not None:
                self.made[op.index, position] = made.strides
            outputs.append(made)
        if inputs == op.inputs and tuple(outputs) == op.outputs and kind == op.kind:
            return op
        return replace(op, kind=kind, inputs=inputs, outputs=tuple(outputs))

    def _result(
        self, op: Op, inputs: Sequence[TensorSpec], position: int
    ) -> tuple[tuple[int, ...] | None, bool]:
        """Strides of an output (None: as traced), and whether a view became a copy."""
        spec = op.outputs[position]
        unchanged = all(new == old for new, old in zip(inputs, op.inputs, strict=True))
        if not inputs or (unchanged and op.index not in self.keeping):
            # Nothing it reads has changed; what it makes keeps its format, if that is an image's.
            return None, False
        if op.index in self.keeping:
            return self._kept(inputs[0], spec), False
        if op.kind == "view":
            return self._view(op, inputs[0], spec)
        # CUDA's kernels for reflected and replicated borders know row-major tensors only.
        copied_border = op.name == "pad" and op.attributes.get("mode", "constant") in ("reflect", "replicate")
        if op.name in _CONTIGUOUS_RESULT or copied_border:
            return contiguous_strides(spec.shape), False
        rank = len(spec.shape)
        if op.kind == "conv" and rank in IMAGE_RANKS:
            images = [s for s in inputs if len(s.shape) == rank]
            last = any(_is_channels_last(s) for s in images)
            return (channels_last_strides if last else contiguous_strides)(spec.shape), False
        leader = next((s for s in inputs if len(s.shape) == rank and s.numel > 1), None)
        if leader is None or leader.strides is None:
            return None, False
        return _strides_in_order(spec.shape, leader), False

    def _kept(self, source: TensorSpec, spec: TensorSpec) -> tuple[int, ...] | None:
        if len(spec.shape) == len(source.shape):
            return _strides_in_order(spec.shape, source)
        return channels_last_strides(spec.shape) if len(spec.shape) in IMAGE_RANKS else None

    def _view(self, op: Op, source: TensorSpec, spec: TensorSpec) -> tuple[tuple[int, ...] | None, bool]:
        before = op.inputs[0]
        if source.strides is None or before.strides is None or spec.strides is None:
            return None, False
        if op.name in PERMUTES and sorted(source.shape) == sorted(spec.shape):
            order = axis_order(op)
            if order is not None:
                return tuple(source.strides[axis] for axis in order), False
        if op.name in _SLICES and len(source.shape) == len(spec.shape):
            return source.strides, False
        if op.name in ("expand", "broadcast_to", "expand_as"):
            padded = (0,) * (len(spec.shape) - len(source.shape)) + source.strides
            sizes = (1,) * (len(spec.shape) - len(source.shape)) + source.shape
            return tuple(
                0 if have == 1 and want != 1 else stride
                for stride, have, want in zip(padded, sizes, spec.shape, strict=True)
            ), False
        if op.name in ("select", "unbind"):
            axis = int(op.attributes.get("dim", 0)) % len(source.shape)
            return source.strides[:axis] + source.strides[axis + 1 :], False
        if numel(source.shape) == numel(spec.shape):
            strides = view_strides(source.shape, source.strides, spec.shape)
            return (contiguous_strides(spec.shape), True) if strides is None else (strides, False)
        return None, False


def _with_strides(spec: TensorSpec, strides: tuple[int, ...]) -> TensorSpec:
    return spec if spec.strides == strides else replace(spec, strides=strides)


def _is_channels_last(spec: TensorSpec) -> bool:
    return spec.memory_format in ("channels_last", "channels_last_3d")


def _strides_in_order(shape: tuple[int, ...], leader: TensorSpec) -> tuple[int, ...]:
    """Dense strides of `shape` with its dims nested as the leader's are."""
    strides = leader.strides or contiguous_strides(leader.shape)
    if _is_channels_last(leader):
        return channels_last_strides(shape)
    # Outermost first; sizes of 1 and equal strides keep their order.
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    result, step = [0] * len(shape), 1
    for axis in reversed(order):
        result[axis] = step
        step *= max(shape[axis], 1)
    return tuple(result)


def view_strides(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of a tensor viewed in a new shape; None where that needs a copy (torch's view rule).

    Groups of old dims that lie one after the other in memory are split into new dims from the inside.
    """
    if 0 in shape:
        return contiguous_strides(tuple(new_shape))
    result = [1] * len(new_shape)
    position = len(new_shape) - 1
    chunk_stride, chunk_size, taken = (strides[-1] if strides else 1), 1, 1
    for axis in range(len(shape) - 1, -1, -1):
        chunk_size *= shape[axis]
        ends = axis == 0 or (shape[axis - 1] != 1 and strides[axis - 1] != chunk_size * chunk_stride)
        if not ends:
            continue
        while position >= 0 and (taken < chunk_size or new_shape[position] == 1):
            result[position] = taken * chunk_stride
            taken *= new_shape[position]
            position -= 1
        if taken != chunk_size:
            return None
        if axis > 0:
            chunk_stride, chunk_size, taken = strides[axis - 1], 1, 1
    return tuple(result) if position < 0 else None
