"""The JSON report. Its names are a contract: `schema.json` beside this file describes every one."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

from tclint.config.kinds import Setting
from tclint.config.settings import Settings, settings_in
from tclint.core.finding import LEVEL_ORDER, Effect, Finding, Fix
from tclint.core.saved import picked
from tclint.engine.check import relative_path
from tclint.engine.provenance import provenance, tool
from tclint.engine.report import Entry, Metrics, Report
from tclint.report.excerpt import SourceLines
from tclint.report.metrics import metric_rows

SCHEMA_VERSION = "1.0"

_SURROGATE = re.compile("[\ud800-\udfff]")


def render(report: Report) -> str:
    """The report as one JSON document: the same bytes for the same findings, ending in a newline."""
    return json.dumps(clean(to_dict(report)), indent=2, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `render`'s documents."""
    text = resources.files("tclint.report.formats").joinpath("schema.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    reported = settings_in("report")
    document["$defs"]["settings"].update(
        required=[item.field for item in reported],
        properties={item.field: {"description": item.help, **_schema_of(item)} for item in reported},
    )
    return document


def _schema_of(setting: Setting) -> dict[str, Any]:
    """The schema of the setting's value in a report, where null stands for a setting that is not given."""
    schema = dict(setting.kind.json_schema)
    return {"anyOf": [schema, {"type": "null"}]} if setting.default in (None, "") else schema


def _setting(setting: Setting, settings: Settings) -> Any:
    value = setting.json_value(settings)
    return None if value == "" else value


def to_dict(report: Report, of_run: Settings | None = None) -> dict[str, Any]:
    """The report as plain values; numbers are rounded to what they can mean.

    Args:
        of_run: the settings of the run that this is a part of, which entries differ from; None: the whole.
    """
    settings = of_run or report.settings
    lines = SourceLines.of(report)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool(report),
        "provenance": provenance(report),
        "settings": {item.field: _setting(item, settings) for item in settings_in("report")},
        "entries": [
            _entry(entry, settings) | (_operators(entry, settings) if settings.operators else {})
            for entry in report.entries
        ],
        "metrics": [rounded(asdict(row)) for row in metric_rows(report)],
        "findings": [
            {**_finding(finding), "source_sha256": lines.digest(finding.location.path)}
            for finding in report.findings
        ],
        "skipped": [
            {"path": item.path, "reason": item.reason, **({"is_part": True} if item.is_part else {})}
            for item in report.skipped
        ],
        "errors": [picked(error, "target", "message") for error in report.errors],
        "models_trained": [
            {"script": relative_path(script), "targets": list(models)}
            for script, models in report.models_trained.items()
        ],
        "summary": _summary(report),
        "statistics": statistics(report),
    }


def statistics(report: Report) -> list[dict[str, Any]]:
    """Counts per rule, the most frequent first."""
    listed = Counter((finding.code, finding.name) for finding in report.findings)
    below = Counter((finding.code, finding.name) for finding in report.below_min_gain)
    suppressed = Counter((finding.code, finding.name) for finding in report.suppressed)
    rules = sorted({*listed, *below, *suppressed}, key=lambda rule: (-listed[rule], rule))
    return [
        {
            "code": rule[0],
            "name": rule[1],
            "findings": listed[rule],
            "below_min_gain": below[rule],
            "suppressed": suppressed[rule],
        }
        for rule in rules
    ]


def _summary(report: Report) -> dict[str, Any]:
    by_level = Counter(finding.level for finding in report.findings)
    return {
        "findings": len(report.findings),
        "by_level": {level: by_level[level] for level in LEVEL_ORDER},
        "below_min_gain": len(report.below_min_gain),
        "suppressed": len(report.suppressed),
        "baselined": len(report.baselined),
        "source_files": report.source_files,
        "exit_code": report.exit_code,
    }


