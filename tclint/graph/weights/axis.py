"""Where old entries of an axis stand in the grown one, by how its size is put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tclint.graph.dims.index import AtomIndex
from tclint.graph.dims.size import Size
from tclint.graph.weights.plan import Segment

MAX_RUNS = 200_000
"""More pieces than this are not followed."""


class Run(NamedTuple):
    """Consecutive entries, all of them old or all added."""

    length: int
    is_added: bool = False


class Scattered(Exception):
    """An axis that no arrangement of its parts gives: it would shrink, or fall into too many pieces."""


Axis = tuple[Run, ...]
"""Runs in order; equal neighbours are one."""


def axis_of(runs: Iterable[Run]) -> Axis:
    """The axis with these runs, empty ones left out."""
    merged: list[Run] = []
    for run in runs:
        if not run.length:
            continue
        if merged and merged[-1].is_added == run.is_added:
            merged[-1] = Run(merged[-1].length + run.length, run.is_added)
        else:
            merged.append(run)
        if len(merged) > MAX_RUNS:
            raise Scattered("its entries are in too many places")
    return tuple(merged)


def old_size(axis: Axis) -> int:
    return sum(run.length for run in axis if not run.is_added)


def new_size(axis: Axis) -> int:
    return sum(run.length for run in axis)


def segments(axis: Axis) -> tuple[Segment, ...]:
    """Where the old entries stand."""
    found, old, new = [], 0, 0
    for run in axis:
        if not run.is_added:
            found.append((old, new, run.length))
            old += run.length
        new += run.length
    return tuple(found)


def flattened(axes: Sequence[Axis]) -> Axis:
    """The axis that flattens the given ones, outermost first."""
    result = axes[-1]
    for outer in reversed(axes[:-1]):
        result = _flattened(outer, result)
    return result


def _flattened(outer: Axis, inner: Axis) -> Axis:
    size = new_size(inner)
    runs: list[Run] = []
    for run in outer:
        if run.is_added or len(inner) == 1:
            runs.append(Run(run.length * size, run.is_added or inner[0].is_added))
        elif run.length * len(inner) > MAX_RUNS:
            raise Scattered("its entries are in too many places")
        else:
            runs += inner * run.length
    return axis_of(runs)


class Layouts:
    """Axes of symbolic sizes under new values of some atoms.

    An axis grows at its end; one that was flattened or joined from others, as those do. Which of two parts of
    a product is the outer one is a guess where nothing in the model takes it apart.
    """

    def __init__(self, index: AtomIndex, changes: Mapping[int, int]) -> None:
        self._index = index
        self._solver = index.shapes.solver
        self._changes = frozenset(changes)
        self._new = self._solver.evaluator(changes)

    def atoms(self, size: Size) -> frozenset[int]:
        """The changing dims that a size depends on."""
        return self._index.base_atoms(size) & self._changes

    def axis(self, size: Size) -> Axis:
        """The grown axis.

        Raises:
            Inconsistent: a division that is not exact.
            Scattered: it would not grow but shrink, or falls into too many pieces.
        """
        resolved = self._solver.resolve(size)
        old, new = self._solver.value(resolved), self._new.value(resolved)
        if not self.atoms(resolved):
            return axis_of([Run(old)])
        structure = resolved.structure or size.structure
        if structure is None and len(resolved.terms) == 1:
            monomial, coefficient = resolved.terms[0]
            # A count of equal parts: gates, heads, queries keys and values.
            count = [Size.constant(coefficient)] if coefficient > 1 else []
            factors = (*count, *map(Size.atom, monomial))
            structure = ("*", factors) if len(factors) > 1 else None
        if structure is not None:
            parts = [self.axis(part) for part in structure[1]]
            made = flattened(parts) if structure[0] == "*" else axis_of(run for part in parts for run in part)
            if (old_size(made), new_size(made)) == (old, new):
                return made
        if new < old:
            raise Scattered(f"an axis of {old} would shrink to {new}")
        return axis_of([Run(old), Run(new - old, is_added=True)])
