"""Entries of a tensor put where a plan has them; arrays of NumPy and of torch alike."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from tclint.graph.weights.plan import AxisPlan


def copy_entries(source: Any, target: Any, axes: Mapping[int, AxisPlan], *, one: Any) -> None:
    """Fill `target`, which is all zeros, with the entries of `source` and what the plan adds to them.

    Args:
        axes: the axes that grow, by their numbers in these arrays.
        one: what stands for 1.0 in the arrays' dtype.
    """
    for number, axis in axes.items():
        if axis.fill == 1.0:
            for start, end in _gaps(axis, target.shape[number]):
                target[_at(number, slice(start, end))] = one
    whole = [[(0, 0, size)] for size in source.shape]
    pieces = [
        list(axes[number].segments) if number in axes else whole[number] for number in range(len(whole))
    ]
    for chosen in product(*pieces):
        there = tuple(slice(new, new + length) for _, new, length in chosen)
        here = tuple(slice(old, old + length) for old, _, length in chosen)
        target[there] = source[here]


def _at(number: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * number, part)


def _gaps(axis: AxisPlan, size: int) -> list[tuple[int, int]]:
    """(start, end) of the entries that are added to an axis."""
    gaps, position = [], 0
    for _, new, length in axis.segments:
        gaps.append((position, new))
        position = new + length
    return [(start, end) for start, end in (*gaps, (position, size)) if start < end]
