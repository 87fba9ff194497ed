"""Where old entries stand in axes that are put together from others."""

from __future__ import annotations

import pytest

from tclint.graph.weights.axis import (
    MAX_RUNS,
    Run,
    Scattered,
    axis_of,
    flattened,
    new_size,
    old_size,
    segments,
)

GROWN = axis_of([Run(3), Run(2, is_added=True)])


def test_neighbours_of_one_kind_are_one_run() -> None:
    axis = axis_of([Run(2), Run(0, is_added=True), Run(1), Run(1, is_added=True), Run(1, is_added=True)])
    assert axis == (Run(3), Run(2, is_added=True)) == GROWN
    assert (old_size(axis), new_size(axis)) == (3, 5)
    assert segments(axis) == ((0, 0, 3),)


def test_rows_grow_at_the_end_of_each_and_at_the_end_of_all() -> None:
    rows = flattened([axis_of([Run(2), Run(1, is_added=True)]), GROWN])
    assert segments(rows) == ((0, 0, 3), (3, 5, 3))
    assert (old_size(rows), new_size(rows)) == (6, 15)
    assert segments(flattened([GROWN, axis_of([Run(4)])])) == ((0, 0, 12),)
    assert segments(flattened([axis_of([Run(2)]), axis_of([Run(4, is_added=True)])])) == ()


def test_long_axes_in_one_piece_stay_in_one() -> None:
    assert flattened([axis_of([Run(MAX_RUNS + 1)]), axis_of([Run(4)])]) == (Run(4 * (MAX_RUNS + 1)),)


def test_axes_in_too_many_pieces_are_refused() -> None:
    assert len(flattened([axis_of([Run(MAX_RUNS // 2)]), GROWN])) == MAX_RUNS
    with pytest.raises(Scattered, match="too many places"):
        flattened([axis_of([Run(MAX_RUNS // 2 + 1)]), GROWN])
    with pytest.raises(Scattered, match="too many places"):
        axis_of(Run(1, is_added=bool(number % 2)) for number in range(MAX_RUNS + 1))
