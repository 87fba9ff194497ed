"""Which sizes are equal: atoms, what they were found to be equal to, and what could not be decided.

An atom is a dim that nothing else determines ('free'), one that an unmodelled operator made ('opaque'), or
one that follows from others by a formula that is no polynomial ('derived': a strided convolution's output).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tclint.graph.dims.size import Size

AtomKind = Literal["free", "opaque", "derived"]
SizeOrigin = Literal["parameter", "input", "constant", "factor", "expansion", "operator"]
FormulaKind = Literal["floor_div", "ceil_div", "exact_div", "window_ceil", "scaled"]


class Inconsistent(Exception):
    """A size that the new values do not give: an indivisible split."""

    op_index = -1
    """The op whose output has that size, where known."""


@dataclass(frozen=True, slots=True)
class Formula:
    """How a derived atom follows from another size; `numbers` as the kind needs them."""

    kind: FormulaKind
    argument: Size
    numbers: tuple[float, ...]

    def apply(self, size: int) -> int:
        """The value for a value of the argument.

        Raises:
            Inconsistent: the division is meant to be exact and is not.
        """
        first = self.numbers[0]
        if self.kind == "scaled":
            return int(size * first)
        step = int(first)
        if self.kind == "floor_div":
            return size // step
        if self.kind == "ceil_div":
            return -(-size // step)
        if self.kind == "window_ceil":
            # torch drops a last pooling window that would start in the padding on the far side.
            kernel_extent, padding = int(self.numbers[1]), int(self.numbers[2])
            windows = -(-(size + 2 * padding - kernel_extent) // step) + 1
            return windows - 1 if (windows - 1) * step >= size + padding else windows
        if size % step:
            raise Inconsistent(f"{size} is not divisible by {step}")
        return size // step


@dataclass(frozen=True, slots=True)
class Atom:
    """One symbolic dim; `op_index` is the op that made it, -1 for parameters and graph inputs."""

    value: int
    kind: AtomKind
    origin: SizeOrigin
    op_index: int = -1
    formula: Formula | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two sizes that an op needs equal, or (`divisor`) one that it divides; checked when resizing."""

    left: Size
    right: Size
    op_index: int
    divisor: int = 1


