"""OpenMetrics text (version 1.0.0), for Prometheus and the like: every metric a gauge in base units.

Names end in their unit; label values escape backslash, double quote and line feed (specification, 'ABNF').
"""

from __future__ import annotations

from collections.abc import Iterator

from tclint.core.text import printable
from tclint.engine.provenance import provenance, tool
from tclint.engine.report import Report
from tclint.report.formats.json import SCHEMA_VERSION
from tclint.report.metrics import ENTRY_METRICS, GPU_METRICS, RUN_METRICS, Metric, MetricRow, metric_rows

_BASE_UNITS: dict[str, tuple[str, float]] = {
    "us": ("seconds", 1e-6),
    "percent": ("ratio", 0.01),
    "ratio": ("ratio", 1.0),
    "bytes": ("bytes", 1.0),
}
"""Units of the report: the base unit and the factor to it; the others have none."""
_METRICS = {**GPU_METRICS, **ENTRY_METRICS, **RUN_METRICS}


def render(report: Report) -> str:
    """The exposition, ending in `# EOF`. Metrics that are unavailable have no sample."""
    lines = list(_info(report))
    families: dict[str, tuple[Metric, dict[str, str]]] = {}
    for row in metric_rows(report):
        # Only the counts by rule and level: sums of them would count everything twice when aggregated.
        if row.value is None or (row.name == "findings" and row.rule is None):
            continue
        metric = _METRICS[row.name]
        samples = families.setdefault(metric.family, (metric, {}))[1]
        # Two samples of equal labels would make the whole exposition invalid.
        samples.setdefault(_labels(row, metric), _number(row))
    for name, (metric, samples) in families.items():
        lines.append(f"# TYPE {name} gauge")
        if metric.unit in _BASE_UNITS:
            lines.append(f"# UNIT {name} {_BASE_UNITS[metric.unit][0]}")
        lines.append(f"# HELP {name} {escape(metric.help)}")
        lines += [f"{name}{labels} {value}" for labels, value in samples.items()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _info(report: Report) -> Iterator[str]:
    made_with, made_by = provenance(report), tool(report)
    labels = {
        "version": made_by["version"],
        "schema_version": SCHEMA_VERSION,
        "hash": made_by["hash"],
        "torch": made_with["torch"] or "",
        "commit": made_with["git"].get("commit", ""),
    }
    # Readers of the older text format, node_exporter's among them, refuse the type 'info'.
    yield "# TYPE tclint_build_info gauge"
    yield "# HELP tclint_build_info What made this report."
    yield f"tclint_build_info{label_set(labels)} 1"


def _labels(row: MetricRow, metric: Metric) -> str:
    names = ("target", "model", "gpu", "precision", "mode", "rule", "level")
    known = {name: value for name in names if (value := getattr(row, name))}
    return label_set({**known, **metric.labels})


def label_set(labels: dict[str, str]) -> str:
    """'{name="value",...}', or nothing where there are none."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label value or help text; the backslash first, else it would be escaped twice.

    What could steer a terminal, and lone surrogates, which UTF-8 has not, are written as their escapes.
    """
    value = "\n".join(printable(line) for line in value.split("\n"))
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(row: MetricRow) -> str:
    assert row.value is not None
    _, scale = _BASE_UNITS.get(row.unit, ("", 1.0))
    # Twelve digits hide the noise of the scaling and keep every digit that a report has.
    return str(row.value) if scale == 1.0 and isinstance(row.value, int) else f"{row.value * scale:.12g}"
