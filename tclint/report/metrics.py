"""The numbers of a report as flat rows, one value each: what dashboards read instead of findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tclint.config.settings import REPORTED_PRECISIONS
from tclint.core.finding import LEVEL_ORDER
from tclint.core.target import is_model_target
from tclint.core.toml import packaged_toml
from tclint.engine.report import Entry, Metrics, Report

Unit = Literal["us", "percent", "FLOP", "bytes", "ratio", "count"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known of one number: a row of metrics.toml."""

    unit: Unit
    family: str
    """Its name in OpenMetrics, which several metrics can share, told apart by `labels`."""
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)


GPU_METRICS, ENTRY_METRICS, RUN_METRICS = (
    {name: Metric(**row) for name, row in rows.items()}
    for rows in packaged_toml("tclint.report", "metrics.toml").values()
)
"""Per entry, GPU and precision; per entry; per run (`findings` also per rule and level)."""

_NO_BOUND = "no bound: the whole step runs on Tensor Cores"
_NOTHING_PRICED = "no operator of the model has a cost formula"
_NO_FIX = "no finding has a priced fix"
_NO_BLOCKS = "no repeated blocks that checkpointing would save memory in"
_WHY_NONE = {
    "aligned_flops_percent": "no matrix product runs in a precision that has an alignment",
    "step_time_fixed_us": _NO_FIX,
    "readiness_fixed_percent": _NO_FIX,
}


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One value, or the reason why there is none; dimensions that do not apply are None."""

    name: str
    unit: Unit
    value: Any
    target: str | None = None
    model: str | None = None
    gpu: str | None = None
    precision: str | None = None
    mode: str | None = None
    rule: str | None = None
    """Code of the rule, for counts by rule."""
    level: str | None = None
    unavailable: str | None = None
    """Why `value` is None; None where there is a value."""


def metric_rows(report: Report) -> list[MetricRow]:
    """Every metric of the report, in a fixed order."""
    rows = [row for entry in report.entries for row in _entry_rows(entry)]
    rows += _failed_rows(report)
    rows += _run_rows(report)
    return rows


def _entry_rows(entry: Entry) -> Iterator[MetricRow]:
    share, unknown = _not_analysed_percent(entry)
    known: dict[str, tuple[float | int | None, str | None]] = {
        "parameters": (entry.parameters, None),
        "forward_flops": (entry.flops, None),
        "op_count": (entry.op_count, None),
        "not_analysed_operators": (sum(len(gap.op_indices) for gap in entry.not_analysed), None),
        "not_analysed_flops_percent": (share, unknown),
    }
    row = partial(MetricRow, target=entry.target, model=entry.model, mode=entry.mode)
    for name, metric in ENTRY_METRICS.items():
        value, reason = known[name]
        yield row(name, metric.unit, value, unavailable=reason)
    for gpu, metrics in entry.metrics.items():
        for name, metric in GPU_METRICS.items():
            value, reason = _value(name, metrics)
            yield row(name, metric.unit, value, gpu=gpu, precision=entry.precision, unavailable=reason)
        for precision in REPORTED_PRECISIONS if metrics.step_time_us_by_precision else ():
            if precision == entry.precision:
                continue
            value = metrics.step_time_us_by_precision.get(precision)
            reason = None
            if value is None:
                reason = f"{gpu} does not compute in {precision}"
            elif not math.isfinite(value):
                reason, value = _not_finite(value), None
            yield row("step_time_us", "us", value, gpu=gpu, precision=precision, unavailable=reason)


def _not_finite(value: float) -> str:
    return _NOTHING_PRICED if math.isnan(value) else "the prediction is not finite"


def _not_analysed_percent(entry: Entry) -> tuple[float | None, str | None]:
    """Share of the forward FLOPs without a formula for their time; None where an operator's are unknown."""
    shares = [gap.flops_percent for gap in entry.not_analysed]
    unknown = sorted({gap.name for gap in entry.not_analysed if gap.flops_percent is None})
    if unknown:
        return None, f"the FLOPs of {', '.join(unknown)} are unknown"
    return sum(share for share in shares if share is not None), None


def _value(name: str, metrics: Metrics) -> tuple[float | int | None, str | None]:
    memory, limits = metrics.memory, metrics.batch_limits
    value: Any
    if name.startswith("memory_") and name != "memory_bytes":
        part = name.removeprefix("memory_").replace("checkpointed_", "checkpointed_total_")
        value = memory and getattr(memory, part)
        why = _NO_BLOCKS if memory else "not computed"
    elif name.startswith("largest_batch"):
        value = limits and getattr(limits, name.replace("largest_batch", "largest"))
        why = (limits.unknown or _NO_BLOCKS) if limits else "not computed"
    else:
        value, why = getattr(metrics, name), _WHY_NONE.get(name, "not computed")
    if value is None:
        return None, why
    if not math.isfinite(value):
        no_bound = name == "amdahl_ceiling" and not math.isnan(value)
        return None, _NO_BOUND if no_bound else _not_finite(value)
    return value, None


def _failed_rows(report: Report) -> Iterator[MetricRow]:
    """A model that could not be traced is a gap in a dashboard, not a missing line."""
    settings = report.settings
    for error in report.errors:
        if not is_model_target(error.target):
            continue
        for gpu in settings.gpus:
            for name in ("step_time_us", "readiness_percent"):
                yield MetricRow(
                    name, GPU_METRICS[name].unit, None, error.target, None, gpu, settings.precision,
                    settings.mode, unavailable=error.message,
                )  # fmt: skip


def _run_rows(report: Report) -> Iterator[MetricRow]:
    yield MetricRow("findings", "count", len(report.findings))
    by_level = Counter(finding.level for finding in report.findings)
    for level in LEVEL_ORDER:
        yield MetricRow("findings", "count", by_level[level], level=level)
    by_rule = Counter((finding.code, finding.level) for finding in report.findings)
    for (code, level), number in sorted(by_rule.items()):
        yield MetricRow("findings", "count", number, rule=code, level=level)
    counts = {
        "findings_below_min_gain": len(report.below_min_gain),
        "findings_suppressed": len(report.suppressed),
        "findings_baselined": len(report.baselined),
        "source_files": report.source_files,
        "target_errors": len(report.errors),
    }
    for name, count in counts.items():
        yield MetricRow(name, "count", count)
