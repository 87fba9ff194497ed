"""A sweep as an HTML page: every point as parameters against time, with the Pareto front, and a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tclint.core.units import count, percent_text, plural, time_text
from tclint.core.version import __version__
from tclint.fleet.frontier import front, neighbours, times_us
from tclint.fleet.sweep import Sweep
from tclint.fleet.sweep_report import change_text, memory_text, point_text, price_kinds
from tclint.report.html.markup import Cell, overview_section, text
from tclint.report.html.page import document, island

ROWS = 2_000
"""The most rows of the table, those of the fronts first; the chart has every point that fits."""
_HEADER = (
    "point", "GPU", "precision", "parameters", "step time", "ready", "memory", "on the front", "faster"
)  # fmt: skip
_NUMBERS = frozenset({"parameters", "step time", "ready", "memory"})


def render(sweep: Sweep) -> str:
    """The page, with everything in it; a browser needs no network for it."""
    fronts = [front(sweep, at) for at in range(len(price_kinds(sweep)))]
    points = plural(len(sweep.grid.points), "point")
    how = f"{points}, {sweep.traced} of them traced"
    notes = "".join(f"<p class='facts'>Traced, not resized: {text(note)}</p>" for note in sweep.notes)
    notes += "".join(f"<p class='facts'>Assumed: {text(what)}</p>" for what in sweep.assumptions)
    failed = f"<p>{plural(len(sweep.errors), 'point')} failed.</p>" if sweep.errors else ""
    body = f"""<header><h1>tclint</h1><p class="counts">Sweep of {text(sweep.target)}: {how}.</p>
{notes}{failed}</header>
<main>
<noscript><p>The chart needs JavaScript; the table has its numbers.</p></noscript>
<section id="sweep"></section>
{_table(sweep, fronts)}
</main>
<footer><p>tclint {text(__version__)}. Times are predictions for GPU kernels, not measurements. \
A point is on the Pareto front if it fits the GPU and none with as many parameters takes less time; \
! marks more memory than the GPU has, and the chart leaves such points out.</p>
"""
    before, after = document(f"sweep of {sweep.target}", body, ("models.js", "sweep.js"))
    return before + island(_data(sweep, fronts)) + after


def _data(sweep: Sweep, fronts: list[frozenset[int]]) -> dict[str, Any]:
    """By GPU and precision: [point, parameters, time, ready, on the front] of every point that fits."""
    positions = sorted(sweep.costs)
    is_per_sample = len({cost.batch for cost in sweep.costs.values()}) > 1
    return {
        "is_per_sample": is_per_sample,
        "points": {position: point_text(sweep, position) for position in positions},
        "kinds": [
            {
                "name": f"{kind.gpu}, {kind.precision}",
                "points": [
                    [
                        position,
                        sweep.costs[position].parameters,
                        _digits(time_us if is_per_sample else sweep.costs[position].prices[at].step_time_us),
                        _known(sweep.costs[position].prices[at].readiness_percent),
                        int(position in fronts[at]),
                    ]
                    for position, time_us in times_us(sweep, at).items()
                    if sweep.costs[position].prices[at].fits
                ],
            }
            for at, kind in enumerate(price_kinds(sweep))
        ],
    }


def _digits(time_us: float) -> float:
    return float(f"{time_us:.5g}")


def _known(percent: float) -> float | None:
    return round(percent, 1) if math.isfinite(percent) else None


def _table(sweep: Sweep, fronts: list[frozenset[int]]) -> str:
    rows = list(_rows(sweep, fronts))
    left_out = f"<p>{len(rows) - ROWS} rows left out: --format csv has all.</p>" if len(rows) > ROWS else ""
    return overview_section("Points", _HEADER, _NUMBERS, rows[:ROWS], left_out)


def _rows(sweep: Sweep, fronts: list[frozenset[int]]) -> Iterator[list[Cell]]:
    offers = [neighbours(sweep, at) for at in range(len(fronts))]
    order = sorted(
        ((position, at) for at in range(len(fronts)) for position in sweep.costs),
        key=lambda place: (place[0] not in fronts[place[1]], place[1], place[0]),
    )
    for position, at in order:
        cost = sweep.costs[position]
        price, offer = cost.prices[at], offers[at].get(position)
        cells: tuple[Cell, ...] = (
            (point_text(sweep, position), None),
            (price.gpu, None),
            (price.precision, None),
            (count(cost.parameters), cost.parameters),
            (time_text(price.step_time_us), price.step_time_us),
            (percent_text(price.readiness_percent), price.readiness_percent),
            (memory_text(price), price.memory_bytes),
            ("yes" if position in fronts[at] else "no", None),
            ("" if offer is None else change_text(offer), None),
        )
        yield [(text(said), size) for said, size in cells]
