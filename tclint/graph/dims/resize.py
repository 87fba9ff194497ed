"""Rewriting a graph to new sizes: shapes, strides, attributes that repeat a size, casts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tclint.graph.dims.call import Axes
from tclint.graph.dims.index import AtomIndex, DimsUnresolved
from tclint.graph.dims.solver import Constraint, Evaluator, Inconsistent
from tclint.graph.ops import Cast, Graph, Op, Parameter, TensorSpec


class Rebuild:
    """One resize: new values of atoms, checked against every constraint that they occur in."""

    def __init__(self, index: AtomIndex, changes: Mapping[int, int]) -> None:
        self._index = index
        self._graph = index.graph
        self._shapes = index.shapes
        self._changed = frozenset(changes)
        self._new: Evaluator = index.shapes.solver.evaluator(changes)
        self._outputs: dict[tuple[int, int], TensorSpec] = {}

    def run(self) -> Graph:
        """The new graph; ops that nothing changes are the same objects.

        Raises:
            DimsUnresolved: an op is not modelled, or would not accept the new sizes.
        """
        self._check()
        ops = tuple(self._op(op) for op in self._graph.ops)
        return replace(
            self._graph,
            ops=ops,
            parameters=tuple(self._parameter(parameter) for parameter in self._graph.parameters),
            inputs=tuple(
                resize_spec(spec, self._shape(axes, None))
                for spec, axes in zip(self._graph.inputs, self._shapes.graph_inputs.values(), strict=True)
            ),
            outputs=tuple(
                self._read(spec, axes, None)
                for spec, axes in zip(self._graph.outputs, self._shapes.graph_outputs, strict=True)
            ),
        )

    def _check(self) -> None:
        checked: set[int] = set()
        for number in self._changed:
            if number in self._index.blocked:
                raise self._index.blocked[number]
            for constraint in self._index.constraints.get(number, ()):
                if id(constraint) not in checked:
                    checked.add(id(constraint))
                    self._check_constraint(constraint)

    def _check_constraint(self, constraint: Constraint) -> None:
        op = self._graph.ops[constraint.op_index]
        try:
            left, right = self._new.value(constraint.left), self._new.value(constraint.right)
        except Inconsistent as error:
            raise self._unresolved(error, op) from None
        if left % constraint.divisor:
            raise DimsUnresolved(op, f"size {left} is not a multiple of {constraint.divisor}")
        if left != right:
            raise DimsUnresolved(op, f"sizes {left} and {right} would differ")

    def _unresolved(self, error: Inconsistent, op: Op | None) -> DimsUnresolved:
        return DimsUnresolved(self._graph.ops[error.op_index] if error.op_index >= 0 else op, str(error))

    def _shape(self, axes: Axes, op: Op | None) -> tuple[int, ...]:
        try:
            shape = tuple(self._new.value(axis) for axis in axes)
        except Inconsistent as error:
            raise self._unresolved(error, op) from None
        for axis, size in zip(axes, shape, strict=True):
            if size < 1 <= self._shapes.solver.value(axis):
                raise DimsUnresolved(op, f"an axis would have size {size}")
        return shape

    def _parameter(self, parameter: Parameter) -> Parameter:
        axes = self._shapes.parameters[parameter.name]
        if not any(self._index.base_atoms(axis) & self._changed for axis in axes):
            return parameter
        return replace(parameter, shape=self._shape(axes, None))

    def _op(self, op: Op) -> Op:
        concerned = self._index.of_op[op.index] & self._changed or any(
            (spec.producer, spec.output_index) in self._outputs for spec in op.inputs
        )
        if not concerned:
            return op
        inputs = tuple(
            self._read(spec, axes, op)
            for spec, axes in zip(op.inputs, self._shapes.op_inputs[op.index], strict=True)
        )
        base = stride_changes(op.inputs, inputs) if op.kind == "view" else None
        outputs = tuple(
            resize_spec(spec, self._shape(axes, op), base)
            for spec, axes in zip(op.outputs, self._shapes.op_outputs[op.index], strict=True)
        )
        for position, (old, new) in enumerate(zip(op.outputs, outputs, strict=True)):
            if old is not new:
                self._outputs[op.index, position] = new
        return resize_op(op, inputs, outputs)

    def _read(self, spec: TensorSpec, axes: Axes, op: Op | None) -> TensorSpec:
        """What an op reads: the new output of its producer, else the new shape of what it read."""
        made = None if spec.producer is None else self._outputs.get((spec.producer, spec.output_index))
        if made is not None and len(made.shape) == len(spec.shape):
            return replace(spec, shape=made.shape, strides=made.strides)
        return resize_spec(spec, self._shape(axes, op))


def restride(
    spec: TensorSpec, shape: tuple[int, ...], base: Mapping[int, int] | None = None
) -> tuple[int, ...] | None:
    """Strides for a new shape that keep the order of the dims in memory, in elements.

    Dims of stride 0 (expanded) keep it. A gap between dims, as a slice of a larger tensor has, follows
    `base` (old stride -> new stride of the tensor that it is a view of) or else keeps its ratio.
    """
    if spec.strides is None:
        return None
    if shape == spec.shape and base is None:
        return spec.strides
    inner_first = sorted((stride, -axis) for axis, stride in enumerate(spec.strides) if stride)
    strides = [0] * len(shape)
    old_dense = new_dense = 1
    for old, negative_axis in inner_first:
        axis = -negative_axis
        if spec.shape[axis] == 1:
            # Its stride means nothing, so it says nothing about the dims around it.
            strides[axis] = new_dense if old == old_dense or base is None else base.get(old, new_dense)
            new_dense *= max(shape[axis], 1)
            continue
        if old == old_dense:
            new = new_dense
        elif base is not None and old in base:
            new = base[old]
        elif old % old_dense == 0:
            new = new_dense * (old // old_dense)
        else:
            new = max(new_dense, old + new_dense - old_dense)
        strides[axis] = new
        old_dense = old * max(spec.shape[axis], 1)
        new_dense = new * max(shape[axis], 1)
    return tuple(strides)


def resize_spec(
    spec: TensorSpec, shape: tuple[int, ...], base: Mapping[int, int] | None = None
) -> TensorSpec:
    """The spec with a new shape, itself where nothing changes."""
    strides = restride(spec, shape, base)
    if shape == spec.shape and strides == spec.strides:
        return spec
    return replace(spec, shape=shape, strides=strides)


def stride_changes(old: tuple[TensorSpec, ...], new: tuple[TensorSpec, ...]) -> dict[int, int]:
    """Old stride -> new stride of an op's inputs, dims of size 1 left out: their strides mean nothing."""
    changes: dict[int, int] = {}
    for before, after in zip(old, new, strict=True):
        if before.strides is None or after.strides is None:
            continue
        for size, stride, changed in zip(before.shape, before.strides, after.strides, strict=True):
            if size > 1 and stride:
                changes.setdefault(stride, changed)
    return changes


