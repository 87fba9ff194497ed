"""What the JSON report says of a step's memory, its launches, and what-if tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tclint.analysis.what_if.comparisons import ComparedStep
    from tclint.cost.rows import Memory
    from tclint.engine.report import Entry, Metrics


def step_metrics(metrics: Metrics) -> dict[str, Any]:
    """The parts of a GPU's metrics that are about memory and the host."""
    limits = metrics.batch_limits
    return {
        "memory": None if metrics.memory is None else _memory(metrics.memory),
        "largest_batch": None if limits is None else limits.largest,
        "largest_batch_checkpointed": None if limits is None else limits.largest_checkpointed,
        "step_time_fixed_us": _rounded(metrics.step_time_fixed_us),
        "readiness_fixed_percent": _rounded(metrics.readiness_fixed_percent),
        "launch_count": metrics.launch_count,
        "launch_time_us": _rounded(metrics.launch_time_us),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        **asdict(memory),
        "unknown": list(memory.unknown),
        "total_bytes": memory.total_bytes,
        "checkpointed_total_bytes": memory.checkpointed_total_bytes,
    }


def comparisons(entry: Entry) -> list[dict[str, Any]]:
    """The what-if tables."""
    return [
        {
            "kind": comparison.kind,
            "gpu": comparison.gpu,
            "rows": [_row(row) for row in comparison.rows],
            "unavailable": comparison.unavailable,
        }
        for comparison in entry.comparisons
    ]


def _row(row: ComparedStep) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(row).items()
    }