def _entry(entry: Entry, of_run: Settings) -> dict[str, Any]:
    # `seconds` stays out: the same findings must give the same document.
    own = entry.settings or of_run
    return {
        **picked(entry, "target", "model", "mode", "precision"),
        "graph_hash": entry.graph_hash or None,
        "torch": entry.torch_version or None,
        "inputs": [
            {"name": name, "dtype": dtype, "shape": list(shape)} for name, dtype, shape in entry.inputs
        ],
        **picked(entry, "parameters", "flops", "op_count"),
        "metrics": {gpu: rounded(_metrics(metrics)) for gpu, metrics in entry.metrics.items()},
        "assumptions": [
            {
                "what": assumption.what,
                "count": assumption.count,
                "doubtful": assumption.is_doubtful,
                "path": None if assumption.site is None else relative_path(assumption.site.path),
                "line": None if assumption.site is None else assumption.site.line,
            }
            for assumption in entry.assumptions
        ],
        "settings": {
            item.field: _setting(item, own)
            for item in settings_in("report")
            if getattr(own, item.field) != getattr(of_run, item.field)
        },
        "input_set": entry.input_set or None,
        "is_worst_case": entry.is_worst_case if entry.input_set else None,
        "fixes_made": entry.fixes_made,
        "plan": [
            {
                **asdict(fix),
                "step_time_us": rounded(fix.step_time_us),
                "readiness_percent": rounded(fix.readiness_percent),
            }
            for fix in entry.plan
        ],
        "comparisons": [rounded(asdict(comparison)) for comparison in entry.comparisons],
        "not_analysed": [
            {
                **picked(gap, "name", "reason"),
                "count": len(gap.op_indices),
                **rounded(picked(gap, "flops", "flops_percent")),
            }
            for gap in entry.not_analysed
        ],
    }


_KERNEL = (
    "op_index", "name", "kind", "module_path", "phase", "role", "time_us", "flops", "bytes_read",
    "bytes_written", "limiter", "uses_tensor_cores", "is_efficient", "uncertainty_percent",
)  # fmt: skip


def _operators(entry: Entry, settings: Settings) -> dict[str, Any]:
    """Every kernel of the step in order, by GPU; nothing for a report without graphs."""
    if entry.graph is None:
        return {}
    from tclint.analysis.graph_context import GraphContext

    context = GraphContext(entry.graph, entry.settings or settings)
    return {
        "operators": {
            priced.gpu.id: [rounded(picked(row, *_KERNEL)) for row in priced.rows]
            for priced in map(context.estimate, context.scenarios)
        }
    }


def _metrics(metrics: Metrics) -> dict[str, Any]:
    values = _without_run(asdict(metrics))
    del values["gpu"], values["batch_limits"]
    memory, limits = metrics.memory, metrics.batch_limits
    if memory is not None:
        values["memory"] |= {
            "total_bytes": memory.total_bytes,
            "checkpointed_total_bytes": memory.checkpointed_total_bytes,
        }
    values["batch"] = limits and limits.batch
    values["largest_batch"] = limits and limits.largest
    values["largest_batch_checkpointed"] = limits and limits.largest_checkpointed
    return values


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        **picked(finding, "code", "name", "level", "confidence", "message", "target"),
        "targets": list(finding.targets),
        "location": asdict(finding.location),
        "related": [asdict(related) for related in finding.related],
        "effect": _effect(finding.effect),
        "evidence": finding.evidence,
        "fix": None if finding.fix is None else _fix(finding.fix),
        "fingerprint": finding.fingerprint,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    edits = [{**asdict(edit), "path": relative_path(edit.path)} for edit in fix.edits]
    return {"advice": fix.advice, "safety": fix.safety, "edits": edits}


def _effect(effect: Effect) -> dict[str, Any]:
    if effect.unknown is not None or not effect.per_gpu:
        return {"unknown": effect.unknown or "not priced"}
    return {
        gpu: {**rounded(_without_run(asdict(priced))), "gain_within_error": priced.is_within_error}
        for gpu, priced in effect.per_gpu.items()
    }


def _without_run(values: dict[str, Any]) -> dict[str, Any]:
    """Without what a run takes where its steps are not given, and without gains elsewhere where there are
    none."""
    return {
        name: value
        for name, value in values.items()
        if value not in (None, {}) or not name.startswith(("run_", "measured_", "elsewhere_", "felt_"))
    }


def rounded(value: Any, digits: int = 3) -> Any:
    """JSON values with that many digits behind the point.

    Three are nanoseconds and thousandths of a percent: less than any estimate knows. Below one
    there are twice as many, for small shares and hours.
    """
    if isinstance(value, dict):
        return {name: rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, float):
        return round(value, digits if abs(value) >= 1.0 else 2 * digits)
    return value


def clean(value: Any) -> Any:
    """JSON values only: what is not finite becomes null, bytes that were no text the replacement sign."""
    if isinstance(value, Mapping):
        return {_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, set | frozenset):
        return [clean(item) for item in sorted(value, key=str)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return _text(str(value))


def _text(text: str) -> str:
    # Strict JSON readers refuse the lone surrogates that stand for undecodable bytes of a file name.
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
