"""How the size of a dim follows from the swept arguments, learned from a few traces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

EXPONENTS = (0, 1, -1, 2)
"""Of an argument in a size: absent, width, width / heads, image_size ** 2."""

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
