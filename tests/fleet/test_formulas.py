"""What is learned of a size from a few points, and when too little is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest

from tclint.fleet.shapes import Formula, formulas_of, samples_of

POINTS = [(width, heads) for width in (64, 96, 128, 256) for heads in (2, 4, 8)]


@pytest.mark.parametrize(
    "size",
    [
        lambda width, heads: 4 * width,
        lambda width, heads: width // heads,
        lambda width, heads: 3 * width + 2,
        lambda width, heads: heads,
        lambda width, heads: (width // 16) ** 2 + 1,
        lambda width, heads: 7,
    ],
)
def test_sizes_are_learned_from_samples(size: Callable[[int, int], int]) -> None:
    samples = samples_of(POINTS).learned_from
    found = formulas_of(samples, [size(*point) for point in samples])
    assert found
    assert all(formula.at(point) == size(*point) for formula in found for point in POINTS)


@pytest.mark.parametrize(
    "size",
    [
        lambda width, heads: width * 8 // 3 // 16 * 16,  # rounded
        lambda width, heads: width + heads,  # a sum of two arguments
        lambda width, heads: 2 * width if width > 100 else width,  # a branch
        lambda width, heads: 3 * width // 2,  # what odd widths give is not known
    ],
)
def test_other_sizes_are_not(size: Callable[[int, int], int]) -> None:
    samples = samples_of(POINTS).learned_from
    assert formulas_of(samples, [size(*point) for point in samples]) == []


def test_too_few_samples_leave_several_formulas() -> None:
    """Two widths cannot tell 3 * width from width + 128: both are given, for the caller to compare."""
    found = formulas_of([(64,), (128,)], [192, 384])
    assert len({formula.at((256,)) for formula in found}) > 1


def test_what_is_no_size_is_none() -> None:
    per_head = Formula((1, -1), Fraction(1), 0)
    assert per_head.at((96, 4)) == 24
    assert per_head.at((100, 8)) is None
    assert Formula((1, 0), Fraction(1), -100).at((96, 4)) is None


def test_samples_reach_every_end() -> None:
    """Also where a condition leaves no line through the base: every argument's smallest and largest value."""
    diagonal = [(64 * heads, heads) for heads in range(1, 20)]
    learned_from = samples_of(diagonal).learned_from
    for axis in (0, 1):
        values = [point[axis] for point in learned_from]
        assert (min(values), max(values)) == (diagonal[0][axis], diagonal[-1][axis])
    assert not set(samples_of(POINTS).spread) <= set(samples_of(POINTS).learned_from)


def test_samples_have_sizes_that_rounding_to_eights_changes() -> None:
    """Every other size of this grid is a multiple of 8, as are its ends, its middle and its fifths."""
    samples = samples_of([(size,) for size in range(64, 1025, 4)])
    assert any(size % 8 for (size,) in samples.all)


def test_samples_have_an_odd_size_of_each_argument() -> None:
    points = list(itertools.product(range(64, 321, 4), range(2, 9), range(16, 129, 8)))
    samples = samples_of(points)
    assert any(size % 8 for size, _, _ in samples.spread)
    assert any(size % 2 for _, size, _ in samples.spread)
    assert any(size % 16 for _, _, size in samples.spread)
