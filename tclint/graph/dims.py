"""Which dims of a model must change together, and the model as it would be with some of them changed.

    dims = CoupledDims(graph)
    vocabulary = dims.group_of_parameter("lm_head.weight", 0)
    padded = dims.resize({vocabulary: 50304})        # a Graph, to be priced like the traced one

Sizes are coupled by data flow alone: two dims that merely happen to be equal stay apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tclint.graph.dims_call import Axes
from tclint.graph.dims_propagate import propagate
from tclint.graph.dims_resize import resize_op, resize_spec, stride_changes
from tclint.graph.dims_size import Size
from tclint.graph.dims_solver import Constraint, Evaluator, Inconsistent
from tclint.graph.graph import Graph, Parameter
from tclint.graph.op import Op
from tclint.graph.spec import Site, TensorSpec


class DimsUnresolved(Exception):
    """A resize whose consequences are not known; the message names the op that stops it."""

    def __init__(self, op: Op | None, reason: str) -> None:
        self.op = op
        """The op that stops it; None where the sizes themselves do."""
        self.reason = reason
        super().__init__(reason if op is None else f"{_where(op)}: {reason}")


@dataclass(frozen=True, slots=True)
class DimGroup:
    """Dims of one model that must change together.

    A composite group is a size made of several dims (3 * heads * head_dim); resizing it resizes the
    innermost of them that gives the wanted size. Groups compare and hash by `id`.
    """

    id: str
    """Stable within one graph: 'd7', or the expression of a composite, '3*d7*d9'."""
    size: int = field(compare=False)
    parameters: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """(name, axis) of the parameters whose size depends on this dim."""
    op_indices: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Ops that read or write a tensor whose size depends on this dim."""
    sites: tuple[Site, ...] = field(default=(), compare=False, repr=False)
    """Where the layers that own those parameters are constructed."""
    fixed: str | None = field(default=None, compare=False)
    """Why the model's code cannot change it alone: it is a model input's dim, or a constant."""
    is_batch: bool = field(default=False, compare=False)
    """The leading dim of a model input."""
    is_output: bool = field(default=False, compare=False)
    """A dim of what the model returns (classes, vocabulary), the batch excepted."""
    is_vocabulary: bool = field(default=False, compare=False)
    """The number of rows of an embedding table."""
    unresolved: str | None = field(default=None, compare=False)
    """Why it cannot be resized: the op that is not modelled."""
    composite: bool = field(default=False, compare=False)
    roots: tuple[DimGroup, ...] = field(default=(), compare=False, repr=False)
    """The groups that a composite is made of, outermost first."""


