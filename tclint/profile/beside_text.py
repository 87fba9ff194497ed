"""A trace beside a model, as text, as Markdown, and in the JSON report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.finding import Finding
from tclint.core.markup import code, prose, text
from tclint.core.markup import table as markdown_table
from tclint.core.table import table
from tclint.core.text import listed, printable, wrapped
from tclint.core.units import percent_text, plural, time_text
from tclint.cost.gpu.factors import factors_note
from tclint.profile.beside import POOR_MATCH_PERCENT, Beside, OpRow
from tclint.profile.json import trace_dict
from tclint.profile.ranks import BESIDE_HEADER, beside_rows

SHOWN_OPS = 15
HEADER = ("op", "measured", "predicted", "error")


def render(besides: Sequence[Beside], *, width: int, verbose: bool = False) -> str:
    """The section that stands behind the trace's own: of several ranks a table, and the first in full."""
    beside = besides[0]
    lines = [""]
    if len(besides) > 1:
        lines += [*table(BESIDE_HEADER, beside_rows(besides), indent=""), ""]
    lines += [*_wrapped(beside_head(beside), width), ""]
    rows = beside.rows if verbose else beside.rows[:SHOWN_OPS]
    lines.append(f"longest operators of the model ({len(rows)} of {len(beside.rows)}), a step")
    lines += table(HEADER, op_rows(rows))
    lines += ["", plural(len(beside.report.findings), "finding")]
    for finding in beside.report.findings:
        first = f"{_place(finding)} {finding.code} {finding.message}"
        lines += wrapped(printable(first), width, indent="  ", hanging="    ")
        lines += wrapped(printable(costs_text(beside, finding)), width, indent="    ", hanging="    ")
    return "\n".join(lines) + "\n"


def markdown(besides: Sequence[Beside]) -> str:
    """The same as a section of Markdown."""
    beside = besides[0]
    lines = ["", "## Beside the model", ""]
    if len(besides) > 1:
        by_rank = [[text(cell) for cell in row] for row in beside_rows(besides)]
        lines += [*markdown_table(list(BESIDE_HEADER), by_rank, right=frozenset({1, 2, 3, 4})), ""]
    lines += [*(f"- {text(line)}" for line in beside_head(beside)), ""]
    cells = [[text(cell) for cell in row] for row in op_rows(beside.rows)]
    lines += markdown_table(list(HEADER), cells, right=frozenset({1, 2, 3}))
    if beside.report.findings:
        lines += ["", "### Findings", ""]
        lines += [
            f"- {code(_place(finding))} {text(finding.code)} {prose(finding.message)} "
            f"{text(costs_text(beside, finding))}"
            for finding in beside.report.findings
        ]
    return "\n".join(lines) + "\n"


def add_to_report(besides: Sequence[Beside], document: dict[str, Any]) -> dict[str, Any]:
    """A JSON report with `measured` beside the `effect` of every finding, and the trace as 'profile'; of
    several ranks the first, the others in short."""
    beside = besides[0]
    gpu = beside.estimate.gpu.id
    for finding, entry in zip(beside.report.findings, document["findings"], strict=True):
        measured = beside.measured(finding)
        entry["measured"] = None if measured is None else {gpu: asdict(measured)}
    alignment = asdict(beside.alignment)
    del alignment["measured"]
    document["profile"] = {
        **trace_dict(beside.profile),
        "said": list(beside.said),
        "fix": beside.fix and asdict(beside.fix),
        "alignment": {**alignment, "matched_percent": beside.alignment.matched_percent},
        "ops": [
            {
                "index": row.op.index,
                "name": row.op.name,
                "module_path": row.op.module_path,
                "measured_us": row.measured_us,
                "predicted_us": row.predicted_us,
            }
            for row in beside.rows
        ],
        "ranks": [
            {
                "rank": one.profile.summary.rank,
                "path": one.profile.summary.path,
                "kernel_time_us": one.profile.summary.kernel_time_us,
                "communication_us": one.profile.summary.communication_us,
                "matched_percent": one.alignment.matched_percent,
                "measured_us": one.alignment.matched_us,
                "predicted_us": one.predicted_us,
            }
            for one in besides
        ],
    }
    return document


def beside_head(beside: Beside) -> Iterator[str]:
    """How much was matched, and the sums."""
    alignment = beside.alignment
    (entry,) = beside.report.entries
    yield f"beside {entry.target} ({', '.join(beside.said) or 'as given'}):"
    yield (
        f"matched {alignment.matched_ops} of {plural(alignment.ops, 'op')} of the model, "
        f"{alignment.matched_calls} of {plural(alignment.calls, 'operator')} of the trace, "
        f"{percent_text(alignment.matched_percent)} of the time of forward and backward"
        + (f"; {alignment.matched_by_name} by name and order alone" if alignment.matched_by_name else "")
    )
    if alignment.unmatched:
        names = [f"{name} ({time_text(time_us)})" for name, time_us in alignment.unmatched.items()]
        left_us = sum(alignment.unmatched.values())
        yield f"not matched, {time_text(left_us)} a step: {listed(names, 4)}"
    if alignment.matched_percent < POOR_MATCH_PERCENT:
        yield (
            "trace and model are hardly of the same run: give --batch, --input and --mode as in the recorded "
            "one, and the model as it was built for it"
        )
    if alignment.matched_us:
        yield (
            f"matched ops take {time_text(alignment.matched_us)} a step, predicted "
            f"{time_text(beside.predicted_us)} ({beside.error_percent:+.0f} %)"
        )
    if beside.fix is not None:
        yield beside.fix.text
    if beside.estimate.gpu.factors:
        yield f"assumed: {factors_note(beside.estimate.gpu.factors, beside.report.settings.calibration)}"


def op_rows(rows: list[OpRow]) -> list[tuple[str, ...]]:
    """Cells of a table under HEADER."""
    return [
        (
            f"{row.op.name} {row.op.module_path}".strip(),
            time_text(row.measured_us),
            time_text(row.predicted_us),
            f"{100.0 * (row.predicted_us / row.measured_us - 1.0):+.0f} %" if row.measured_us else "",
        )
        for row in rows
    ]


def _place(finding: Finding) -> str:
    return f"{finding.location.path}:{finding.location.line}"


def costs_text(beside: Beside, finding: Finding) -> str:
    """Predicted and measured, in one sentence."""
    effect = finding.effect.per_gpu.get(beside.estimate.gpu.id)
    predicted = "not priced"
    if effect is not None:
        predicted = f"predicted cost {time_text(effect.cost_us)}, gain {time_text(effect.gain_us)}"
    measured = beside.measured(finding)
    if measured is None:
        return f"{predicted}; not measured: no operator of the trace was matched."
    which = "the same ops"
    if measured.matched_ops < measured.ops:
        which = f"{measured.matched_ops} of {measured.ops} ops"
    return (
        f"{predicted}; measured {time_text(measured.time_us)} for {which} (predicted "
        f"{time_text(measured.predicted_us)})."
    )


def _wrapped(lines: Iterator[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from wrapped(printable(line), width, hanging="  ")
