"""One traced graph at all the points of a sweep: what its dims are there, by the formulas of their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tclint.fleet.formulas import Formula, Point, formulas_of
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.ops import Graph


class Shapes:
    """A graph that can be resized to the points of a sweep.

    Args:
        graph: what was traced at the base.
        formulas: of the groups that change, by id.
    """

    def __init__(self, graph: Graph, formulas: dict[str, Formula]) -> None:
        self._dims = CoupledDims(graph)
        groups = {group.id: group for group in self._dims.groups}
        self._formulas = [(groups[id], formula) for id, formula in formulas.items()]

    def at(self, point: Point) -> Graph | None:
        """The graph at a point, None where the sizes there are none or an op would not accept them."""
        sizes: dict[DimGroup, int] = {}
        for group, formula in self._formulas:
            size = formula.at(point)
            if size is None:
                return None
            sizes[group] = size
        try:
            return self._dims.resize(sizes)
        except DimsUnresolved:
            return None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why the points of a sweep cannot be had by resizing."""

    reason: str


def learn(
    base: Graph, samples: Sequence[tuple[Point, Graph]], points: Sequence[Point]
) -> dict[str, Formula] | Unresolved:
    """The formulas of the groups whose sizes differ between traces, by id.

    Args:
        base: the graph that is to be resized.
        samples: graphs of the same operators, traced at other points; the base is one of them.
        points: where formulas that fit the samples must agree, or it is not known which one holds.
    """
    dims = CoupledDims(base)
    axes = _axes(dims, base)
    by_sizes: dict[tuple[int, ...], Formula | None] = {}
    formulas: dict[str, Formula] = {}
    at = [point for point, _ in samples]
    for group in dims.groups:
        axis = axes.get(group.id)
        if axis is None:  # resizing to the samples shows whether it stays
            continue
        sizes = tuple(_size(graph, axis) for _, graph in samples)
        if len(set(sizes)) == 1:
            continue
        if sizes not in by_sizes:
            by_sizes[sizes] = _one_formula(formulas_of(at, sizes), points)
        formula = by_sizes[sizes]
        if formula is None:
            return Unresolved(f"how a dim of size {group.size} follows from the arguments is not known")
        formulas[group.id] = formula
    return formulas


_WINDOW = ("stride", "padding", "dilation", "kernel_size")
"""Attributes that resizing leaves as they are, though arguments such as a patch size may set them."""


def is_same_program(one: Graph, other: Graph) -> bool:
    """Whether two traces ran the same operators, with the same windows, on tensors of as many dims."""
    return _program(one) == _program(other)


def _program(graph: Graph) -> list[tuple[object, ...]]:
    return [
        (
            op.name,
            op.module_path,
            *map(op.attributes.get, _WINDOW),
            *((len(spec.shape), spec.dtype) for spec in (*op.inputs, *op.outputs)),
        )
        for op in graph.ops
    ]


_Axis = tuple[int, bool, int, int]
"""An op, whether its inputs are meant, which of them, and the axis."""


def _axes(dims: CoupledDims, graph: Graph) -> dict[str, _Axis]:
    """Where a group can be read: an axis of a tensor that is this group and no other."""
    found: dict[str, _Axis] = {}
    for op in graph.ops:
        for is_input, specs in ((True, op.inputs), (False, op.outputs)):
            group_of = dims.group_of_input if is_input else dims.group_of_output
            for position, spec in enumerate(specs):
                for axis in range(len(spec.shape)):
                    group = group_of(op.index, position, axis)
                    if group is not None and not group.composite:
                        found.setdefault(group.id, (op.index, is_input, position, axis))
    return found


def _size(graph: Graph, where: _Axis) -> int:
    index, is_input, position, axis = where
    op = graph.ops[index]
    return (op.inputs if is_input else op.outputs)[position].shape[axis]


def _one_formula(fitting: Sequence[Formula], points: Sequence[Point]) -> Formula | None:
    """The formula, if all that fit give the same sizes at all points."""
    if not fitting:
        return None
    first, *others = fitting
    if any(first.at(point) != other.at(point) for other in others for point in points):
        return None
    return first
