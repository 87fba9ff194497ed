"""OpenMetrics text (version 1.0.0), for Prometheus and the like: every metric a gauge in base units.

Names end in their unit; label values escape backslash, double quote and line feed (specification, 'ABNF').
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tclint.core.text import printable
from tclint.core.version import __version__
from tclint.engine.provenance import provenance, tool_hash
from tclint.report.formats.json import SCHEMA_VERSION
from tclint.report.metrics import MetricRow, metric_rows

if TYPE_CHECKING:
    from tclint.engine.report import Report

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    help: str
    unit: str = ""
    scale: float = 1.0
    """Report units to base units."""
    labels: dict[str, str] = field(default_factory=dict)


def _memory_part(name: str) -> _Family:
    return _Family(
        "tclint_memory_part_bytes",
        "Predicted device memory of one step, by what it holds.",
        "bytes",
        labels={"part": name},
    )


_FAMILIES: dict[str, _Family] = {
    "step_time_us": _Family("tclint_step_time_seconds", "Predicted time of one step.", "seconds", 1e-6),
    "forward_time_us": _Family(
        "tclint_phase_time_seconds",
        "Predicted time of one phase of a step.",
        "seconds",
        1e-6,
        {"phase": "forward"},
    ),
    "backward_time_us": _Family(
        "tclint_phase_time_seconds",
        "Predicted time of one phase of a step.",
        "seconds",
        1e-6,
        {"phase": "backward"},
    ),
    "optimizer_time_us": _Family(
        "tclint_phase_time_seconds",
        "Predicted time of one phase of a step.",
        "seconds",
        1e-6,
        {"phase": "optimizer"},
    ),
    "readiness_percent": _Family(
        "tclint_readiness_ratio", "Share of the step that runs efficiently on Tensor Cores.", "ratio", 0.01
    ),
    "tensor_core_time_percent": _Family(
        "tclint_tensor_core_time_ratio", "Share of the step in kernels that use Tensor Cores.", "ratio", 0.01
    ),
    "aligned_flops_percent": _Family(
        "tclint_aligned_flops_ratio", "Share of matrix-product FLOPs with aligned dims.", "ratio", 0.01
    ),
    "amdahl_ceiling": _Family(
        "tclint_speedup_ceiling_ratio", "Largest speed-up if only work on Tensor Cores got faster.", "ratio"
    ),
    "step_flops": _Family("tclint_step_flops", "Floating-point operations of one step."),
    "memory_bytes": _Family("tclint_memory_bytes", "Predicted device memory of one step.", "bytes"),
    "memory_parameters_bytes": _memory_part("parameters"),
    "memory_buffers_bytes": _memory_part("buffers"),
    "memory_gradients_bytes": _memory_part("gradients"),
    "memory_optimizer_bytes": _memory_part("optimizer"),
    "memory_activations_bytes": _memory_part("activations"),
    "memory_autocast_bytes": _memory_part("autocast"),
    "memory_inputs_bytes": _memory_part("inputs"),
    "memory_working_bytes": _memory_part("working"),
    "memory_checkpointed_bytes": _Family(
        "tclint_memory_checkpointed_bytes", "Predicted memory with repeated blocks checkpointed.", "bytes"
    ),
    "largest_batch": _Family("tclint_largest_batch", "Largest batch that fits the GPU."),
    "largest_batch_checkpointed": _Family(
        "tclint_largest_batch_checkpointed", "The same with repeated blocks checkpointed."
    ),
    "launch_count": _Family("tclint_launches", "Kernels that the host launches in one step."),
    "launch_time_us": _Family(
        "tclint_launch_time_seconds", "What the host is assumed to need to launch them.", "seconds", 1e-6
    ),
    "uncertainty_percent": _Family(
        "tclint_uncertainty_ratio", "Mean error of such predictions on unseen shapes.", "ratio", 0.01
    ),
    "step_time_fixed_us": _Family(
        "tclint_step_time_fixed_seconds", "Predicted step with all priced fixes made.", "seconds", 1e-6
    ),
    "readiness_fixed_percent": _Family(
        "tclint_readiness_fixed_ratio", "Readiness of that step.", "ratio", 0.01
    ),
    "parameters": _Family("tclint_parameters", "Parameter elements of the model."),
    "forward_flops": _Family("tclint_forward_flops", "Floating-point operations of one forward pass."),
    "op_count": _Family("tclint_ops", "Operators of one forward pass."),
    "not_analysed_operators": _Family("tclint_ops_not_analysed", "Operators without a cost formula."),
    "not_analysed_flops_percent": _Family(
        "tclint_flops_not_analysed_ratio", "Their share of the forward pass's FLOPs.", "ratio", 0.01
    ),
    "findings_below_min_gain": _Family(
        "tclint_findings_below_min_gain", "Findings that would gain less than min-gain."
    ),
    "findings_suppressed": _Family("tclint_findings_suppressed", "Findings that a comment silences."),
    "findings_baselined": _Family("tclint_findings_baselined", "Findings that the baseline accepts."),
    "source_files": _Family("tclint_source_files", "Files that the source rules considered."),
    "target_errors": _Family("tclint_target_errors", "Targets that could not be linted."),
}
# Only the counts by rule and level: sums of them would count everything twice when aggregated.
_FINDINGS = _Family("tclint_findings", "Findings by rule and level.")


def render(report: Report) -> str:
    """The exposition, ending in `# EOF`. Metrics that are unavailable have no sample."""
    lines = list(_info(report))
    families: dict[str, tuple[_Family, dict[str, str]]] = {}
    for row in metric_rows(report):
        family = _family(row)
        if family is None or row.value is None:
            continue
        samples = families.setdefault(family.name, (family, {}))[1]
        # Two samples of equal labels would make the whole exposition invalid.
        samples.setdefault(_labels(row, family), _number(row.value, family.scale))
    for name, (family, samples) in families.items():
        lines.append(f"# TYPE {name} gauge")
        if family.unit:
            lines.append(f"# UNIT {name} {family.unit}")
        lines.append(f"# HELP {name} {escape(family.help)}")
        lines += [f"{name}{labels} {value}" for labels, value in samples.items()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(row: MetricRow) -> _Family | None:
    if row.name == "findings":
        return _FINDINGS if row.rule is not None else None
    return _FAMILIES[row.name]


def _info(report: Report) -> Iterator[str]:
    made_with = provenance(report)
    labels = {
        "version": __version__,
        "schema_version": SCHEMA_VERSION,
        "hash": tool_hash(),
        "torch": made_with["torch"] or "",
        "commit": made_with["git"].get("commit", ""),
    }
    yield "# TYPE tclint_build info"
    yield "# HELP tclint_build What made this report."
    yield f"tclint_build_info{label_set(labels)} 1"


def _labels(row: MetricRow, family: _Family) -> str:
    known = {
        "target": row.target,
        "model": row.model,
        "gpu": row.gpu,
        "precision": row.precision,
        "mode": row.mode,
        "rule": row.rule,
        "level": row.level,
    }
    return label_set({**{name: value for name, value in known.items() if value}, **family.labels})


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


def _number(value: float, scale: float) -> str:
    # Twelve digits hide the noise of the scaling and keep every digit that a report has.
    return str(value) if scale == 1.0 and isinstance(value, int) else f"{value * scale:.12g}"
