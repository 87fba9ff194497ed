"""The part of the HTML report that needs no script: models with their times, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tclint.analysis.what_if.comparisons import Comparison
from tclint.core.document import Table, html_table
from tclint.core.text import listed
from tclint.core.units import (
    bytes_text,
    count,
    flops_text,
    percent_text,
    plural,
    significant,
    time_text,
    uncertainty_text,
)
from tclint.engine.report import Entry, Metrics, PlannedFix, Report
from tclint.report.html.markup import Cell, overview_section, signs, text
from tclint.report.layers import layer_table, layers
from tclint.report.overview import FEW_MODELS, HEADER, ModelRow, header, rows
from tclint.report.step_text import comparison_table, entry_lines, gap_text, memory_parts
from tclint.report.words import counts_text, doubts, not_listed, step_text

Part = tuple[str, float, str]
"""Name, size, and the size in words."""


def phases(metrics: Metrics) -> str:
    """Forward, backward and optimizer as shares of the step."""
    times = (
        ("forward", metrics.forward_time_us),
        ("backward", metrics.backward_time_us),
        ("optimizer", metrics.optimizer_time_us),
    )
    return _stacked("Phases of the step", [(name, time_us, time_text(time_us)) for name, time_us in times])


def memory(metrics: Metrics) -> str:
    """What the memory of the step is needed for."""
    if metrics.memory is None:
        return ""
    parts = [(name, float(size), bytes_text(size)) for name, size in memory_parts(metrics.memory)]
    return _stacked(f"Memory, {bytes_text(metrics.memory.total_bytes)}", parts)


def fixes(metrics: Metrics, plan: Sequence[PlannedFix]) -> str:
    """The step as it is, after each fix of the plan, or with the only one made."""
    steps = [("as it is", metrics.step_time_us)]
    steps += [
        (f"{number}. {fix.code} {fix.name}", fix.step_time_us[metrics.gpu])
        for number, fix in enumerate(plan, start=1)
        if metrics.gpu in fix.step_time_us
    ]
    if len(steps) < 2 and metrics.step_time_fixed_us is not None:
        steps.append(("with the fixes made", metrics.step_time_fixed_us))
    longest = max(time_us for _, time_us in steps)
    if len(steps) < 2 or not math.isfinite(longest) or longest <= 0.0:
        return ""
    rows = "".join(
        f"<dt>{text(name)}</dt><dd>{_bar([time_us / longest])} {text(time_text(time_us))}</dd>"
        for name, time_us in steps
    )
    return f"<h4>The step, fix by fix</h4><dl class='steps'>{rows}</dl>"


def _stacked(title: str, parts: Sequence[Part]) -> str:
    """One bar of all parts, and a legend with the size of each."""
    known = [part for part in parts if math.isfinite(part[1]) and part[1] > 0.0]
    whole = sum(size for _, size, _ in known)
    if not known:
        return ""
    legend = "".join(
        f"<dt>{_swatch(index)}{text(name)}</dt><dd>{text(said)}</dd>"
        for index, (name, _, said) in enumerate(known)
    )
    bar = _bar([size / whole for _, size, _ in known])
    return f"<h4>{text(title)}</h4>{bar}<dl>{legend}</dl>"


def _bar(shares: Sequence[float]) -> str:
    """Parts of a whole side by side; whoever cannot see them reads the numbers beside it."""
    at = 0.0
    drawn = []
    for index, share in enumerate(shares):
        drawn.append(f"<rect class='part-{index}' x='{at:.2f}' width='{100 * share:.2f}' height='10'></rect>")
        at += 100 * share
    return (
        "<svg class='parts' viewBox='0 0 100 10' preserveAspectRatio='none' aria-hidden='true'>"
        f"{''.join(drawn)}</svg>"
    )


def _swatch(index: int) -> str:
    return (
        "<svg class='swatch' viewBox='0 0 10 10' aria-hidden='true'>"
        f"<rect class='part-{index}' width='10' height='10'></rect></svg>"
    )


SECTIONS_BYTES = 2_000_000
"""The limit for the sections of all models together; models that do not fit are rows of the table only."""
LISTED_AT_MOST = 200
"""Lines of a list; the others are counted."""
_NUMBERS = frozenset({"predicted step", "ready", "best gain", "findings"})
"""Columns of the overview that are right-aligned."""


def heading(report: Report) -> str:
    """What was found, in one paragraph."""
    parts = [counts_text(report), *not_listed(report)]
    if report.errors:
        parts.append(f"{plural(len(report.errors), 'target')} failed")
    said = "".join(f"<p>{text(signs(doubt))}</p>" for doubt in doubts(report)[:LISTED_AT_MOST])
    return f"<p class='counts'>{text('; '.join(parts))}.</p>{said}"


def overview(report: Report, sections: int) -> str:
    """A table of model x GPU, where there are several models; the page's script lets it be sorted.

    Args:
        sections: how many models have a section that their names link to.
    """
    if len(report.entries) < 2:
        return ""
    shown = header(report)
    cells = (_cells(row, shown, row.number < sections) for row in rows(report))
    return overview_section("Models", shown, _NUMBERS, cells)


def _cells(row: ModelRow, shown: Sequence[str], linked: bool) -> list[Cell]:
    sizes = {
        "predicted step": row.metrics.step_time_us,
        "ready": row.metrics.readiness_percent,
        "best gain": row.best_gain_percent,
    }
    cells = [
        (text(cell), sizes.get(name)) for name, cell in zip(HEADER, row.cells, strict=True) if name in shown
    ]
    if linked:
        cells[0] = f"<a href='#model-{row.number + 1}'>{cells[0][0]}</a>", None
    return cells


def models(report: Report, room: int) -> list[str]:
    """A section per model, with a card per GPU, as far as they fit into so many bytes; closed where there are
    many."""
    closed = len(report.entries) > FEW_MODELS
    sections: list[str] = []
    room = min(room, SECTIONS_BYTES)
    for number, entry in enumerate(report.entries, start=1):
        section = _model(entry, number, closed=closed, several=len(report.entries) > 1)
        room -= len(section)
        if room < 0:
            break
        sections.append(section)
    return sections


def _model(entry: Entry, number: int, *, closed: bool, several: bool) -> str:
    facts = [
        entry.model,
        entry.mode,
        entry.precision,
        f"{count(entry.parameters)} parameters",
        f"{flops_text(entry.flops)} forward",
        plural(entry.op_count, "op"),
    ]
    if entry.is_worst_case:
        facts.append("the inputs on which Tensor Cores are used least")
    inputs = ", ".join(
        f"{name or 'input'} {dtype}[{', '.join(str(size) for size in shape)}]"
        for name, dtype, shape in entry.inputs
    )
    lines = "".join(f"<li>{text(signs(line))}</li>" for line in entry_lines(entry))
    cards = "".join(_card(metrics, entry) for metrics in entry.metrics.values())
    title = f"<h2 tabindex='-1'>{text(entry.target)}</h2>"
    back = "<p class='back' hidden><a href='#overview'>All models</a></p>" if several else ""
    # A browser opens a closed section when somebody follows a link into it.
    begin = f"<details><summary>{title}</summary>" if closed else title
    end = "</details>" if closed else ""
    return (
        f"<section class='model'>{back}{begin}<div id='model-{number}'>"
        f"<p class='facts'>{text(' · '.join(fact for fact in facts if fact))}</p>"
        + (f"<p class='facts'>{text(inputs)}</p>" if inputs else "")
        + f"<div class='cards'>{cards}</div>"
        + (f"<details class='words'><summary>In words</summary><ul>{lines}</ul></details>" if lines else "")
        + f"{''.join(_comparison(comparison) for comparison in entry.comparisons)}{_layers(entry)}</div>{end}"
        "</section>"
    )


_LAYERS_AT_MOST = 400


def _layers(entry: Entry) -> str:
    """The table of its layers, closed."""
    if entry.settings is None or entry.graph is None:
        return ""
    steps_us = {gpu: metrics.step_time_us for gpu, metrics in entry.metrics.items()}
    found = layers(entry, entry.settings)
    table, notes = layer_table(found[:_LAYERS_AT_MOST], steps_us)
    if not table.rows:
        return ""
    more = [f"and {len(found) - _LAYERS_AT_MOST} more"] if len(found) > _LAYERS_AT_MOST else []
    return f"<details class='words'><summary>Layers</summary>{_with_notes(table, [*notes, *more])}</details>"


def _comparison(comparison: Comparison) -> str:
    """The step under other circumstances, as `--compare` asked for it."""
    title, table, notes = comparison_table(comparison)
    if comparison.unavailable is not None:
        notes = [f"none: {comparison.unavailable}"]
    return f"<h3>{text(title[:1].upper() + title[1:])}</h3>{_with_notes(table, notes)}"


def _with_notes(table: Table, notes: Sequence[str]) -> str:
    items = "".join(f"<li>{text(signs(note))}</li>" for note in notes)
    shown = f"<div class='scroll'>{html_table(table, text)}</div>"
    return shown + (f"<ul class='notes'>{items}</ul>" if items else "")


def _card(metrics: Metrics, entry: Entry) -> str:
    bounded = 0 < metrics.amdahl_ceiling < 1000
    rows = [
        (
            "on Tensor Cores",
            percent_text(metrics.tensor_core_time_percent),
            "Share of the step in kernels that use them at all",
        ),
        (
            "ceiling",
            f"{significant(metrics.amdahl_ceiling, 2)}\N{MULTIPLICATION SIGN}" if bounded else "none",
            "Largest speed-up if only the work on Tensor Cores got faster",
        ),
    ]
    facts = "".join(
        f"<dt title='{text(meaning)}'>{text(name)}</dt><dd>{text(value)}</dd>"
        for name, value, meaning in rows
    )
    drawn = phases(metrics) if entry.mode == "train" else ""
    drawn += fixes(metrics, entry.plan) + memory(metrics)
    ready = metrics.readiness_percent
    error = signs(uncertainty_text(metrics.uncertainty_percent))
    if metrics.step_time_range_us is not None:
        error = "depending on what was guessed"
    meter = f"<meter min='0' max='100' value='{ready:.1f}'></meter>" if math.isfinite(ready) else ""
    note = (
        "" if metrics.calibrated else "<p class='facts'>Constants of another GPU or precision stand in.</p>"
    )
    return (
        f"<article class='card'><h3>{text(metrics.gpu)}</h3>"
        f"<div class='big'><span><b>{text(step_text(metrics))}</b> a step "
        f"<small>{text(error)}</small></span>"
        "<span title='Share of the step in operators that run efficiently on Tensor Cores'>"
        f"<b>{text(percent_text(ready))}</b> ready</span></div>{meter}<dl>{facts}</dl>{drawn}{note}"
        "</article>"
    )


def left_out(report: Report) -> str:
    """Failures, gaps, assumptions, skipped files."""
    errors = [f"{error.target}: {error.message}" for error in report.errors]
    gaps = [f"{entry.target}: {gap_text(gap)}" for entry in report.entries for gap in entry.not_analysed]
    assumed: dict[str, list[str]] = {}
    for entry in report.entries:
        for assumption in entry.assumptions:
            if not assumption.is_doubtful:
                times = f" ({assumption.count}x)" if assumption.count > 1 else ""
                assumed.setdefault(f"{assumption.what}{times}", []).append(entry.target)
    several = len(report.entries) > 1
    skipped = [f"{item.path}: {item.reason}" for item in report.skipped]
    parts = [
        *_list("Targets that failed", errors),
        *_list("Ops without a price", gaps),
        *_list(
            "Assumed", [_of_models(what, of, report) if several else what for what, of in assumed.items()]
        ),
        *_list("Files that were not read, or not to the end", skipped),
    ]
    return "".join(parts) or "<p>Everything was analysed, and nothing had to be assumed.</p>"


_MODELS_AT_MOST = 3


def _of_models(what: str, targets: Sequence[str], report: Report) -> str:
    """What is assumed, and of which models."""
    models = list(dict.fromkeys(targets))
    if len(models) == len({entry.target for entry in report.entries}):
        return f"{what}: all {len(models)} models"
    return f"{what}: {listed(models, _MODELS_AT_MOST)}"


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"<h3>{text(title)}</h3><ul>"
    yield from (f"<li>{text(signs(line))}</li>" for line in lines[:LISTED_AT_MOST])
    if len(lines) > LISTED_AT_MOST:
        yield f"<li>and {len(lines) - LISTED_AT_MOST} more</li>"
    yield "</ul>"
