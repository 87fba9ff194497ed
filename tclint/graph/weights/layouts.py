"""Where old entries of an axis stand in the grown one, by how its size is put together."""

from __future__ import annotations

from collections.abc import Mapping

from tclint.graph.dims.index import AtomIndex
from tclint.graph.dims.size import Size
from tclint.graph.weights.axis import Axis, Fill, Pad, Scattered, Values, concatenated, product


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
