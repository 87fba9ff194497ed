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
    is_per_sample = len({cost.batch for cost in sweep.costs.values()}) > 1
    kinds = []
    for at, kind in enumerate(price_kinds(sweep)):
        points: list[list[float | None]] = []
        for position, sample_us in times_us(sweep, at).items():
            cost = sweep.costs[position]
            price = cost.prices[at]
            if price.fits:
                time_us = float(f"{sample_us if is_per_sample else price.step_time_us:.5g}")
                ready = round(price.readiness_percent, 1) if math.isfinite(price.readiness_percent) else None
                points.append([position, cost.parameters, time_us, ready, int(position in fronts[at])])
        kinds.append({"name": f"{kind.gpu}, {kind.precision}", "points": points})
    return {
        "is_per_sample": is_per_sample,
        "points": {position: point_text(sweep, position) for position in sorted(sweep.costs)},
        "kinds": kinds,
    }


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
