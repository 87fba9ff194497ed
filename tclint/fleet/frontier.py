"""Which points of a sweep are worth a look: the Pareto front, and neighbours that run faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tclint.fleet.sweep import Sweep

LEAST_GAIN_PERCENT = 1.0
"""The least gain in time per sample for which a neighbour is named."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A point that differs in one argument, has as many parameters or more, and is faster."""

    position: int
    """In the grid."""
    axis: str
    present: object
    other: object
    parameters_percent: float
    """How many more parameters it has."""
    faster_percent: float
    """How much less time it takes."""


def times_us(sweep: Sweep, at: int) -> Mapping[int, float]:
    """Step time per sample by position in the grid, of one GPU and precision (by their place in the prices).

    Per step where the inputs' leading dims are not all the same.
    """
    return {
        position: cost.prices[at].step_time_us / (cost.batch or 1)
        for position, cost in sweep.costs.items()
        if cost.prices[at].step_time_us > 0  # unknown ones are not
    }


def front(sweep: Sweep, at: int) -> frozenset[int]:
    """The points that fit the GPU and that no other such beats: none with as many parameters takes less time,
    and none with more takes the same."""
    best_us = float("inf")
    found = []
    times = times_us(sweep, at)
    for position in sorted(times, key=lambda p: (-sweep.costs[p].parameters, times[p], p)):
        if times[position] < best_us and sweep.costs[position].prices[at].fits:
            best_us = times[position]
            found.append(position)
    return frozenset(found)


def neighbours(sweep: Sweep, at: int) -> dict[int, Neighbour]:
    """For each point that has one, the faster neighbour with the fewest more parameters, and of those the
    fastest.

    One that does not fit the GPU is none.

    Another batch makes no other model, so it is none.
    """
    times = times_us(sweep, at)
    found: dict[int, Neighbour] = {}
    for axis in range(len(sweep.grid.axes)):
        lines: dict[str, list[int]] = {}
        for position in times:
            point = sweep.grid.points[position]
            others = (*point[:axis], sweep.costs[position].batch, *point[axis + 1 :])
            lines.setdefault(repr(others), []).append(position)
        for line in lines.values():
            line.sort(key=lambda position: (sweep.costs[position].parameters, times[position]))
            for place, one in enumerate(line):
                same = (p for p in line[:place] if sweep.costs[p].parameters == sweep.costs[one].parameters)
                held = (p for p in (*same, *line[place + 1 :]) if sweep.costs[p].prices[at].fits)
                offers = (_neighbour(sweep, times, axis, one, other) for other in held)
                offered = next((offer for offer in offers if offer is not None), None)
                if offered is not None and (one not in found or _rank(offered) < _rank(found[one])):
                    found[one] = offered
    return found


def _neighbour(sweep: Sweep, times: Mapping[int, float], axis: int, one: int, other: int) -> Neighbour | None:
    here, there = sweep.costs[one].parameters, sweep.costs[other].parameters
    faster_percent = 100.0 * (1.0 - times[other] / times[one])
    if faster_percent < LEAST_GAIN_PERCENT:
        return None
    return Neighbour(
        position=other,
        axis=sweep.grid.axes[axis].name,
        present=sweep.grid.points[one][axis],
        other=sweep.grid.points[other][axis],
        parameters_percent=100.0 * (there / here - 1.0) if here else 0.0,
        faster_percent=faster_percent,
    )


def _rank(neighbour: Neighbour) -> tuple[float, float]:
    return neighbour.parameters_percent, -neighbour.faster_percent
