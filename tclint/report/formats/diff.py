"""A diff of two reports for people (text), for pull requests (Markdown) and for machines (JSON)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.markup import code, prose, shortened, table, text
from tclint.core.text import printable
from tclint.core.units import percent_text, plural
from tclint.report.comparison import ChangedFinding, Diff, Json, best_gain_percent, place
from tclint.report.formats.json import clean
from tclint.report.gate import GATED, MetricDelta, change_text, gated_text, moved_text, value_text

FORMATS = ("text", "markdown", "json")

LISTED_AT_MOST = 100
"""The most lines of each kind in Markdown: a comment on a pull request is limited to 65,536 characters."""
MARKDOWN_CHARACTERS = 60_000
MESSAGE_CHARACTERS = 300


def render_diff(found: Diff, format_name: str) -> str:
    """The diff in one of FORMATS, ending in a newline."""
    if format_name == "json":
        return json.dumps(clean(to_dict(found)), indent=2, allow_nan=False) + "\n"
    if format_name == "markdown":
        return _markdown(found)
    return "".join(f"{printable(line)}\n" for line in _text(found))


def to_dict(found: Diff) -> dict[str, Any]:
    """The diff as plain values."""
    return {
        "new": [dict(finding) for finding in found.new],
        "fixed": [dict(finding) for finding in found.fixed],
        "changed": [
            {"what": list(change.what), "old": dict(change.old), "new": dict(change.new)}
            for change in found.changed
        ],
        "unchanged": found.unchanged,
        "metrics": [asdict(delta) for delta in found.metrics],
        "notes": list(found.notes),
        "regressions": list(found.regressions),
        "exit_code": found.exit_code,
    }


def headline(found: Diff) -> str:
    """'failed: 1 regression; 2 new, 1 fixed, 0 changed, 14 unchanged findings'."""
    counts = f"{len(found.new)} new, {len(found.fixed)} fixed, {len(found.changed)} changed"
    verdict = f"failed: {plural(len(found.regressions), 'regression')}" if found.regressions else "passed"
    return f"{verdict}; {counts}, {found.unchanged} unchanged findings"


def _text(found: Diff) -> Iterator[str]:
    yield headline(found)
    for regression in found.regressions:
        yield f"  regression: {regression}"
    for where, deltas in _models(found):
        if not any(delta.is_regression for delta in deltas):
            yield f"  {where}: {', '.join(gated_text(delta) for delta in deltas)}"
    for note in found.notes:
        yield f"note: {note}"
    for mark, findings in (("+", found.new), ("-", found.fixed)):
        for finding in findings:
            yield f"{mark} {_finding_line(finding)}"
    for change in found.changed:
        yield f"~ {_finding_line(change.new)}"
        yield f"    {_change(change)}"
    others = [delta for delta in found.metrics if not delta.is_gated]
    if others:
        yield "for information:"
    for delta in others:
        yield f"  {_metric_name(delta)}: {moved_text(delta)}"


def _finding_line(finding: Json) -> str:
    return f"{place(finding)}: {finding['level']}: {finding['code']} {finding['name']}: {finding['message']}"


def _change(change: ChangedFinding) -> str:
    parts = []
    if "level" in change.what:
        parts.append(f"level {change.old['level']} -> {change.new['level']}")
    if "gain" in change.what:
        parts.append(f"gain {_gain(change.old)} -> {_gain(change.new)}")
    if "message" in change.what:
        parts.append(f"was: {change.old['message']}")
    return "; ".join(parts)


def _gain(finding: Json) -> str:
    best = best_gain_percent(finding)
    return "unknown" if best is None else percent_text(best)


def _metric_name(delta: MetricDelta) -> str:
    where = ", ".join(part for part in (delta.target, delta.where) if part)
    return f"{delta.name} of {where}" if where else delta.name


def _models(found: Diff) -> list[tuple[str, list[MetricDelta]]]:
    """Models whose step, readiness or memory moved, each on a GPU, with what moved."""
    moved: dict[str, list[MetricDelta]] = defaultdict(list)
    for delta in found.metrics:
        if delta.is_gated:
            moved[f"{delta.target}, {delta.where}"].append(delta)
    return [
        (where, sorted(deltas, key=lambda delta: list(GATED).index(delta.name)))
        for where, deltas in moved.items()
    ]


def _markdown(found: Diff) -> str:
    lines = [f"## tclint: {headline(found)}", ""]
    if found.regressions:
        lines += ["### Regressions", "", *_items(found.regressions), ""]
    if models := _models(found):
        rows = [
            [code(deltas[0].target or ""), text(deltas[0].where), *_cells(deltas)] for _, deltas in models
        ]
        header = ["Model", "On", *(name.capitalize() for name in GATED.values())]
        lines += ["### Models", "", *table(header, rows[:LISTED_AT_MOST]), ""]
    for title, findings in (("New", found.new), ("Fixed", found.fixed)):
        if findings:
            lines += [f"### {title}", "", *_items([_finding_line(finding) for finding in findings]), ""]
    if found.changed:
        changes = [f"{_finding_line(change.new)} ({_change(change)})" for change in found.changed]
        lines += ["### Changed", "", *_items(changes), ""]
    if found.notes:
        lines += ["### Notes", "", *_items(found.notes), ""]
    others = [delta for delta in found.metrics if not delta.is_gated][:LISTED_AT_MOST]
    if others:
        rows = [
            [
                text(delta.name),
                code(delta.target or ""),
                text(delta.where),
                text(value_text(delta, delta.old)),
                text(value_text(delta, delta.new)),
                text(change_text(delta)),
            ]
            for delta in others
        ]
        header = ["Metric", "Model", "On", "Before", "After", "Change"]
        lines += ["### For information", "", *table(header, rows, right=frozenset({3, 4, 5})), ""]
    return _fitting(lines)


def _cells(deltas: Sequence[MetricDelta]) -> Iterator[str]:
    moved = {delta.name: delta for delta in deltas}
    for name in GATED:
        yield (
            text(moved_text(moved[name]) + (", worse" if moved[name].is_regression else ""))
            if name in moved
            else ""
        )


def _items(sentences: Sequence[str]) -> list[str]:
    items = [f"- {prose(shortened(sentence, MESSAGE_CHARACTERS))}" for sentence in sentences[:LISTED_AT_MOST]]
    if len(sentences) > LISTED_AT_MOST:
        items.append(f"- and {len(sentences) - LISTED_AT_MOST} more")
    return items


def _fitting(lines: Sequence[str]) -> str:
    """As many whole lines as a comment on a pull request holds."""
    kept: list[str] = []
    room = MARKDOWN_CHARACTERS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept += ["", f"{len(lines) - len(kept)} more lines do not fit here."]
            break
        kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"
