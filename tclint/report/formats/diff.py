"""A diff of two reports for people (text), for pull requests (Markdown) and for machines (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.markup import code, prose, shortened, table, text
from tclint.core.text import printable
from tclint.core.units import count, flops_text, percent_text, plural, significant, time_text
from tclint.report.comparison import ChangedFinding, Diff, Document, MetricDelta, best_gain_percent, place
from tclint.report.formats.json import clean

FORMATS = ("text", "markdown", "json")

LISTED_AT_MOST = 100
"""Of each kind in Markdown, which a comment on a pull request limits to 65,536 characters."""
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
    """'2 new, 1 fixed, 0 changed, 14 unchanged findings; 1 regression'."""
    counts = f"{len(found.new)} new, {len(found.fixed)} fixed, {len(found.changed)} changed"
    verdict = plural(len(found.regressions), "regression") if found.regressions else "no regressions"
    return f"{counts}, {found.unchanged} unchanged findings; {verdict}"


def _text(found: Diff) -> Iterator[str]:
    for mark, findings in (("+", found.new), ("-", found.fixed)):
        for finding in findings:
            yield f"{mark} {_finding_line(finding)}"
    for change in found.changed:
        yield f"~ {_finding_line(change.new)}"
        yield f"    {_change(change)}"
    for delta in found.metrics:
        mark = "!" if delta.is_regression else " "
        yield f"{mark} {_metric_name(delta)}: {_moved(delta)}"
    for note in found.notes:
        yield f"note: {note}"
    yield headline(found)
    for regression in found.regressions:
        yield f"  regression: {regression}"


def _finding_line(finding: Document) -> str:
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


def _gain(finding: Document) -> str:
    best = best_gain_percent(finding)
    return "unknown" if best is None else percent_text(best)


def _metric_name(delta: MetricDelta) -> str:
    where = ", ".join(part for part in (delta.target, delta.where) if part)
    return f"{delta.name} of {where}" if where else delta.name


def _moved(delta: MetricDelta) -> str:
    moved = f"{_value(delta, delta.old)} -> {_value(delta, delta.new)}"
    return moved if delta.change is None else f"{moved} ({_change_text(delta)})"


def _change_text(delta: MetricDelta) -> str:
    """'+3.2 %', '-4 points'; '' where one side has no value."""
    if delta.change is None:
        return ""
    sign, unit = "+" if delta.change > 0 else "", " points" if delta.is_share else " %"
    return f"{sign}{significant(delta.change)}{unit}"


def _value(delta: MetricDelta, value: float | None) -> str:
    if value is None:
        return "unavailable"
    if delta.unit == "us":
        return time_text(value)
    if delta.unit == "percent":
        return percent_text(value)
    if delta.unit == "FLOP":
        return flops_text(value)
    if delta.unit == "bytes":
        return f"{significant(value / 2**30)} GiB"
    return count(int(value)) if delta.unit == "count" else f"{significant(value)}x"


def _markdown(found: Diff) -> str:
    lines = [f"## tclint: {headline(found)}", ""]
    if found.regressions:
        lines += ["### Regressions", "", *_items(found.regressions), ""]
    if found.metrics:
        rows = [
            [
                text(delta.name),
                code(delta.target or ""),
                text(delta.where),
                text(_value(delta, delta.old)),
                text(_value(delta, delta.new)),
                text(_change_text(delta) + (", worse" if delta.is_regression else "")),
            ]
            for delta in found.metrics[:LISTED_AT_MOST]
        ]
        header = ["Metric", "Model", "On", "Before", "After", "Change"]
        lines += ["### Metrics", "", *table(header, rows, right=frozenset({3, 4, 5})), ""]
    for title, findings in (("New", found.new), ("Fixed", found.fixed)):
        if findings:
            lines += [f"### {title}", "", *_items([_finding_line(finding) for finding in findings]), ""]
    if found.changed:
        changes = [f"{_finding_line(change.new)} ({_change(change)})" for change in found.changed]
        lines += ["### Changed", "", *_items(changes), ""]
    if found.notes:
        lines += ["### Notes", "", *_items(found.notes), ""]
    return _fitting(lines)


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
