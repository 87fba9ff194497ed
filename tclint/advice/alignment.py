"""Which multiples Tensor Cores like, by precision and GPU generation."""

from __future__ import annotations

from tclint.config import Precision
from tclint.precisions import PRECISION_FACTS

# Matrix Multiplication Background, Table 1: "multiple of" below which cuBLAS >= 11 and cuDNN >= 7.6.3 lose
# speed and older ones use no Tensor Cores. fp32 on CUDA cores has no such multiple.
EFFICIENT_MULTIPLE: dict[Precision, int] = {
    name: facts.multiple for name, facts in PRECISION_FACTS.items() if facts.multiple is not None
}

# The same table, "on A100 most efficient": 128 bytes.
AMPERE_MULTIPLE: dict[Precision, int] = {
    name: facts.largest_multiple
    for name, facts in PRECISION_FACTS.items()
    if facts.largest_multiple is not None
}

PADDING_MULTIPLES = (4, 8, 16, 32, 64, 128)
"""What padding is tried with; only those that the precision can profit from."""

SMALLEST_WIDTH = 5
"""Dims of 1 to 4 are interfaces (a score, coordinates, RGBA), never a width that someone chose."""


def efficient_multiple(precision: Precision) -> int | None:
    """Elements that a contiguous dim must be a multiple of for full speed; None: any size is as good."""
    return EFFICIENT_MULTIPLE.get(precision)


def padding_multiples(precision: Precision) -> tuple[int, ...]:
    """Multiples that padding is tried with, smallest first."""
    least = EFFICIENT_MULTIPLE.get(precision)
    return () if least is None else tuple(m for m in PADDING_MULTIPLES if m >= least)


def is_misaligned(size: int, precision: Precision) -> bool:
    least = EFFICIENT_MULTIPLE.get(precision)
    return least is not None and size >= SMALLEST_WIDTH and size % least != 0


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def largest_power_of_two_in(size: int) -> int:
    """The alignment of a size: 50304 -> 128, 50257 -> 1."""
    return size & -size
