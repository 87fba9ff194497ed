"""A graph rewritten to new values of some of its dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tclint.graph.dims.call import Axes
from tclint.graph.dims.group import DimsUnresolved
from tclint.graph.dims.index import AtomIndex
from tclint.graph.dims.resize import resize_op, resize_spec, stride_changes
from tclint.graph.dims.solver import Constraint, Evaluator, Inconsistent
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec


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
