"""Where old entries of an axis stand in the grown one, by how its size is put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tclint.graph.dims.index import AtomIndex
from tclint.graph.dims.size import Size
from tclint.graph.weights.plan import Segment

MAX_RUNS = 200_000
"""More pieces than this are not followed."""


class Fill:
    """What is known of entries: a set of values. Those of an added run, whatever stands on the other axes."""

    ZERO = frozenset({"zero"})
    POSITIVE = frozenset({"positive"})
    FINITE = frozenset({"zero", "positive", "negative"})
    """Any numbers, which a product with zeros removes."""
    ANY = frozenset({"zero", "positive", "negative", "not finite"})
    """Perhaps inf or NaN, or with a gradient that is."""


Values = frozenset[str]


class Pad(NamedTuple):
    """A run of added entries."""

    values: Values
    groups: frozenset[int]
    """The dims (atoms) whose growth added them."""


class Run(NamedTuple):
    """Consecutive entries, old ones where `pad` is None."""

    length: int
    pad: Pad | None = None


class Scattered(Exception):
    """An axis in too many pieces, or one that cannot be taken apart."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Runs in order; equal neighbours are one."""

    runs: tuple[Run, ...]
    origin: tuple[str, int] | None = None
    """The weight and its axis that this axis has its layout from, where it is one's alone."""

    @classmethod
    def of(cls, runs: Iterable[Run], origin: tuple[str, int] | None = None) -> Axis:
        merged: list[Run] = []
        for run in runs:
            if not run.length:
                continue
            if merged and merged[-1].pad == run.pad:
                merged[-1] = Run(merged[-1].length + run.length, run.pad)
            else:
                merged.append(run)
            if len(merged) > MAX_RUNS:
                raise Scattered("its entries are in too many places")
        return cls(tuple(merged), origin)

    @classmethod
    def kept(cls, length: int) -> Axis:
        """An axis that does not grow."""
        return cls((Run(length),) if length else ())

    @classmethod
    def grown(cls, old: int, new: int, pad: Pad) -> Axis:
        """An axis with entries added at its end."""
        return cls.of((Run(old), Run(new - old, pad)))

    @property
    def old_size(self) -> int:
        return sum(run.length for run in self.runs if run.pad is None)

    @property
    def new_size(self) -> int:
        return sum(run.length for run in self.runs)

    @property
    def is_padded(self) -> bool:
        return any(run.pad is not None for run in self.runs)

    @property
    def is_front(self) -> bool:
        """Whether each old entry has the place that it had."""
        return all(run.pad is not None for run in self.runs[1:]) and (not self.runs or not self.runs[0].pad)

    @property
    def groups(self) -> frozenset[int]:
        return frozenset().union(*(run.pad.groups for run in self.runs if run.pad is not None))

    @property
    def values(self) -> Values:
        """What the added entries may be; empty where there are none."""
        return frozenset().union(*(run.pad.values for run in self.runs if run.pad is not None))

    @property
    def layout(self) -> tuple[tuple[int, bool], ...]:
        """Where old entries stand, whatever the added ones are."""
        shape: list[tuple[int, bool]] = []
        for run in self.runs:
            is_pad = run.pad is not None
            if shape and shape[-1][1] == is_pad:
                shape[-1] = (shape[-1][0] + run.length, is_pad)
            else:
                shape.append((run.length, is_pad))
        return tuple(shape)

    @property
    def segments(self) -> tuple[Segment, ...]:
        found, old, new = [], 0, 0
        for run in self.runs:
            if run.pad is None:
                found.append((old, new, run.length))
                old += run.length
            new += run.length
        return tuple(found)

    def filled(self, values: Values) -> Axis:
        """The same axis with other values in its added entries."""
        runs = (
            run if run.pad is None else Run(run.length, run.pad._replace(values=values)) for run in self.runs
        )
        return Axis.of(runs, self.origin)

    def without_origin(self) -> Axis:
        return self if self.origin is None else replace(self, origin=None)

    def cut(self, start: int, end: int) -> Axis:
        """The entries from `start` to `end`, by their new places."""
        runs, position = [], 0
        for run in self.runs:
            first, last = max(start, position), min(end, position + run.length)
            if first < last:
                runs.append(Run(last - first, run.pad))
            position += run.length
        return Axis.of(runs)

    def old_before(self, position: int) -> int:
        """How many old entries stand before a new place."""
        return self.cut(0, position).old_size


def concatenated(axes: Iterable[Axis]) -> Axis:
    return Axis.of(run for axis in axes for run in axis.runs)


def product(axes: Sequence[Axis]) -> Axis:
    """The axis that flattens the given ones, outermost first."""
    if not axes:
        return Axis.kept(1)
    result = axes[-1]
    for outer in reversed(axes[:-1]):
        result = _flattened(outer, result)
    return result.without_origin() if len(axes) > 1 else result


def _flattened(outer: Axis, inner: Axis) -> Axis:
    size = inner.new_size
    if outer.runs == (Run(1),):
        return inner
    if not inner.is_padded:
        return Axis.of(Run(run.length * size, run.pad) for run in outer.runs)

    def runs() -> Iterator[Run]:
        for run in outer.runs:
            if run.pad is not None:
                yield Run(run.length * size, run.pad)
                continue
            for _ in range(run.length):
                yield from inner.runs

    return Axis.of(runs())


