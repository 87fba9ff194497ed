"""Reports, estimates and graphs as tables of pandas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.saved import picked
from tclint.cost.estimate import Estimate
from tclint.cost.rows import Row
from tclint.engine.report import Entry, Report
from tclint.graph.ops import Graph

_NO_COLUMNS = ("work", "parts_us", "tile")
"""Fields of a kernel that are no single value."""
_PLAIN = (str, int, float, bool)


def to_frame(what: Any) -> Any:
    """See `tclint.to_frame`."""
    try:
        import pandas
    except ImportError:
        raise UsageError("tclint.to_frame makes pandas DataFrames; pandas is not installed here.") from None
    if isinstance(what, Report):
        rows = list(_findings(what))
    elif isinstance(what, Estimate):
        names = [part.name for part in fields(Row) if part.name not in _NO_COLUMNS]
        rows = [picked(row, *names) for row in what.rows]
    elif isinstance(what, Graph):
        rows = list(_ops(what))
    elif isinstance(what, (tuple, list)) and all(isinstance(one, Entry) for one in what):
        rows = list(_entries(what))
    else:
        raise UsageError(
            "tclint.to_frame takes a Report, its entries, an Estimate or a Graph, not a "
            f"{type(what).__name__}."
        )
    return pandas.DataFrame(rows)


def _findings(report: Report) -> Iterator[dict[str, Any]]:
    for finding in report.findings:
        said = picked(finding, "code", "name", "level", "confidence")
        said |= picked(finding.location, "path", "line", "column", "module_path")
        said["target"] = finding.target
        end = {
            "unknown": finding.effect.unknown,
            "message": finding.message,
            "fix": finding.fix.safety if finding.fix is not None else None,
        }
        for gpu, effect in finding.effect.per_gpu.items() or ((None, None),):
            names = ("cost_us", "gain_us", "gain_percent", "uncertainty_percent")
            yield {**said, "gpu": gpu, **{name: getattr(effect, name, None) for name in names}, **end}


def _entries(entries: tuple[Entry, ...] | list[Entry]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        said = picked(entry, "target", "model", "mode", "precision", "parameters", "flops", "op_count")
        for metrics in entry.metrics.values():
            values = {part.name: getattr(metrics, part.name) for part in fields(metrics)}
            plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
            yield {**said, **plain}


def _ops(graph: Graph) -> Iterator[dict[str, Any]]:
    for op in graph.ops:
        sites = {"construct_site": op.construct_site, "call_site": op.call_site}
        yield {
            **picked(op, "index", "name", "kind", "module_path", "module_type"),
            "inputs": [(spec.dtype, spec.shape) for spec in op.inputs],
            "outputs": [(spec.dtype, spec.shape) for spec in op.outputs],
            **{name: f"{site.path}:{site.line}" if site else None for name, site in sites.items()},
        }