class Solver:
    """Atoms and the equations between them, met in the order in which the model ran."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.values: list[int] = []
        self.constraints: list[Constraint] = []
        self.blocks: list[tuple[Size, int, str]] = []
        """Sizes that went into an op that is not modelled, with the op and the reason."""
        self.fixed_by: dict[int, int] = {}
        """Atoms that turned out to be a constant -> the op that said so."""
        self._bound: dict[int, Size] = {}
        self._derived: dict[tuple[FormulaKind, Size, tuple[float, ...]], Size] = {}

    # ------------------------------------------------------------------------------ making sizes

    def _add(self, atom: Atom) -> Size:
        self.atoms.append(atom)
        self.values.append(atom.value)
        return Size.atom(len(self.atoms) - 1)

    def free(self, value: int, origin: SizeOrigin, op_index: int = -1) -> Size:
        return self._add(Atom(value, "free", origin, op_index))

    def opaque(self, value: int, op_index: int, reason: str) -> Size:
        return self._add(Atom(value, "opaque", "operator", op_index, reason=reason))

    def derived(self, kind: FormulaKind, argument: Size, numbers: tuple[float, ...], op_index: int) -> Size:
        """The size that the formula gives; a constant for a constant, a quotient where it is exact.

        Raises:
            Inconsistent: an exact division that is not exact at the traced sizes.
        """
        argument = self.resolve(argument)
        formula = Formula(kind, argument, numbers)
        value = formula.apply(self.value(argument))
        if argument.is_constant:
            return Size.constant(value)
        if kind in ("floor_div", "ceil_div", "exact_div"):
            quotient = argument.divided_by(Size.constant(int(numbers[0])))
            if quotient is not None:
                return quotient
        key = (kind, argument, numbers)
        if key not in self._derived:
            self._derived[key] = self._add(Atom(value, "derived", "operator", op_index, formula))
        return self._derived[key]

    # ------------------------------------------------------------------------------ reading sizes

    def resolve(self, size: Size) -> Size:
        """The same size in atoms that are not defined by others."""
        bound = self._bound
        number = size.only_atom
        if number is not None:
            if number not in bound:
                return size
            found = self.resolve(bound[number])
            bound[number] = found
            return found
        used = {atom: self.resolve(bound[atom]) for atom in size.atoms if atom in bound}
        return size.substitute(used) if used else size

    def value(self, size: Size) -> int:
        """The size as traced."""
        return size.evaluate(self.values)

    def base_atoms(self, size: Size) -> frozenset[int]:
        """The free and opaque atoms that a size depends on, through formulas too."""
        found: set[int] = set()
        pending = list(self.resolve(size).atoms)
        while pending:
            number = pending.pop()
            formula = self.atoms[number].formula
            if formula is None:
                found.add(number)
            else:
                pending.extend(self.resolve(formula.argument).atoms)
        return frozenset(found)

    # ------------------------------------------------------------------------------ equations

    def unify(self, left: Size, right: Size, op_index: int) -> None:
        """Learn that an op needs two sizes equal.

        A free atom is defined by the other side where that has no negative parts; what cannot be solved so
        is kept as a constraint.

        Raises:
            Inconsistent: they differ as traced, so the op was not understood.
        """
        left, right = self.resolve(left), self.resolve(right)
        if left == right:
            return
        if self.value(left) != self.value(right):
            raise Inconsistent(f"sizes {self.value(left)} and {self.value(right)} differ")
        solution = self._solve(left, right)
        if solution is None:
            self.constraints.append(Constraint(left, right, op_index))
            return
        number, definition = solution
        self._bound[number] = definition
        if definition.is_constant:
            self.fixed_by[number] = op_index

    def _solve(self, left: Size, right: Size) -> tuple[int, Size] | None:
        # The side as it stands keeps its structure, so a lone atom is tried before the difference is.
        candidates = [
            (number, other)
            for side, other in ((left, right), (right, left))
            if (number := side.only_atom) is not None and self._may_define(number, other)
        ]
        if candidates:
            return max(candidates)
        difference = (left - right).without_common_factor()
        for monomial, coefficient in reversed(difference.terms):
            if len(monomial) != 1 or coefficient not in (1, -1):
                continue
            rest = difference - Size({monomial: coefficient})
            definition = rest.scaled(-coefficient)
            grows = all(factor > 0 for term, factor in definition.terms if term)
            if grows and self._may_define(monomial[0], definition):
                return monomial[0], definition
        return None

    def _may_define(self, number: int, definition: Size) -> bool:
        return self.atoms[number].kind == "free" and number not in self.base_atoms(definition)

    def require_divisible(self, size: Size, divisor: int, op_index: int) -> None:
        """Learn that an op needs a size to be a multiple of a number."""
        if divisor > 1 and not size.is_constant:
            self.constraints.append(Constraint(size, size, op_index, divisor))

    def block(self, sizes: Iterable[Size], op_index: int, reason: str) -> None:
        """No size that these depend on can be changed: what the op makes of them is unknown."""
        self.blocks.extend((size, op_index, reason) for size in sizes if not size.is_constant)

    # ------------------------------------------------------------------------------ new values

    def evaluator(self, changes: Mapping[int, int]) -> Evaluator:
        return Evaluator(self, changes)


class Evaluator:
    """Values of sizes once some atoms have new values."""

    def __init__(self, solver: Solver, changes: Mapping[int, int]) -> None:
        self._solver = solver
        self._values: dict[int, int] = dict(changes)
        self._known: dict[Size, int] = {}

    def value(self, size: Size) -> int:
        """The new value of a resolved or unresolved size.

        Raises:
            Inconsistent: a division is not exact.
        """
        known = self._known.get(size)
        if known is None:
            resolved = self._solver.resolve(size)
            known = resolved.evaluate({number: self._atom(number) for number in resolved.atoms})
            self._known[size] = known
        return known

    def _atom(self, number: int) -> int:
        value = self._values.get(number)
        if value is None:
            atom = self._solver.atoms[number]
            formula = atom.formula
            try:
                value = atom.value if formula is None else formula.apply(self.value(formula.argument))
            except Inconsistent as error:
                if error.op_index < 0:
                    error.op_index = atom.op_index
                raise
            self._values[number] = value
        return value
