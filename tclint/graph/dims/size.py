"""Symbolic sizes: integer polynomials in the free dims of a model.

A size such as `3*heads*head_dim` or `64 + 32` is a sum of products of atoms; atoms are numbered by the
solver (`tclint.graph.dims.solver`), which knows their values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Monomial = tuple[int, ...]
"""A product of atoms: their numbers, sorted, repeated for powers; () is the constant's monomial."""

Structure = tuple[Literal["+", "*"], tuple["Size", ...]]


class Size:
    """An immutable integer polynomial.

    `structure` remembers in which order a flattened or concatenated axis was put together, so that a later
    view or split takes it apart in the same order; it takes no part in equality.
    """

    __slots__ = ("_hash", "structure", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    structure: Structure | None

    def __init__(self, terms: Mapping[Monomial, int], structure: Structure | None = None) -> None:
        if len(terms) == 1:
            self.terms = tuple(term for term in terms.items() if term[1])
        else:
            self.terms = tuple(sorted((m, c) for m, c in terms.items() if c))
        self.structure = structure
        self._hash = hash(self.terms)

    @classmethod
    def constant(cls, value: int) -> Size:
        return cls({(): value})

    @classmethod
    def atom(cls, number: int) -> Size:
        return cls({(number,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Size(terms)

    def __sub__(self, other: Size) -> Size:
        return self + other.scaled(-1)

    def __mul__(self, other: Size) -> Size:
        if self.terms == _ONE:
            return other
        if other.terms == _ONE:
            return self
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Size(terms)

    def scaled(self, factor: int) -> Size:
        return Size({monomial: factor * coefficient for monomial, coefficient in self.terms})

    def with_structure(self, structure: Structure | None) -> Size:
        return Size(dict(self.terms), structure)

    @property
    def is_constant(self) -> bool:
        return not self.terms or (self.terms[0][0] == () and len(self.terms) == 1)

    @property
    def only_atom(self) -> int | None:
        """The atom that this size is, None for constants and for composite sizes."""
        if len(self.terms) == 1:
            monomial, coefficient = self.terms[0]
            if coefficient == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    @property
    def atoms(self) -> frozenset[int]:
        return frozenset(number for monomial, _ in self.terms for number in monomial)

    def evaluate(self, values: Mapping[int, int] | Sequence[int]) -> int:
        total = 0
        for monomial, coefficient in self.terms:
            term = coefficient
            for number in monomial:
                term *= values[number]
            total += term
        return total

    def substitute(self, replacements: Mapping[int, Size]) -> Size:
        """Replace atoms by sizes; one that is a lone atom becomes its replacement, structure included."""
        number = self.only_atom
        if number is not None:
            return replacements.get(number, self)
        if not any(atom in replacements for atom in self.atoms):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            term = Size.constant(coefficient)
            for atom in monomial:
                term = term * replacements.get(atom, Size.atom(atom))
            total = total + term
        if self.structure is None:
            return total
        kind, parts = self.structure
        return total.with_structure((kind, tuple(part.substitute(replacements) for part in parts)))

    def split_linear(self, number: int) -> tuple[Size, Size] | None:
        """(a, b) with self = a*atom + b and neither holding the atom; None where it occurs squared."""
        slope: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            count = monomial.count(number)
            if count > 1:
                return None
            if count:
                slope[tuple(atom for atom in monomial if atom != number)] = coefficient
            else:
                rest[monomial] = coefficient
        return Size(slope), Size(rest)

    def divided_by(self, divisor: Size) -> Size | None:
        """The exact quotient by a one-term divisor, None where it is not a polynomial."""
        if len(divisor.terms) != 1:
            return ONE if self == divisor else None
        monomial, coefficient = divisor.terms[0]
        quotient: dict[Monomial, int] = {}
        for term, factor in self.terms:
            if factor % coefficient:
                return None
            left = list(term)
            for atom in monomial:
                if atom not in left:
                    return None
                left.remove(atom)
            quotient[tuple(left)] = factor // coefficient
        return Size(quotient)

    def without_common_factor(self) -> Size:
        """Divided by what divides every term; zero for the same (positive) atoms as before."""
        if not self.terms:
            return self
        shared = Counter(self.terms[0][0])
        for monomial, _ in self.terms[1:]:
            shared &= Counter(monomial)
        factor = math.gcd(*(coefficient for _, coefficient in self.terms))
        return self.divided_by(Size({tuple(sorted(shared.elements())): factor})) or self

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """Readable form, `3*d4*d7 + 64`."""

        def of(number: int) -> str:
            return names[number] if names and number in names else f"d{number}"

        words = []
        for monomial, coefficient in sorted(self.terms, reverse=True):
            factors = [of(number) for number in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            words.append("*".join(factors))
        return " + ".join(words) or "0"

    def __repr__(self) -> str:
        return f"Size({self.text()})"


_ONE: tuple[tuple[Monomial, int], ...] = (((), 1),)
ZERO = Size.constant(0)
ONE = Size.constant(1)


def product(sizes: Iterable[Size]) -> Size:
    """The size of an axis that flattens the given ones; remembers them in order."""
    factors = tuple(sizes)
    total = ONE
    for factor in factors:
        total = total * factor
    flat: list[Size] = []
    for factor in factors:
        if factor.structure is not None and factor.structure[0] == "*":
            flat.extend(factor.structure[1])
        elif factor != ONE:
            flat.append(factor)
    return total.with_structure(("*", tuple(flat))) if len(flat) > 1 else total


def concatenation(sizes: Iterable[Size]) -> Size:
    """The size of an axis that joins the given ones end to end; remembers them in order."""
    parts = tuple(sizes)
    total = ZERO
    for part in parts:
        total = total + part
    return total.with_structure(("+", parts)) if len(parts) > 1 else total
