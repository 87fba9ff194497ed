"""A sweep as a table for people, as CSV and JSON, and as a page with a chart of all points."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tclint.core.saved import picked
from tclint.core.table import table
from tclint.core.text import columns, printable
from tclint.core.units import bytes_text, count, flops_text, percent_text, plural, time_text
from tclint.core.version import __version__
from tclint.fleet.frontier import Neighbour, front, neighbours, times_us
from tclint.fleet.prices import Price
from tclint.fleet.sweep import Sweep
from tclint.report.formats.json import clean, rounded
from tclint.report.html.markup import Cell, overview_section, text
from tclint.report.html.page import document, island

FORMATS = ("text", "csv", "json")
SCHEMA_VERSION = "1.0"
ALL_ROWS = 40
"""Up to this many points, the table has all of them; else the front."""
NAMED = 10
"""Neighbours that are written out, and messages of points that failed."""


def render(sweep: Sweep, format_name: str) -> str:
    """The sweep in one of FORMATS."""
    if format_name == "json":
        return json.dumps(clean(_document(sweep)), indent=1, allow_nan=False) + "\n"
    if format_name == "csv":
        return _csv(sweep)
    if format_name == "html":
        return _page(sweep)
    return "".join(f"{line}\n" for line in _text(sweep))


# ---------------------------------------------------------------- for people


def _text(sweep: Sweep) -> Iterator[str]:
    total = len(sweep.grid.points)
    how = f"{sweep.traced} traced, {total - sweep.traced} had by resizing one of them"
    yield f"{printable(sweep.target)}: {plural(total, 'point')}, {how}"
    for note in sweep.notes:
        yield f"note: traced, not resized: {printable(note)}"
    for what in sweep.assumptions:
        yield f"assumed: {printable(what)}"
    for at, price in enumerate(price_kinds(sweep)):
        yield ""
        yield from _table(sweep, at, price)
    if sweep.errors:
        yield ""
        messages = set(sweep.errors.values())
        if len(messages) == 1 and len(sweep.errors) > 1:
            failed = f"{plural(len(sweep.errors), 'point')} failed for the same reason"
            yield f"{failed}: {printable(messages.pop())}"
            return
        yield f"{plural(len(sweep.errors), 'point')} failed:"
        yield from (
            f"  {point_text(sweep, position)}: {printable(message)}"
            for position, message in sorted(sweep.errors.items())[:NAMED]
        )
        if len(sweep.errors) > NAMED:
            yield f"  and {len(sweep.errors) - NAMED} more; --format json has all of them."


def price_kinds(sweep: Sweep) -> tuple[Price, ...]:
    """The prices of any point, for their GPUs and precisions, in the order of every point's."""
    return next(iter(sweep.costs.values())).prices if sweep.costs else ()


def _table(sweep: Sweep, at: int, price: Price) -> Iterator[str]:
    best, offers = front(sweep, at), neighbours(sweep, at)
    times = times_us(sweep, at)
    shown = sorted(sweep.costs)
    if len(shown) > ALL_ROWS:
        shown = sorted(best, key=lambda position: times[position])
    per_sample = len({cost.batch for cost in sweep.costs.values()}) > 1
    what = "time per sample" if per_sample else "step time"
    yield f"{price.gpu}, {price.precision}: * no point with as many parameters has a smaller {what}"
    rows = []
    for position in shown:
        cost = sweep.costs[position]
        priced = cost.prices[at]
        cells = (
            ("* " if position in best else "  ") + point_text(sweep, position),
            count(cost.parameters),
            flops_text(cost.flops),
            memory_text(priced),
            time_text(priced.step_time_us),
        )
        sample = (time_text(times[position]) if position in times else "unknown",) if per_sample else ()
        rows.append((*cells, *sample, percent_text(priced.readiness_percent)))
    sample_header = ("per sample",) if per_sample else ()
    header = ("  point", "parameters", "FLOPs", "memory", "step time", *sample_header, "readiness")
    yield from table(header, rows, indent="")
    if not all(sweep.costs[position].prices[at].fits for position in shown):
        yield "  ! more memory than the GPU has"
    if len(shown) < len(sweep.costs):
        others = len(sweep.costs) - len(shown)
        yield f"  {plural(others, 'other point')} besides; --format csv has all of them."
    changes: dict[tuple[str, ...], tuple[int, Neighbour]] = {}
    for position, offer in sorted(offers.items(), key=lambda item: (-item[1].faster_percent, item[0])):
        changes.setdefault((offer.axis, str(offer.present), str(offer.other)), (position, offer))
    if changes:
        largest = list(changes.values())[:NAMED]
        named = [(point_text(sweep, position), change_text(offer)) for position, offer in largest]
        width = max(columns(point) for point, _ in named)
        yield "faster with as many parameters or more, each change where it gains most:"
        yield from (f"  {point}{' ' * (width - columns(point))}  {text}" for point, text in named)


