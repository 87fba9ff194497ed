"""Which points of a sweep are traced so that the others need not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tclint.fleet.formulas import Point

SPREAD = 4
"""Points traced beside the corners, only to compare with."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Points to trace of those that one graph may stand for."""

    base: Point
    lines: dict[int, tuple[Point, ...]]
    """By axis: the base with the smallest, a middle and the largest value of that argument."""
    corners: tuple[Point, ...]
    """Where all arguments are small, or large, and where one is as small or large as it gets."""
    spread: tuple[Point, ...]
    """Others, far apart."""

    @property
    def learned_from(self) -> tuple[Point, ...]:
        """Those that tell how sizes follow from arguments."""
        ends = (point for line in self.lines.values() for point in line)
        return tuple(dict.fromkeys((self.base, *ends, *self.corners)))

    @property
    def all(self) -> tuple[Point, ...]:
        return tuple(dict.fromkeys((*self.learned_from, *self.spread)))


def samples_of(points: Sequence[Point]) -> Samples:
    """The samples of some points; the base is the one from which most arguments can vary alone."""
    axes = range(len(points[0]))
    lines: list[dict[Point, list[Point]]] = [{} for _ in axes]
    for point in points:
        for axis in axes:
            lines[axis].setdefault(_others(point, axis), []).append(point)

    def freedom(point: Point) -> int:
        return sum(min(3, len(lines[axis][_others(point, axis)])) for axis in axes)

    most = max(map(freedom, points))
    freest = [point for point in points if freedom(point) == most]
    base = freest[len(freest) // 2]
    ends = {}
    for axis in axes:
        line = sorted(lines[axis][_others(base, axis)], key=lambda point: point[axis])
        # Three sizes tell 4 * width from 3 * width + 64, and the base may be at one end.
        chosen = (line[0], line[len(line) // 2], line[-1])
        ends[axis] = tuple(dict.fromkeys(point for point in chosen if point != base))
    ranks = [{value: rank for rank, value in enumerate(sorted({p[axis] for p in points}))} for axis in axes]

    def height(point: Point) -> float:
        return sum(ranks[axis][point[axis]] / max(1, len(ranks[axis]) - 1) for axis in axes)

    corners = [min(points, key=height), max(points, key=height)]
    for axis in axes:
        reached = {point[axis] for point in (base, *ends[axis], *corners)}
        for value in (min(ranks[axis]), max(ranks[axis])):
            if value not in reached:
                corners.append(next(point for point in points if point[axis] == value))
    step = len(points) / (SPREAD + 1)
    spread = tuple(points[int((at + 1) * step)] for at in range(SPREAD)) if len(points) > SPREAD else ()
    return Samples(base, ends, tuple(corners), spread)


def _others(point: Point, axis: int) -> Point:
    return point[:axis] + point[axis + 1 :]
