"""One traced graph at all the points of a sweep: what its dims are there, by the formulas of their sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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


SPREAD = 4
"""Points traced beside the corners, only to compare with; more where there are more arguments."""
CANDIDATES = 64
"""Points that each of them is chosen from."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Points to trace of those that one graph may stand for."""

    base: Point
    lines: dict[int, tuple[Point, ...]]
    """By axis: the base with the smallest, a middle and the largest value of that argument."""
    corners: tuple[Point, ...]
    """Where all arguments are small, or large, and where one is as small or large as it gets."""
    spread: tuple[Point, ...]
    """Others, far apart, with odd sizes: those that code which rounds to multiples of 8 does not keep."""

    @property
    def learned_from(self) -> tuple[Point, ...]:
        """Those that tell how sizes follow from arguments."""
        ends = (point for line in self.lines.values() for point in line)
        return tuple(dict.fromkeys((self.base, *ends, *self.corners)))

    @property
    def all(self) -> tuple[Point, ...]:
        return tuple(dict.fromkeys((*self.learned_from, *self.spread)))


def samples_of(points: Sequence[Point]) -> Samples:
    """The samples of some points; the base is the one from which most arguments can vary alone."""
    axes = range(len(points[0]))
    lines: list[dict[Point, list[Point]]] = [{} for _ in axes]
    for point in points:
        for axis in axes:
            lines[axis].setdefault(_others(point, axis), []).append(point)

    def freedom(point: Point) -> int:
        return sum(min(3, len(lines[axis][_others(point, axis)])) for axis in axes)

    most = max(map(freedom, points))
    freest = [point for point in points if freedom(point) == most]
    base = freest[len(freest) // 2]
    ends = {}
    for axis in axes:
        line = sorted(lines[axis][_others(base, axis)], key=lambda point: point[axis])
        # Three sizes tell 4 * width from 3 * width + 64, and the base may be at one end.
        chosen = (line[0], line[len(line) // 2], line[-1])
        ends[axis] = tuple(dict.fromkeys(point for point in chosen if point != base))
    ranks = [{value: rank for rank, value in enumerate(sorted({p[axis] for p in points}))} for axis in axes]

    def height(point: Point) -> float:
        return sum(ranks[axis][point[axis]] / max(1, len(ranks[axis]) - 1) for axis in axes)

    corners = [min(points, key=height), max(points, key=height)]
    for axis in axes:
        reached = {point[axis] for point in (base, *ends[axis], *corners)}
        for value in (min(ranks[axis]), max(ranks[axis])):
            if value not in reached:
                corners.append(next(point for point in points if point[axis] == value))
    return Samples(base, ends, tuple(corners), _spread(points))


def _spread(points: Sequence[Point]) -> tuple[Point, ...]:
    """One point from each part of the grid: the first with the least round sizes, the others each with the
    least round size of one argument."""
    axes = range(len(points[0]))
    count = max(SPREAD, len(axes) + 1)
    if len(points) <= count:
        return ()
    choice = random.Random(0)  # regular steps would find values as regular: all of them even, say
    found = []
    for at in range(count):
        part = points[at * len(points) // count : (at + 1) * len(points) // count]
        tried = choice.sample(part, min(CANDIDATES, len(part)))
        weighed = axes if at == 0 else [(at - 1) % len(axes)]
        roundness = [sum(_twos(point[axis]) for axis in weighed) for point in tried]
        found.append(tried[roundness.index(min(roundness))])
    return tuple(found)


def _twos(size: int) -> int:
    """How many times 2 divides it."""
    return (size & -size).bit_length() - 1


def _others(point: Point, axis: int) -> Point:
    return point[:axis] + point[axis + 1 :]


EXPONENTS = (0, 1, -1, 2)
"""Exponents of an argument in a size: absent, width, width / heads, image_size ** 2."""

Point = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A size as factor * product of arguments + offset: 4 * width, width / heads, (image / 16) ** 2 + 1."""

    exponents: Point
    """Per argument."""
    factor: Fraction
    """A whole number, or one over a whole number: others come from rounding, which no formula knows."""
    offset: int

    def at(self, point: Point) -> int | None:
        """The size at a point; None where it is no whole number above zero, as 1000 / 12 is not."""
        size = self.factor * _product(self.exponents, point) + self.offset
        return size.numerator if size.denominator == 1 and size >= 1 else None


def formulas_of(samples: Sequence[Point], sizes: Sequence[int]) -> list[Formula]:
    """Every formula that gives the sizes found at the samples; several where they tell too little.

    Args:
        samples: whole numbers above zero, one per argument.
        sizes: of the dim, one per sample.
    """
    if len(set(sizes)) == 1:
        return [Formula((0,) * len(samples[0]), Fraction(0), sizes[0])]
    found = []
    for exponents in itertools.product(EXPONENTS, repeat=len(samples[0])):
        products = [_product(exponents, sample) for sample in samples]
        formula = _through(exponents, products, sizes)
        if formula is not None and all(
            formula.factor * product + formula.offset == size
            for product, size in zip(products, sizes, strict=True)
        ):
            found.append(formula)
    return found


def _through(exponents: Point, products: Sequence[Fraction], sizes: Sequence[int]) -> Formula | None:
    """The formula through the first two samples that differ."""
    for product, size in zip(products, sizes, strict=True):
        if product == products[0]:
            continue
        factor = (size - sizes[0]) / (product - products[0])
        offset = sizes[0] - factor * products[0]
        is_plain = factor > 0 and 1 in (factor.numerator, factor.denominator)
        return Formula(exponents, factor, int(offset)) if is_plain and offset.denominator == 1 else None
    return None


def _product(exponents: Point, point: Point) -> Fraction:
    numerator = denominator = 1
    for exponent, value in zip(exponents, point, strict=True):
        if exponent > 0:
            numerator *= value**exponent
        elif exponent:
            denominator *= value
    return Fraction(numerator, denominator)
