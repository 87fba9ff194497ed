"""Markdown, as for a GitHub job summary: models and their times, then the findings that fit."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tclint.core.errors import UsageError
from tclint.core.finding import Finding
from tclint.core.markup import code, prose, row, shortened, table, text
from tclint.core.text import printable
from tclint.core.units import flops_text, percent_text, plural, significant
from tclint.engine.report import Entry, Report
from tclint.report.step_text import gap_text
from tclint.report.words import (
    counts_text,
    doubts,
    gain_text,
    models_text,
    not_listed,
    skipped_word,
    step_text,
)

SUMMARY_BYTES = 2**20
"""What GitHub takes of one step (Workflow commands, 'Step isolation and limits'); above, it takes nothing."""

MESSAGE_CHARACTERS = 600
NAME_CHARACTERS = 200
LISTED_AT_MOST = 50
"""Assumptions, gaps, errors and skipped files beyond this are counted."""

_TAIL_BYTES = 400
"""Kept free for the sentence that says what was left out."""


def render(report: Report, budget_bytes: int = SUMMARY_BYTES) -> str:
    """The report in at most `budget_bytes` of UTF-8; findings that do not fit are counted."""
    head = "\n".join(_head(report)) + "\n"
    tail = "\n".join(_notes(report))
    tail = f"\n{tail}\n" if tail else ""
    if _bytes(head) + _bytes(tail) + _TAIL_BYTES > budget_bytes:
        # Where not even the table of models fits, only the count is shown.
        short = f"## tclint: {counts_text(report)}\n\nThe details do not fit into this summary.\n"
        return short if _bytes(short) <= budget_bytes else ""
    return head + _findings(report, budget_bytes - _bytes(head) - _bytes(tail)) + tail


def append_summary(report: Report, file: str) -> None:
    """Add the report to a job summary that earlier commands of the step may have begun.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        used_bytes = os.path.getsize(file) if os.path.exists(file) else 0
        content = render(report, SUMMARY_BYTES - used_bytes - 1)
        with open(file, "a", encoding="utf-8", errors="backslashreplace", newline="\n") as summary:
            if content:
                summary.write(("\n" if used_bytes else "") + content)
    except OSError as error:
        raise UsageError(
            f"Cannot write the job summary {printable(file)!r}: {error.strerror or error}; "
            "unset GITHUB_STEP_SUMMARY to do without it."
        ) from error


def _bytes(content: str) -> int:
    return len(content.encode("utf-8", "backslashreplace"))


def _head(report: Report) -> Iterator[str]:
    yield f"## tclint: {counts_text(report)}"
    counted = not_listed(report)
    if counted:
        yield f"\n{'; '.join(counted)}."
    for doubt in doubts(report)[:LISTED_AT_MOST]:
        yield f"\n{_message(doubt)}"
    if report.errors:
        yield "\n### Not linted\n"
        for error in report.errors[:LISTED_AT_MOST]:
            yield f"- {_name(error.target)}: {_message(error.message)}"
        if len(report.errors) > LISTED_AT_MOST:
            yield f"- and {len(report.errors) - LISTED_AT_MOST} more"
    if report.entries:
        yield "\n### Models\n"
        header = ["Model", "GPU", "Precision", "Step", "Ready", "On Tensor Cores", "Ceiling", "Forward"]
        rows = [row for entry in report.entries for row in _entry_rows(entry)]
        yield from table(header, rows, right=frozenset({3, 4, 5, 6, 7}))


def _entry_rows(entry: Entry) -> Iterator[list[str]]:
    for gpu, metrics in entry.metrics.items():
        bounded = 0 < metrics.amdahl_ceiling < 1000
        yield [
            _name(entry.target),
            text(gpu),
            f"{text(entry.precision)}, {text(entry.mode)}",
            text(step_text(metrics)),
            text(percent_text(metrics.readiness_percent)),
            text(percent_text(metrics.tensor_core_time_percent)),
            f"{significant(metrics.amdahl_ceiling, 2)}x" if bounded else "none",
            text(flops_text(entry.flops)),
        ]


def _findings(report: Report, budget_bytes: int) -> str:
    if not report.findings:
        return ""
    header = ["Level", "Rule", "Where", "Finding", "Gain"]
    lines = ["", "### Findings", "", *table(header, [], right=frozenset({4}))]
    budget_bytes -= _bytes("\n".join(lines)) + _TAIL_BYTES
    shown = 0
    for finding in report.findings:
        line = row(_cells(finding))
        budget_bytes -= _bytes(line) + 1
        if budget_bytes < 0:
            break
        lines.append(line)
        shown += 1
    left_out = len(report.findings) - shown
    if left_out:
        lines += ["", f"{plural(left_out, 'finding')} of lower rank left out: a summary holds 1 MiB."]
    return "\n".join(lines) + "\n"


def _cells(finding: Finding) -> list[str]:
    where = _name(f"{finding.location.path}:{finding.location.line}")
    if finding.location.module_path:
        where += f"<br>{_name(finding.location.module_path)}"
    if finding.targets:
        where += f"<br>in {_name(models_text(finding))}"
    message = _message(finding.message)
    if finding.fix is not None:
        message += f"<br>Fix: {_message(finding.fix.advice)}"
    return [
        finding.level,
        f"{text(finding.code)} {text(finding.name)}",
        where,
        message,
        text(gain_text(finding)),
    ]


def _notes(report: Report) -> Iterator[str]:
    notes = [
        f"{_name(entry.target)}: assumed {_message(assumption.what)} ({assumption.count}x)"
        for entry in report.entries
        for assumption in entry.assumptions
        if not assumption.is_doubtful
    ]
    notes += [
        f"{_name(entry.target)}: not priced: {_message(gap_text(gap))}"
        for entry in report.entries
        for gap in entry.not_analysed
    ]
    notes += [f"{_name(item.path)} {skipped_word(item)}: {_message(item.reason)}" for item in report.skipped]
    if not notes:
        return
    yield f"<details><summary>{plural(len(notes), 'assumption or gap', 'assumptions and gaps')}</summary>\n"
    yield from (f"- {note}" for note in notes[:LISTED_AT_MOST])
    if len(notes) > LISTED_AT_MOST:
        yield f"- and {len(notes) - LISTED_AT_MOST} more"
    yield "\n</details>"


def _name(value: str) -> str:
    return code(shortened(value, NAME_CHARACTERS))


def _message(value: str) -> str:
    return prose(shortened(" ".join(value.split()), MESSAGE_CHARACTERS))