def resize_op(op: Op, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Op:
    """The op between resized tensors; itself where none of them changed."""
    if _same(inputs, op.inputs) and _same(outputs, op.outputs):
        return op
    return replace(
        op,
        inputs=inputs,
        outputs=outputs,
        attributes=_attributes(op, inputs, outputs),
        casts=tuple(_resize_cast(cast, op, inputs) for cast in op.casts),
    )


def _same(left: tuple[TensorSpec, ...], right: tuple[TensorSpec, ...]) -> bool:
    return all(one is other for one, other in zip(left, right, strict=True))


def _attributes(op: Op, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Mapping[str, Any]:
    """Attributes that only repeat a size of a tensor, brought in line with it."""
    changed: dict[str, Any] = {}
    for name in ("size", "shape"):
        if op.outputs and op.attributes.get(name) == list(op.outputs[0].shape):
            changed[name] = list(outputs[0].shape)
    if "normalized_shape" in op.attributes:
        count = len(op.attributes["normalized_shape"])
        changed["normalized_shape"] = list(inputs[0].shape[-count:])
    if "split_sizes" in op.attributes and op.attributes.get("dim") is not None:
        dim = op.attributes["dim"]
        changed["split_sizes"] = [spec.shape[dim] for spec in outputs]
    if op.name in ("slice", "narrow") and outputs[0].shape != op.outputs[0].shape:
        changed.update(_slice_bounds(op, inputs[0].shape, outputs[0].shape))
    weight = op.input("weight")
    if op.kind == "conv" and weight is not None and op.attributes.get("groups", 1) > 1:
        # A weight has two dims beside the spatial ones, an input its channels just before those.
        channels = -(len(weight.shape) - 1)
        if op.attributes["groups"] == op.inputs[0].shape[channels]:
            changed["groups"] = inputs[0].shape[channels]
    return {**op.attributes, **changed} if changed else op.attributes


def _slice_bounds(op: Op, whole: tuple[int, ...], piece: tuple[int, ...]) -> dict[str, int]:
    """Bounds that cut the new piece out of the new whole: the first, the last or one of equal pieces."""
    dim, start = op.attributes.get("dim") or 0, op.attributes.get("start") or 0
    if start < 0 or op.attributes.get("step", 1) != 1:
        return {}
    old_whole, old_piece = op.inputs[0].shape[dim], op.outputs[0].shape[dim]
    if start + old_piece == old_whole:
        new_start = whole[dim] - piece[dim]
    elif start % max(old_piece, 1) == 0:
        new_start = start // max(old_piece, 1) * piece[dim]
    else:
        return {}
    if op.name == "narrow":
        return {"start": new_start, "length": piece[dim]}
    open_end = op.attributes.get("end") is None or not 0 <= op.attributes["end"] <= old_whole
    return {"start": new_start, **({} if open_end else {"end": new_start + piece[dim]})}


def _resize_cast(cast: Cast, op: Op, inputs: tuple[TensorSpec, ...]) -> Cast:
    for before, after in zip(op.inputs, inputs, strict=True):
        if before.shape == cast.shape and (cast.parameter is None or cast.parameter == before.parameter):
            return replace(cast, shape=after.shape)
    return cast