def split(axis: Axis, outer: tuple[int, int], inner: tuple[int, int]) -> tuple[Axis, Axis]:
    """An axis as two, of which (old size, new size) are given.

    Raises:
        Scattered: the old entries are not a block of such rows.
    """
    if not axis.is_padded:
        if outer[0] != outer[1] or inner[0] != inner[1]:
            raise Scattered("it does not grow, what it is taken apart into does")
        return Axis.kept(outer[0]), Axis.kept(inner[0])
    rows: list[Run] = []
    pattern: Axis | None = None
    for count, row in _rows(axis, inner[1]):
        if row.old_size:
            if row.old_size != inner[0]:
                raise Scattered(f"added entries stand between the rows of {inner[0]}")
            pattern = row if pattern is None else joined(pattern, row)
            rows.append(Run(count))
        else:
            rows.append(Run(count, Pad(row.values, row.groups)))
    result = Axis.of(rows)
    if pattern is None or result.old_size != outer[0] or result.new_size != outer[1]:
        raise Scattered(f"its entries are no {outer[0]} rows of {inner[0]}")
    return result, pattern


def _rows(axis: Axis, size: int) -> Iterator[tuple[int, Axis]]:
    """(count, row) of equal consecutive rows."""
    row: list[Run] = []
    filled = 0
    for run in axis.runs:
        left = run.length
        while left:
            if not filled and left >= size:
                yield left // size, Axis.of((Run(size, run.pad),))
                left %= size
                continue
            taken = min(left, size - filled)
            row.append(Run(taken, run.pad))
            filled += taken
            left -= taken
            if filled == size:
                yield 1, Axis.of(row)
                row, filled = [], 0
    if filled:
        raise Scattered(f"it is not a multiple of {size}")


def joined(left: Axis, right: Axis) -> Axis:
    """Two axes of one layout, with what either may have added.

    Raises:
        Scattered: their old entries stand in different places.
    """
    if left.runs == right.runs:
        return left
    if left.layout != right.layout:
        raise Scattered("old entries stand in different places")
    runs = (
        run if run.pad is None or other is None else Run(run.length, _either(run.pad, other))
        for run, other in aligned(left, right)
    )
    return Axis.of(runs, left.origin or right.origin)


def aligned(left: Axis, right: Axis) -> Iterator[tuple[Run, Pad | None]]:
    """The runs of one axis, cut where the other one's change, with what the other has there."""
    others = iter(right.runs)
    other, rest = None, 0
    for run in left.runs:
        length = run.length
        while length:
            if not rest:
                other = next(others)
                rest = other.length
            taken = min(length, rest)
            yield Run(taken, run.pad), other.pad if other is not None else None
            length -= taken
            rest -= taken


def _either(left: Pad, right: Pad) -> Pad:
    return Pad(left.values | right.values, left.groups | right.groups)


class Layouts:
    """Axes of symbolic sizes under new values of some atoms.

    An axis grows at its end; one that was flattened or joined from others, as those do. Which of two parts of
    a product is the outer one is a guess where nothing in the model takes it apart; the analysis of the
    model's ops finds out.
    """

    def __init__(self, index: AtomIndex, changes: Mapping[int, int]) -> None:
        self._index = index
        self._solver = index.shapes.solver
        self._changes = frozenset(changes)
        self._new = self._solver.evaluator(changes)
        self._known: dict[tuple[Size, object, Values], Axis] = {}

    def groups(self, size: Size) -> frozenset[int]:
        """The changing dims that a size depends on."""
        return self._index.base_atoms(size) & self._changes

    @property
    def all_groups(self) -> frozenset[int]:
        """All that change."""
        return self._changes

    def changed_atoms(self) -> list[tuple[int, frozenset[int]]]:
        """(old size, the atom alone) of all that change."""
        return [(self._solver.values[number], frozenset({number})) for number in sorted(self._changes)]

    def axis(self, size: Size, values: Values = Fill.ZERO) -> Axis:
        """The grown axis, with these values in its added entries.

        Raises:
            Inconsistent: a division that is not exact.
            Scattered: it would not grow but shrink, or falls into too many pieces.
        """
        key = size, size.structure, values
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._axis(size, values)
        return known

    def _axis(self, size: Size, values: Values) -> Axis:
        resolved = self._solver.resolve(size)
        groups = self.groups(resolved)
        old = self._solver.value(resolved)
        if not groups:
            return Axis.kept(old)
        new = self._new.value(resolved)
        structure = resolved.structure or size.structure
        if structure is None and len(resolved.terms) == 1:
            monomial, coefficient = resolved.terms[0]
            factors = [Size.atom(number) for number in monomial]
            # A count of equal parts: gates, heads, queries keys and values.
            factors[:0] = [Size.constant(coefficient)] if coefficient > 1 else []
            structure = ("*", tuple(factors)) if len(factors) > 1 else None
        if structure is not None:
            parts = [self.axis(part, values) for part in structure[1]]
            axis = product(parts) if structure[0] == "*" else concatenated(parts)
            if (axis.old_size, axis.new_size) == (old, new):
                return axis
        if new < old:
            raise Scattered(f"an axis of {old} would shrink to {new}")
        return Axis.grown(old, new, Pad(values, groups))
