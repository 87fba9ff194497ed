"""Which dims of a model must change together, and the model as it would be with some of them changed.

    dims = CoupledDims(graph)
    vocabulary = dims.group_of_parameter("lm_head.weight", 0)
    padded = dims.resize({vocabulary: 50304})        # a Graph, to be priced like the traced one

Sizes are coupled by data flow alone: two dims that merely happen to be equal stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import lcm

from tclint.graph.dims.call import Axes
from tclint.graph.dims.index import AtomIndex, DimGroup, DimsUnresolved, describe
from tclint.graph.dims.propagate import propagate
from tclint.graph.dims.resize import Rebuild
from tclint.graph.dims.size import Size
from tclint.graph.dims.solver import Inconsistent
from tclint.graph.ops.graph import Graph

__all__ = ["CoupledDims", "DimGroup", "DimsUnresolved"]


class CoupledDims:
    """The coupled dims of a traced graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._shapes = propagate(graph)
        self._solver = self._shapes.solver
        self.index = AtomIndex(graph, self._shapes)
        self._composites: dict[Size, DimGroup] = {}
        self._expressions: dict[str, Size] = {}

    # ------------------------------------------------------------------------------ groups

    @cached_property
    def groups(self) -> tuple[DimGroup, ...]:
        """Every independent dim of the parameters and the inputs, in their order; no composites."""
        return tuple(self._roots[number] for number in self.index.declared)

    def group_of_parameter(self, name: str, axis: int) -> DimGroup | None:
        """The group of one axis of a parameter or buffer, by any of its names; None where there is none."""
        return self._group_at(self._shapes.parameters.get(name), axis)

    def group_of_input(self, op_index: int, position: int, axis: int) -> DimGroup | None:
        """The group of one axis of an op's input tensor; None for a constant or where there is none."""
        return self._group_in(self._shapes.op_inputs, op_index, position, axis)

    def group_of_output(self, op_index: int, position: int, axis: int) -> DimGroup | None:
        """The group of one axis of an op's output tensor; None for a constant or where there is none."""
        return self._group_in(self._shapes.op_outputs, op_index, position, axis)

    def groups_of_size(self, size: int) -> tuple[DimGroup, ...]:
        """The groups, composite ones included, of all parameter axes of that size or a multiple of it.

        They are independent as far as the data flow tells, but a width that a model's author wrote once
        is often in several of them: a transformer's residual stream and each layer's inner projections.
        """
        found: dict[DimGroup, None] = {}
        for axes in self._shapes.parameters.values():
            for axis in axes:
                found.update(dict.fromkeys(self._parts_of_size(axis, size)))
        return tuple(found)

    def expression(self, name: str, axis: int) -> str:
        """How a parameter's axis is made of groups, '3*d7*d9', by the groups' ids.

        Raises:
            KeyError: there is no such parameter.
        """
        return self._solver.resolve(self._shapes.parameters[name][axis]).text()

    def _parts_of_size(self, axis: Size, size: int) -> Iterator[DimGroup]:
        resolved = self._solver.resolve(axis)
        times, left_over = divmod(self._solver.value(resolved), size)
        if left_over or not times or (times > 1 and resolved.only_atom is not None):
            return
        # A fused projection holds the width several times over.
        part = resolved if times == 1 else resolved.divided_by(Size.constant(times))
        group = None if part is None else self._group_of_size(part)
        if group is not None:
            yield group

    def _group_in(
        self, tensors: list[tuple[Axes, ...]], op_index: int, position: int, axis: int
    ) -> DimGroup | None:
        if not 0 <= op_index < len(tensors) or not 0 <= position < len(tensors[op_index]):
            return None
        return self._group_at(tensors[op_index][position], axis)

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
        reason = "its size is a constant"
        if number in self._solver.fixed_by:
            reason += f" of {describe(self.graph.ops[self._solver.fixed_by[number]])}"
        return DimGroup(f"d{number}", self._solver.value(size), fixed=reason)

    def _group_of_size(self, size: Size) -> DimGroup | None:
        if size.is_constant:
            return None
        number = size.only_atom
        if number is not None and self._solver.atoms[number].formula is None:
            return self._roots[number]
        group = self._composites.get(size)
        if group is None:
            group = self._composites[size] = self._composite(size)
            self._expressions[group.id] = size
        return group

    @property
    def groups_by_number(self) -> Mapping[int, DimGroup]:
        """The groups that are no composites, by the number of their atom in the symbolic shapes."""
        return self._roots

    @cached_property
    def _roots(self) -> dict[int, DimGroup]:
        index = self.index
        groups = {}
        for number, op_indices in index.ops.items():
            parameters = tuple(index.parameters.get(number, ()))
            sites = (index.sites[name] for name, _ in parameters if name in index.sites)
            is_batch = number in index.batch
            groups[number] = DimGroup(
                id=f"d{number}",
                size=self._solver.values[number],
                parameters=parameters,
                op_indices=tuple(op_indices),
                sites=tuple(dict.fromkeys(sites)),
                fixed="model input" if number in index.inputs else None,
                is_batch=is_batch,
                is_output=not is_batch and number in index.outputs,
                is_vocabulary=number in index.vocabularies,
                unresolved=str(index.blocked[number]) if number in index.blocked else None,
            )
        return groups

    def _composite(self, size: Size) -> DimGroup:
        roots = tuple(self._roots[number] for number in self._ordered_atoms(size))
        changeable = any(root.fixed is None and root.unresolved is None for root in roots)
        return DimGroup(
            id=size.text(),
            size=self._solver.value(size),
            parameters=tuple(dict.fromkeys(item for root in roots for item in root.parameters)),
            op_indices=tuple(sorted({index for root in roots for index in root.op_indices})),
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
        ordered: dict[int, None] = {}
        for part in size.structure[1] if size.structure is not None else ():
            ordered.update(dict.fromkeys(self._ordered_atoms(part)))
        ordered.update(dict.fromkeys(sorted(self.index.base_atoms(size))))
        return list(ordered)

    # ------------------------------------------------------------------------------ resizing

    def resize(self, sizes: Mapping[DimGroup, int]) -> Graph:
        """The graph with these groups at new sizes, and everything coupled to them.

        Ops that do not change are the same objects; op indices stay. Strides keep their order in memory.

        Raises:
            DimsUnresolved: an op is not modelled, or would not accept the new sizes.
        """
        return Rebuild(self.index, self.new_values(sizes)).run()

    def new_values(self, sizes: Mapping[DimGroup, int]) -> dict[int, int]:
        """The atoms that change if these groups have new sizes, and their new values.

        Raises:
            DimsUnresolved: there are none that give a composite group its size.
        """
        changes: dict[int, int] = {}
        for group, size in sizes.items():
            if size < 1:
                raise DimsUnresolved(None, f"a dim cannot have size {size}")
            if not group.composite:
                changes[self._number_of(group)] = size
        composites = [(group, size) for group, size in sizes.items() if group.composite]
        # Those with the fewest dims leave the least to choose.
        for group, size in sorted(composites, key=lambda item: len(item[0].roots)):
            self._assign_composite(group, size, changes)
        return {n: size for n, size in changes.items() if size != self._solver.values[n]}

    def size_of(self, group: DimGroup, sizes: Mapping[DimGroup, int]) -> int:
        """The size of a group once others have these sizes.

        Raises:
            DimsUnresolved: they do not fit together.
        """
        changes = self.new_values(sizes)
        if not group.composite:
            return changes.get(self._number_of(group), group.size)
        try:
            return self._solver.evaluator(changes).value(self._expression_of(group))
        except Inconsistent as error:
            raise DimsUnresolved(None, str(error)) from error

    def sized(self, values: Mapping[int, int]) -> dict[DimGroup, int]:
        """The groups of these atoms, with their values."""
        return {self._roots[number]: value for number, value in values.items() if number in self._roots}

    def next_multiple(self, group: DimGroup, multiple: int, *, down: bool = False) -> int | None:
        """The smallest size, at least the present one, that is a multiple and that the group can take.

        A width of 3 * 8 * 125 grows to a multiple of 64 by its innermost dim, to 3 * 8 * 128, not to 3008;
        516 channels under GroupNorm(12) grow to 528, a multiple of 8 that the norm can divide.
        None where no size would do. `down`: the largest size, at most the present one.
        """
        multiple = lcm(multiple, *self._divisors(group))
        if not group.composite:
            return (group.size // multiple if down else -(-group.size // multiple)) * multiple or None
        expression = self._expression_of(group)
        for numbers in self._choices(group, expression, {}):
            parts = _as_one(expression, numbers).split_linear(numbers[0])
            if parts is None or not parts[0].terms:
                continue
            slope, rest = self._solver.value(parts[0]), self._solver.value(parts[1])
            present = self._solver.values[numbers[0]]
            values = (
                range(present, max(present - multiple, 0), -1) if down else range(present, present + multiple)
            )
            for value in values:
                if slope > 0 and (slope * value + rest) % multiple == 0:
                    return slope * value + rest
        return None

    def _divisors(self, group: DimGroup) -> Iterator[int]:
        """What ops need the whole size to be a multiple of: the groups of a convolution or a norm."""
        for root in group.roots or (group,):
            for constraint in self.index.constraints.get(self._numbers.get(root.id, -1), ()):
                if constraint.divisor > 1:
                    size = self._solver.resolve(constraint.left)
                    if not size.is_constant and self._group_of_size(size) is group:
                        yield constraint.divisor

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {group.id: number for number, group in self._roots.items()}

    def _number_of(self, group: DimGroup) -> int:
        number = self._numbers.get(group.id)
        if number is None:
            reason = group.fixed or "it is no group of this graph"
            raise DimsUnresolved(None, f"the dim of size {group.size} cannot change: {reason}")
        return number

    def _expression_of(self, group: DimGroup) -> Size:
        expression = self._expressions.get(group.id)
        if expression is None:
            raise DimsUnresolved(None, f"{group.id} is no group of this graph")
        return expression

    def _choices(self, group: DimGroup, expression: Size, taken: Mapping[int, int]) -> list[tuple[int, ...]]:
        """The atoms that may be changed, to one value, to resize a composite; best first.

        That is the innermost first: head_dim before heads, channels per group before groups. Which part of
        a concatenation should grow is not for us to say, unless all parts are equal tables made of
        constants (sine and cosine of positions), which grow together.
        """
        numbers = [self._numbers[root.id] for root in group.roots]
        usable = [number for number in numbers if number not in taken and self._is_changeable(number)]
        if len(expression.terms) == 1 or len(usable) < 2:
            return [(number,) for number in reversed(usable)]
        alike = {(self._solver.atoms[number].origin, self._solver.values[number]) for number in usable}
        return [tuple(usable)] if len(alike) == 1 and alike.pop()[0] == "constant" else []

    def _is_changeable(self, number: int) -> bool:
        root = self._roots[number]
        return (
            root.fixed is None
            and not root.is_batch
            and root.unresolved is None
            and self._solver.atoms[number].origin != "expansion"
        )

    def _assign_composite(self, group: DimGroup, wanted: int, changes: dict[int, int]) -> None:
        expression = self._expression_of(group)
        try:
            if self._solver.evaluator(changes).value(expression) == wanted:
                return
        except Inconsistent:
            # What was asked for so far does not fit together; the constraints will say where.
            pass
        for numbers in self._choices(group, expression, changes):
            value = self._solution(_as_one(expression, numbers), numbers[0], wanted, changes)
            if value is not None:
                changes.update(dict.fromkeys(numbers, value))
                return
        if group.unresolved or group.fixed:
            raise DimsUnresolved(None, group.unresolved or f"the dim cannot change: {group.fixed}")
        kind = "sum" if len(expression.terms) > 1 else "product"
        sizes = ", ".join(str(root.size) for root in group.roots)
        raise DimsUnresolved(
            None, f"{group.size} is a {kind} of dims ({sizes}), none of which alone makes it {wanted}"
        )

    def _solution(self, expression: Size, number: int, wanted: int, changes: Mapping[int, int]) -> int | None:
        """The value of one atom that gives an expression the wanted value, None where there is none."""
        parts = expression.split_linear(number)
        if parts is None or not parts[0].terms:
            return None
        evaluator = self._solver.evaluator(changes)
        try:
            slope, rest = (evaluator.value(part) for part in parts)
        except Inconsistent:
            return None
        value, left_over = divmod(wanted - rest, slope)
        return value if value >= 1 and not left_over else None


def _as_one(expression: Size, numbers: tuple[int, ...]) -> Size:
    """An expression with the first of some atoms in the place of all of them."""
    return expression.substitute(dict.fromkeys(numbers[1:], Size.atom(numbers[0])))
