"""Findings as the HTML report's script reads them: text, source lines, and what fixes change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Any

from tclint.core.finding import Edit, Effect, Finding, Fix, Location
from tclint.core.markup import shortened
from tclint.core.units import hours_text, percent_text, time_text, uncertainty_text
from tclint.engine.report import Entry
from tclint.report.excerpt import TAB_COLUMNS, SourceLines, marked
from tclint.report.html.markup import signs
from tclint.report.html.profile import Texts
from tclint.report.words import models_text

CONTEXT_LINES = 2
MESSAGE_CHARACTERS = 2_000
LINE_CHARACTERS = 300
EVIDENCE_CHARACTERS = 300
LISTED_AT_MOST = 20
"""Related places and facts of one finding."""
DIFF_LINES = 30


def findings_json(
    findings: Sequence[Finding],
    entries: Mapping[str, Entry],
    texts: Texts,
    lines: SourceLines,
    *,
    with_source: bool,
) -> list[dict[str, Any]]:
    """One JSON object per finding; all text is a position in `texts`, a model its number in `entries`."""
    numbers = {target: number for number, target in enumerate(entries)}
    return [
        {
            **_finding(finding, entries.get(finding.target or ""), texts, lines, with_source=with_source),
            "models": [numbers[target] for target in finding.targets if target in numbers],
        }
        for finding in findings
    ]


def _finding(
    finding: Finding, entry: Entry | None, texts: Texts, lines: SourceLines, *, with_source: bool
) -> dict[str, Any]:
    location, best = finding.location, finding.effect.best_gain_percent
    found: dict[str, Any] = {
        "level": finding.level,
        "code": texts.of(finding.code),
        "name": texts.of(finding.name),
        "confidence": finding.confidence,
        "message": texts.of(_said(finding.message)),
        "place": texts.of(_place(location)),
        "layer": texts.of(location.module_path or ""),
        "target": texts.of(models_text(finding)),
        "gain": texts.of("" if best is None or not math.isfinite(best) else percent_text(best)),
        "effect": _effect(finding.effect, entry, texts),
        "fingerprint": finding.fingerprint,
    }
    if finding.is_about_speed and finding.effect.best_gain_percent is None:
        found["unknown"] = texts.of(_said(finding.effect.unknown or "not priced"))
    if finding.related:
        found["related"] = [
            [texts.of(_place(item.location)), texts.of(_said(item.message))]
            for item in finding.related[:LISTED_AT_MOST]
        ]
    if finding.evidence:
        facts = list(finding.evidence.items())[:LISTED_AT_MOST]
        found["evidence"] = [
            [texts.of(shortened(str(value), EVIDENCE_CHARACTERS)) for value in fact] for fact in facts
        ]
    if finding.fix is not None:
        found["advice"] = texts.of(_said(finding.fix.advice))
        found["safety"] = finding.fix.safety
        if with_source and finding.fix.edits:
            found["changes"] = _changes(finding.fix, texts, lines)
    if with_source:
        found["source"] = _source(location, texts, lines)
    return found


def _said(sentence: str) -> str:
    return signs(shortened(sentence, MESSAGE_CHARACTERS))


def _place(location: Location) -> str:
    return f"{location.path}:{location.line}"


def _effect(effect: Effect, entry: Entry | None, texts: Texts) -> list[list[Any]]:
    """[GPU, gain, share of the step, the step before and after, calibrated] per GPU."""
    if effect.unknown is not None:
        return []
    rows = []
    for gpu, priced in effect.per_gpu.items():
        metrics = None if entry is None else entry.metrics.get(gpu)
        steps = ""
        if metrics is not None:
            after_us = metrics.step_time_us - priced.gain_us
            steps = f"{time_text(metrics.step_time_us)} -> {time_text(after_us)}"
        if priced.run_gpu_hours is not None and priced.run_gpu_hours > 0.0:
            steps += f", {hours_text(priced.run_gpu_hours, priced.run_price)} less a run"
        share = f"{percent_text(priced.gain_percent)} {uncertainty_text(priced.uncertainty_percent)}"
        rows.append(
            [
                texts.of(gpu),
                texts.of(time_text(priced.gain_us)),
                texts.of(signs(share)),
                texts.of(signs(steps)),
                int(priced.calibrated),
            ]
        )
    return rows


def _source(location: Location, texts: Texts, lines: SourceLines) -> list[list[int]]:
    """[number, text] for lines around the place, [number, before, marked, after] for its own."""
    own = lines.line(location.path, location.line)
    if own is None or not own.strip():
        return []
    rows = []
    for number in range(max(location.line - CONTEXT_LINES, 1), location.line + CONTEXT_LINES + 1):
        line = lines.line(location.path, number)
        if line is None:
            continue
        if number == location.line:
            before, place, after = marked(location, line)
            if location.end_column is None:
                # Only where it begins is known: a mark on one character would be lost on a page.
                place, after = place + after, ""
            if len(before) > LINE_CHARACTERS:
                before = "..." + before[-LINE_CHARACTERS // 3 :]
            shown = [before, shortened(place, LINE_CHARACTERS), shortened(after, LINE_CHARACTERS)]
        else:
            shown = [_line(line)]
        rows.append([number, *(texts.of(part) for part in shown)])
    return rows


def _line(line: str) -> str:
    return shortened(line.expandtabs(TAB_COLUMNS), LINE_CHARACTERS)


def _changes(fix: Fix, texts: Texts, lines: SourceLines) -> list[list[Any]]:
    """[place, removed lines, added lines] for every stretch of a file that the edits touch."""
    changes = []
    for edits in _stretches(fix.edits):
        path, first, last = edits[0].path, edits[0].start[0], max(edit.end[0] for edit in edits)
        before = [lines.line(path, number) for number in range(first, last + 1)]
        if before and before[-1] is None:
            before[-1] = ""  # an edit may end at the start of the line after the last one
        if last - first > DIFF_LINES or any(line is None for line in before):
            continue
        known = [line or "" for line in before]
        removed, added = _differing(known, _edited(known, edits, first))
        changes.append(
            [
                texts.of(f"{path}:{first}"),
                [texts.of(_line(line)) for line in removed],
                [texts.of(_line(line)) for line in added[:DIFF_LINES]],
            ]
        )
    return changes


def _stretches(edits: Sequence[Edit]) -> list[list[Edit]]:
    found: list[list[Edit]] = []
    for edit in sorted(edits, key=lambda edit: (edit.path, edit.start)):
        last = found[-1][-1] if found else None
        if last is not None and last.path == edit.path and edit.start[0] <= last.end[0]:
            found[-1].append(edit)
        else:
            found.append([edit])
    return found


def _edited(lines: Sequence[str], edits: Sequence[Edit], first: int) -> list[str]:
    """The lines, the first of which has the number `first`, after the edits."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    text = "\n".join(lines)
    for edit in reversed(edits):
        start, end = (starts[line - first] + column - 1 for line, column in (edit.start, edit.end))
        text = text[:start] + edit.replacement + text[end:]
    return text.split("\n")


def _differing(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """The lines of both that the other has not."""
    marked = list(unified_diff(before, after, n=0, lineterm=""))[2:]
    return [line[1:] for line in marked if line[0] == "-"], [line[1:] for line in marked if line[0] == "+"]