def change_text(offer: Neighbour) -> str:
    """'width 1000 -> 1024: 3 % more parameters, 11 % faster'."""
    more = f"{percent_text(offer.parameters_percent)} more" if offer.parameters_percent else "as many"
    change = f"{offer.axis} {offer.present} -> {offer.other}"
    return printable(f"{change}: {more} parameters, {percent_text(offer.faster_percent)} faster")


def memory_text(price: Price) -> str:
    """'12.3 GiB', with a mark if the GPU has less."""
    return bytes_text(price.memory_bytes) + ("" if price.fits else " !")


def point_text(sweep: Sweep, position: int) -> str:
    return printable(sweep.grid.text_at(position))


# ---------------------------------------------------------------- for programs


def _prices(sweep: Sweep) -> Iterator[tuple[int, dict[str, Any], Neighbour | None]]:
    """Position, price and faster neighbour of every point on every GPU, in every precision."""
    kinds = range(len(price_kinds(sweep)))
    fronts, offers = [front(sweep, at) for at in kinds], [neighbours(sweep, at) for at in kinds]
    for position, cost in sorted(sweep.costs.items()):
        for at, price in enumerate(cost.prices):
            values = {**rounded(asdict(price)), "on_front": position in fronts[at]}
            yield position, values, offers[at].get(position)


def _document(sweep: Sweep) -> dict[str, Any]:
    points: dict[int, dict[str, Any]] = {
        position: {
            "arguments": _arguments(sweep, position),
            **picked(cost, "parameters", "flops", "batch"),
            "prices": [],
        }
        for position, cost in sorted(sweep.costs.items())
    }
    for position, values, offer in _prices(sweep):
        faster = None
        if offer is not None:
            faster = {
                "argument": offer.axis,
                "present": offer.present,
                "other": offer.other,
                "parameters_percent": rounded(offer.parameters_percent),
                "faster_percent": rounded(offer.faster_percent),
            }
        points[position]["prices"].append({**values, "faster_neighbour": faster})
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "tclint", "version": __version__},
        "target": sweep.target,
        "traced": sweep.traced,
        "notes": list(sweep.notes),
        "assumptions": list(sweep.assumptions),
        "points": list(points.values()),
        "errors": [
            {"arguments": _arguments(sweep, position), "message": message}
            for position, message in sorted(sweep.errors.items())
        ],
    }


def _arguments(sweep: Sweep, position: int) -> dict[str, Any]:
    return dict(zip(sweep.grid.names, sweep.grid.points[position], strict=True))


def _csv(sweep: Sweep) -> str:
    file = io.StringIO()
    rows = list(_rows(sweep))
    header = [*sweep.grid.names, *_COLUMNS]
    writer = csv.DictWriter(file, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


_COLUMNS = (
    "parameters", "flops", "batch", "gpu", "precision", "step_time_us", "readiness_percent", "memory_bytes",
    "fits", "on_front", "faster_neighbour",
)  # fmt: skip


def _rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """One per point, GPU and precision; points that failed have none."""
    for position, values, offer in _prices(sweep):
        cost = sweep.costs[position]
        yield {
            **_arguments(sweep, position),
            **picked(cost, "parameters", "flops", "batch"),
            **{name: int(value) if isinstance(value, bool) else value for name, value in values.items()},
            "faster_neighbour": None if offer is None else change_text(offer),
        }


PAGE_ROWS = 2_000
"""The most rows of the table, those of the fronts first; the chart has every point that fits."""
_HEADER = (
    "point", "GPU", "precision", "parameters", "step time", "ready", "memory", "on the front", "faster"
)  # fmt: skip
_NUMBERS = frozenset({"parameters", "step time", "ready", "memory"})


def _page(sweep: Sweep) -> str:
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
{_page_table(sweep, fronts)}
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


def _page_table(sweep: Sweep, fronts: list[frozenset[int]]) -> str:
    rows = list(_cells(sweep, fronts))
    left_out = (
        f"<p>{len(rows) - PAGE_ROWS} rows left out: --format csv has all.</p>"
        if len(rows) > PAGE_ROWS
        else ""
    )
    return overview_section("Points", _HEADER, _NUMBERS, rows[:PAGE_ROWS], left_out)


def _cells(sweep: Sweep, fronts: list[frozenset[int]]) -> Iterator[list[Cell]]:
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