class CoupledDims:
    """The coupled dims of a traced graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._shapes = propagate(graph)
        self._solver = self._shapes.solver
        self._base: dict[Size, frozenset[int]] = {}
        self._composites: dict[Size, DimGroup] = {}

    # ------------------------------------------------------------------------------ groups

    @cached_property
    def groups(self) -> tuple[DimGroup, ...]:
        """Every independent dim of the parameters and the inputs, in the order of first use."""
        wanted: dict[int, None] = {}
        for axes in (*self._shapes.parameters.values(), *self._shapes.graph_inputs.values()):
            for axis in axes:
                wanted.update(dict.fromkeys(sorted(self._base_atoms(axis))))
        return tuple(self._root_group(number) for number in wanted)

    def group_of_parameter(self, name: str, axis: int) -> DimGroup | None:
        """The group of one axis of a parameter or buffer, by any of its names; None for an unknown one."""
        axes = self._shapes.parameters.get(name)
        return self._group_at(axes, axis)

    def group_of_input(self, op_index: int, position: int, axis: int) -> DimGroup | None:
        """The group of one axis of an op's input tensor; None where there is no such axis."""
        if not 0 <= op_index < len(self._shapes.op_inputs):
            return None
        inputs = self._shapes.op_inputs[op_index]
        return self._group_at(inputs[position], axis) if 0 <= position < len(inputs) else None

    def group_of_output(self, op_index: int, position: int, axis: int) -> DimGroup | None:
        """The group of one axis of an op's output tensor; None where there is no such axis."""
        if not 0 <= op_index < len(self._shapes.op_outputs):
            return None
        outputs = self._shapes.op_outputs[op_index]
        return self._group_at(outputs[position], axis) if 0 <= position < len(outputs) else None

    def groups_of_size(self, size: int) -> tuple[DimGroup, ...]:
        """The groups, composite ones included, of all parameter axes of that size.

        They are independent as far as the data flow tells, but a width that a model's author wrote once
        is often in several of them: a transformer's residual stream and each layer's inner projections.
        """
        found: dict[DimGroup, None] = {}
        for axes in self._shapes.parameters.values():
            for axis in axes:
                if self._solver.value(axis) == size:
                    group = self._group_of_size(self._solver.resolve(axis))
                    if group is not None:
                        found[group] = None
                else:
                    # A fused projection holds the width several times over.
                    found.update(dict.fromkeys(self._parts_of_size(axis, size)))
        return tuple(found)

    def expression(self, name: str, axis: int) -> str:
        """How a parameter's axis is made of groups, '3*d7*d9', with the groups' ids."""
        return self._solver.resolve(self._shapes.parameters[name][axis]).text()

    def _parts_of_size(self, axis: Size, size: int) -> Iterator[DimGroup]:
        resolved = self._solver.resolve(axis)
        value = self._solver.value(resolved)
        if size > 1 and value % size == 0 and resolved.only_atom is None:
            part = resolved.divided_by(Size.constant(value // size))
            if part is not None:
                group = self._group_of_size(part)
                if group is not None:
                    yield group

    def _group_at(self, axes: Axes | None, axis: int) -> DimGroup | None:
        if axes is None or not -len(axes) <= axis < len(axes):
            return None
        size = axes[axis]
        resolved = self._solver.resolve(size)
        if not resolved.is_constant:
            return self._group_of_size(resolved)
        number = size.only_atom
        if number is None:
            return None
        by = self._solver.fixed_by.get(number)
        op = None if by is None else self.graph.ops[by]
        reason = "its size is a constant" + ("" if op is None else f" in {_where(op)}")
        return DimGroup(f"d{number}", self._solver.value(size), fixed=reason)

    def _group_of_size(self, size: Size) -> DimGroup | None:
        if size.is_constant:
            return None
        number = size.only_atom
        if number is not None and self._solver.atoms[number].formula is None:
            return self._root_group(number)
        group = self._composites.get(size)
        if group is None:
            group = self._composites[size] = self._composite_group(size)
        return group

    def _root_group(self, number: int) -> DimGroup:
        return self._roots[number]

    @cached_property
    def _roots(self) -> dict[int, DimGroup]:
        parameters, sites = self._parameters_by_atom
        blocked = self._blocked_atoms
        groups = {}
        for number, op_indices in self._ops_by_atom.items():
            atom = self._solver.atoms[number]
            is_batch = number in self._input_atoms[0]
            groups[number] = DimGroup(
                id=f"d{number}",
                size=atom.value,
                parameters=tuple(parameters[number]),
                op_indices=tuple(op_indices),
                sites=tuple(sites[number]),
                fixed="model input" if number in self._input_atoms[1] else None,
                is_batch=is_batch,
                is_output=not is_batch and number in self._output_atoms,
                is_vocabulary=number in self._vocabulary_atoms,
                unresolved=str(blocked[number]) if number in blocked else None,
            )
        return groups

    def _composite_group(self, size: Size) -> DimGroup:
        roots = tuple(self._roots[number] for number in self._ordered_atoms(size))
        ops = sorted({index for root in roots for index in root.op_indices})
        changeable = any(root.fixed is None and root.unresolved is None for root in roots)
        return DimGroup(
            id=size.text(),
            size=self._solver.value(size),
            parameters=tuple(dict.fromkeys(item for root in roots for item in root.parameters)),
            op_indices=tuple(ops),
            sites=tuple(dict.fromkeys(site for root in roots for site in root.sites)),
            fixed=None if changeable else next((root.fixed for root in roots if root.fixed), None),
            is_batch=any(root.is_batch for root in roots),
            is_output=any(root.is_output for root in roots),
            unresolved=None if changeable else next((r.unresolved for r in roots if r.unresolved), None),
            composite=True,
            roots=roots,
        )

    def _ordered_atoms(self, size: Size) -> list[int]:
        """The atoms of a size, outermost first where it remembers how it was put together."""
        size = self._solver.resolve(size)
        if size.structure is None:
            return sorted(self._base_atoms(size))
        ordered: dict[int, None] = {}
        for part in size.structure[1]:
            ordered.update(dict.fromkeys(self._ordered_atoms(part)))
        ordered.update(dict.fromkeys(sorted(self._base_atoms(size))))
        return list(ordered)

    # ------------------------------------------------------------------------------ what touches what

    def _base_atoms(self, size: Size) -> frozenset[int]:
        found = self._base.get(size)
        if found is None:
            found = self._base[size] = self._solver.base_atoms(size)
        return found

    @cached_property
    def _atoms_of_op(self) -> list[frozenset[int]]:
        result = []
        for inputs, outputs in zip(self._shapes.op_inputs, self._shapes.op_outputs, strict=True):
            sizes = {axis for axes in (*inputs, *outputs) for axis in axes}
            result.append(frozenset().union(*(self._base_atoms(size) for size in sizes)))
        return result

    @cached_property
    def _ops_by_atom(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for axes in (*self._shapes.parameters.values(), *self._shapes.graph_inputs.values()):
            for axis in axes:
                for number in sorted(self._base_atoms(axis)):
                    found.setdefault(number, [])
        for index, atoms in enumerate(self._atoms_of_op):
            for number in atoms:
                found.setdefault(number, []).append(index)
        return found

    @cached_property
    def _parameters_by_atom(self) -> tuple[dict[int, list[tuple[str, int]]], dict[int, dict[Site, None]]]:
        parameters: dict[int, list[tuple[str, int]]] = defaultdict(list)
        sites: dict[int, dict[Site, None]] = defaultdict(dict)
        for parameter in self.graph.parameters:
            for axis, size in enumerate(self._shapes.parameters[parameter.name]):
                for number in self._base_atoms(size):
                    parameters[number].append((parameter.name, axis))
                    if parameter.construct_site is not None:
                        sites[number][parameter.construct_site] = None
        return parameters, sites

    @cached_property
    def _input_atoms(self) -> tuple[frozenset[int], frozenset[int]]:
        """Atoms of the leading axes of the graph's inputs, and of their other axes."""
        leading: set[int] = set()
        other: set[int] = set()
        for axes in self._shapes.graph_inputs.values():
            for axis, size in enumerate(axes):
                (other if axis else leading).update(self._base_atoms(size))
        return frozenset(leading), frozenset(other - leading)

    @cached_property
    def _output_atoms(self) -> frozenset[int]:
        sizes = {axis for axes in self._shapes.graph_outputs for axis in axes}
        return frozenset().union(*(self._base_atoms(size) for size in sizes))

    @cached_property
    def _vocabulary_atoms(self) -> frozenset[int]:
        found: set[int] = set()
        for op, inputs in zip(self.graph.ops, self._shapes.op_inputs, strict=True):
            if op.kind == "embedding" and "weight" in op.input_names:
                weight = inputs[op.input_names.index("weight")]
                found.update(self._base_atoms(weight[0]) if weight else ())
        return frozenset(found)

    @cached_property
    def _blocked_atoms(self) -> dict[int, DimsUnresolved]:
        """Dims that cannot be resized, with the first op that stops each."""
        found: dict[int, DimsUnresolved] = {}
        ops = self.graph.ops
        for size, op_index, reason in self._solver.blocks:
            for number in self._base_atoms(size):
                op = ops[op_index] if op_index < len(ops) else None
                found.setdefault(number, DimsUnresolved(op, reason))
        for number, atom in enumerate(self._solver.atoms):
            if atom.kind == "opaque":
                found.setdefault(number, DimsUnresolved(ops[atom.op_index], atom.reason))
        return found

    @cached_property
    def _constraints_by_atom(self) -> dict[int, list[Constraint]]:
        found: dict[int, list[Constraint]] = defaultdict(list)
        for constraint in self._solver.constraints:
            for number in self._base_atoms(constraint.left) | self._base_atoms(constraint.right):
                found[number].append(constraint)
        return found

    # ------------------------------------------------------------------------------ resizing

    def resize(self, sizes: Mapping[DimGroup, int]) -> Graph:
        """The graph with these groups at new sizes, and everything coupled to them.

        Ops that do not change are the same objects; op indices stay. Strides keep their order in memory.

        Raises:
            DimsUnresolved: an op is not modelled, or would not accept the new sizes.
        """
        changes = self._assign(sizes)
        for number in changes:
            if number in self._blocked_atoms:
                raise self._blocked_atoms[number]
        evaluator = self._solver.evaluator(changes)
        self._check_constraints(changes, evaluator)
        return self._rebuild(frozenset(changes), evaluator)

    def _assign(self, sizes: Mapping[DimGroup, int]) -> dict[int, int]:
        """New values of atoms; exact groups first, then composites with the fewest dims left to choose."""
        changes: dict[int, int] = {}
        for group, size in sizes.items():
            if size < 1:
                raise DimsUnresolved(None, f"a dim cannot have size {size}")
            if group.fixed is not None and group.id not in self._ids:
                raise DimsUnresolved(None, f"the dim of size {group.size} cannot change: {group.fixed}")
            if group.id not in self._ids and not group.composite:
                raise DimsUnresolved(None, f"{group.id} is no group of this graph")
            if not group.composite:
                changes[self._ids[group.id]] = size
        composites = [(group, size) for group, size in sizes.items() if group.composite]
        for group, size in sorted(composites, key=lambda item: len(item[0].roots)):
            self._assign_composite(group, size, changes)
        return {number: size for number, size in changes.items() if size != self._solver.values[number]}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {group.id: number for number, group in self._roots.items()}

    def _assign_composite(self, group: DimGroup, wanted: int, changes: dict[int, int]) -> None:
        expression = next((size for size, known in self._composites.items() if known.id == group.id), None)
        if expression is None:
            raise DimsUnresolved(None, f"{group.id} is no group of this graph")
        try:
            if self._solver.evaluator(changes).value(expression) == wanted:
                return
        except Inconsistent:
            pass
        free = [self._ids[root.id] for root in group.roots if self._ids[root.id] not in changes]
        usable = [number for number in free if self._is_changeable(number)]
        if len(expression.terms) > 1 and len(usable) > 1:
            raise DimsUnresolved(None, f"the dim of size {group.size} is a sum of several; resize its parts")
        # The innermost dim first: head_dim before heads, channels per group before groups.
        for number in reversed(usable):
            if self._solve_for(expression, number, wanted, changes):
                return
        if free and not usable:
            raise self._blocked_atoms.get(free[-1]) or DimsUnresolved(
                None, f"the dim of size {group.size} cannot change: {group.fixed}"
            )
        raise DimsUnresolved(
            None, f"no part of the dim of size {group.size} = {group.id} can make it {wanted}"
        )

    def _is_changeable(self, number: int) -> bool:
        root = self._roots[number]
        return (
            root.fixed is None
            and not root.is_batch
            and number not in self._blocked_atoms
            and self._solver.atoms[number].origin != "expansion"
        )

    def _solve_for(self, expression: Size, number: int, wanted: int, changes: dict[int, int]) -> bool:
        """Choose the value of one atom that gives the wanted size; True where there is one."""
        parts = expression.split_linear(number)
        if parts is None or not parts[0].terms:
            return False
        evaluator = self._solver.evaluator(changes)
        try:
            slope, rest = (evaluator.value(part) for part in parts)
        except Inconsistent:
            return False
        value, left_over = divmod(wanted - rest, slope)
        if left_over or value < 1:
            return False
        changes[number] = value
        return True

    def _check_constraints(self, changes: Mapping[int, int], evaluator: Evaluator) -> None:
        seen: set[int] = set()
        for number in changes:
            for constraint in self._constraints_by_atom.get(number, ()):
                if id(constraint) in seen:
                    continue
                seen.add(id(constraint))
                self._check(constraint, evaluator)

    def _check(self, constraint: Constraint, evaluator: Evaluator) -> None:
        op = self.graph.ops[constraint.op_index]
        try:
            left, right = evaluator.value(constraint.left), evaluator.value(constraint.right)
        except Inconsistent as error:
            raise self._unresolved(error, op) from None
        if constraint.divisor > 1 and left % constraint.divisor:
            raise DimsUnresolved(op, f"size {left} is not a multiple of {constraint.divisor}")
        if left != right:
            raise DimsUnresolved(op, f"sizes {left} and {right} would differ")

    def _unresolved(self, error: Inconsistent, op: Op | None) -> DimsUnresolved:
        return DimsUnresolved(self.graph.ops[error.op_index] if error.op_index >= 0 else op, str(error))

    def _rebuild(self, changed: frozenset[int], evaluator: Evaluator) -> Graph:
        parameters = tuple(
            self._resize_parameter(parameter, changed, evaluator) for parameter in self.graph.parameters
        )
        ops = list(self.graph.ops)
        new_outputs: dict[tuple[int, int], TensorSpec] = {}
        for index, op in enumerate(self.graph.ops):
            if not self._atoms_of_op[index] & changed and not any(
                (spec.producer, spec.output_index) in new_outputs for spec in op.inputs
            ):
                continue
            ops[index] = self._resize_op(op, evaluator, new_outputs)
        inputs = tuple(
            resize_spec(spec, self._new_shape(axes, evaluator, None))
            for spec, axes in zip(self.graph.inputs, self._graph_input_axes(), strict=True)
        )
        outputs = tuple(
            self._resize_input(spec, axes, evaluator, None, new_outputs)
            for spec, axes in zip(self.graph.outputs, self._shapes.graph_outputs, strict=True)
        )
        return replace(self.graph, ops=tuple(ops), parameters=parameters, inputs=inputs, outputs=outputs)

    def _graph_input_axes(self) -> Iterable[Axes]:
        for position, spec in enumerate(self.graph.inputs):
            yield self._shapes.graph_inputs[spec.input_name or f"input{position}"]

    def _new_shape(self, axes: Axes, evaluator: Evaluator, op: Op | None) -> tuple[int, ...]:
        try:
            shape = tuple(evaluator.value(axis) for axis in axes)
        except Inconsistent as error:
            raise self._unresolved(error, op) from None
        for axis, size in zip(axes, shape, strict=True):
            if size < 1 <= self._solver.value(axis):
                raise DimsUnresolved(op, f"an axis would have size {size}")
        return shape

    def _resize_parameter(
        self, parameter: Parameter, changed: frozenset[int], evaluator: Evaluator
    ) -> Parameter:
        axes = self._shapes.parameters[parameter.name]
        if not any(self._base_atoms(axis) & changed for axis in axes):
            return parameter
        return replace(parameter, shape=self._new_shape(axes, evaluator, None))

    def _resize_op(self, op: Op, evaluator: Evaluator, new_outputs: dict[tuple[int, int], TensorSpec]) -> Op:
        inputs = tuple(
            self._resize_input(spec, axes, evaluator, op, new_outputs)
            for spec, axes in zip(op.inputs, self._shapes.op_inputs[op.index], strict=True)
        )
        base = stride_changes(op.inputs, inputs) if op.kind == "view" else None
        outputs = tuple(
            resize_spec(spec, self._new_shape(axes, evaluator, op), base)
            for spec, axes in zip(op.outputs, self._shapes.op_outputs[op.index], strict=True)
        )
        for position, (old, new) in enumerate(zip(op.outputs, outputs, strict=True)):
            if old is not new:
                new_outputs[op.index, position] = new
        return resize_op(op, inputs, outputs)

    def _resize_input(
        self,
        spec: TensorSpec,
        axes: Axes,
        evaluator: Evaluator,
        op: Op | None,
        new_outputs: Mapping[tuple[int, int], TensorSpec],
    ) -> TensorSpec:
        made = None if spec.producer is None else new_outputs.get((spec.producer, spec.output_index))
        if made is not None and len(made.shape) == len(spec.shape):
            return replace(spec, shape=made.shape, strides=made.strides)
        return resize_spec(spec, self._new_shape(axes, evaluator, op))


def _where(op: Op) -> str:
    site = op.call_site or op.construct_site
    place = f" at {site.path}:{site.line}" if site is not None else ""
    return f"{op.name}{place}" + (f" in {op.module_path}" if op.module_path else "")
