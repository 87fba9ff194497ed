"""Many models on a screen: a table of model x GPU in place of everything about each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tclint.core.finding import Finding
from tclint.core.table import table
from tclint.core.units import percent_text
from tclint.engine.report import Entry, Metrics, Report
from tclint.report.words import step_and_error

FEW_MODELS = 3
"""As many are told one by one; more become a table."""

HEADER = ("model", "GPU", "precision", "predicted step", "ready", "best gain", "findings")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model on one GPU."""

    target: str
    number: int
    """The model's number in the report, from 0."""
    is_first: bool
    """Whether it is the first of its model's rows."""
    precision: str
    metrics: Metrics
    best_gain_percent: float | None
    """The best gain among the listed findings about the model; None: none of them is priced."""
    findings: int

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of HEADER."""
        metrics, gain = self.metrics, self.best_gain_percent
        return (
            self.target,
            metrics.gpu + ("" if metrics.calibrated else " *"),
            self.precision,
            step_and_error(metrics),
            percent_text(metrics.readiness_percent),
            "-" if gain is None else percent_text(gain),
            str(self.findings),
        )


def header(report: Report) -> tuple[str, ...]:
    """HEADER, without the precision where all models have the same."""
    several = len({entry.precision for entry in report.entries}) > 1
    return tuple(name for name in HEADER if several or name != "precision")


def rows(report: Report) -> Iterator[ModelRow]:
    """A row per model and GPU; first the model whose best fix gains most, and those without a price last."""
    of_models = defaultdict(list)
    for finding in report.findings:
        for target in finding.targets:
            of_models[target].append(finding)
    by_model = [
        list(_of_entry(number, entry, of_models[entry.target])) for number, entry in enumerate(report.entries)
    ]

    def gain(of_entry: list[ModelRow]) -> float:
        return max(
            (row.best_gain_percent for row in of_entry if row.best_gain_percent is not None), default=-1.0
        )

    return (row for of_entry in sorted(by_model, key=gain, reverse=True) for row in of_entry)


def _of_entry(number: int, entry: Entry, findings: list[Finding]) -> Iterator[ModelRow]:
    for index, (gpu, metrics) in enumerate(entry.metrics.items()):
        gains = [
            priced[gpu].gain_percent
            for finding in findings
            if gpu in (priced := finding.effect.per_gpu) and finding.effect.unknown is None
        ]
        best = max(gains, default=None)
        yield ModelRow(entry.target, number, not index, entry.precision, metrics, best, len(findings))


def overview(report: Report) -> Iterator[str]:
    """The table and its footnote; what belongs to a model as a whole stands in its first row."""
    shown = header(report)
    lines = [
        tuple(
            cell if row.is_first or name not in ("model", "findings") else ""
            for name, cell in zip(HEADER, row.cells, strict=True)
            if name in shown
        )
        for row in rows(report)
    ]
    yield from table(shown, lines, indent="")
    if any(not metrics.calibrated for entry in report.entries for metrics in entry.metrics.values()):
        yield "* inherited constants: measured on another GPU or in another precision"
