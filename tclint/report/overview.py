"""Many models on a screen: a table of model x GPU in place of everything about each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.table import table
from tclint.core.units import percent_text, time_text, uncertainty_text

if TYPE_CHECKING:
    from tclint.core.finding import Finding
    from tclint.engine.report import Entry, Report

FEW_MODELS = 3
"""As many are told one by one; more become a table."""

HEADER = ("model", "GPU", "predicted step", "ready", "best gain", "findings")


def rows(report: Report, models_at_most: int | None = None) -> Iterator[tuple[str, ...]]:
    """A row per model and GPU; what belongs to the model as a whole stands in its first."""
    for entry in report.entries[:models_at_most]:
        found = findings_of(report, entry)
        for index, (gpu, metrics) in enumerate(entry.metrics.items()):
            gains = [
                priced[gpu].gain_percent
                for finding in found
                if gpu in (priced := finding.effect.per_gpu) and finding.effect.unknown is None
            ]
            best = max(gains, default=None)
            yield (
                "" if index else entry.target,
                gpu + ("" if metrics.calibrated else " *"),
                f"{time_text(metrics.step_time_us)} {uncertainty_text(metrics.uncertainty_percent)}",
                percent_text(metrics.readiness_percent),
                "-" if best is None else percent_text(best),
                "" if index else str(len(found)),
            )


def overview(report: Report) -> Iterator[str]:
    """The table and its footnote."""
    yield from table(HEADER, list(rows(report)), indent="")
    if any(not metrics.calibrated for entry in report.entries for metrics in entry.metrics.values()):
        yield "* inherited constants: measured on another GPU or in another precision"


def findings_of(report: Report, entry: Entry) -> list[Finding]:
    """The listed findings that speak of one entry."""
    return [finding for finding in report.findings if finding.target == entry.target]
