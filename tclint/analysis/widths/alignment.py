"""The multiples that Tensor Cores need or prefer, by precision and GPU generation."""

from __future__ import annotations

from tclint.config.precisions import PRECISION_FACTS
from tclint.config.settings import Precision

PADDING_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)
"""The multiples that padding tries, as far as the precision can profit from them."""

SMALLEST_WIDTH = 5
"""Smaller dims, of 1 to 4, are interfaces (a score, coordinates, RGBA) and never a chosen width."""


def efficient_multiple(precision: Precision) -> int | None:
    """Elements that a contiguous dim must be a multiple of for full speed; None: any size is as good.

    Below it cuBLAS >= 11 and cuDNN >= 7.6.3 lose speed, and older ones use no Tensor Cores.
    """
    return PRECISION_FACTS[precision].multiple


def padding_multiples(precision: Precision) -> tuple[int, ...]:
    """Multiples that padding is tried with, smallest first."""
    least = efficient_multiple(precision)
    return () if least is None else tuple(m for m in PADDING_MULTIPLES if m >= least)


def is_misaligned(size: int, precision: Precision) -> bool:
    """Whether a dim is wide enough to be a choice and no `efficient_multiple` of the precision."""
    least = efficient_multiple(precision)
    return least is not None and size >= SMALLEST_WIDTH and size % least != 0


def round_up(size: int, multiple: int) -> int:
    """The next multiple that is not below a size."""
    return -(-size // multiple) * multiple


def largest_power_of_two_in(size: int) -> int:
    """The alignment of a size: 50304 -> 128, 50257 -> 1."""
    return size & -size
