"""A profile, a model beside it and two compared as JSON; times in microseconds, shares in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.saved import picked
from tclint.core.version import __version__
from tclint.profile.beside import Beside
from tclint.profile.compared import Compared, Row
from tclint.profile.profile import RankProfile, slowest_first
from tclint.profile.summary import Share, Summary
from tclint.profile.tensor_cores import TITLES

SCHEMA_VERSION = "1.0"


def to_dict(profiles: Sequence[RankProfile]) -> dict[str, Any]:
    """Plain values: one entry of 'traces' per rank."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "tclint", "version": __version__},
        "slowest_first": [one.summary.path for one in slowest_first(profiles)],
        "traces": [trace_dict(profile) for profile in profiles],
    }


def trace_dict(profile: RankProfile) -> dict[str, Any]:
    """One trace: every field of its Summary, and what stands out."""
    summary = profile.summary
    shares = ("by_kind", "by_use", "reasons", "conversions", "operators", "pauses", "unknown_names")
    return {
        **picked(summary, *(name for name in Summary.__slots__ if name not in shares)),
        "compute_capability": profile.trace.device.compute_capability,
        "event_count": profile.trace.event_count,
        **picked(summary, "idle_percent", "launch_wait_percent"),
        "launch_bound": summary.is_launch_bound,
        "not_linked_percent": summary.not_linked_percent,
        "tensor_core_time_percent": summary.tensor_core_percent,
        "by_kind": {kind: _share(summary, share) for kind, share in summary.by_kind.items()},
        "by_use": {
            use: {"title": TITLES[use], **_share(summary, share)} for use, share in summary.by_use.items()
        },
        "reasons": [
            {"use": use, "reason": reason, **_share(summary, share)}
            for (use, reason), share in summary.reasons.items()
        ],
        "pauses": {name: asdict(share) for name, share in summary.pauses.items()},
        "conversions": asdict(summary.conversions),
        "operators": [asdict(row) for row in summary.operators],
        "unknown_names": {name: _share(summary, share) for name, share in summary.unknown_names.items()},
        "observations": [asdict(one) for one in profile.observations],
    }


def _share(summary: Summary, share: Share) -> dict[str, Any]:
    return {"time_us": share.time_us, "count": share.count, "percent": summary.percent(share.time_us)}


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
            {**picked(row.op, "index", "name", "module_path"), **picked(row, "measured_us", "predicted_us")}
            for row in beside.rows
        ],
        "ranks": [
            {
                **picked(one.profile.summary, "rank", "path", "kernel_time_us", "communication_us"),
                "matched_percent": one.alignment.matched_percent,
                "measured_us": one.alignment.matched_us,
                "predicted_us": one.predicted_us,
            }
            for one in besides
        ],
    }
    return document


def compared_dict(compared: Compared) -> dict[str, Any]:
    """Plain values; times in microseconds of one step."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "tclint", "version": __version__},
        "before": compared.before.summary.path,
        "after": compared.after.summary.path,
        "step": {name: {"before_us": before, "after_us": after} for name, before, after in compared.totals},
        "by_kind": [_row_dict(row) for row in compared.kinds],
        "by_module": [_row_dict(row) for row in compared.rows],
        "notes": list(compared.notes),
    }


def _row_dict(row: Row) -> dict[str, Any]:
    found = {**asdict(row), "change_us": row.change_us}
    return found if row.module else {key: value for key, value in found.items() if key != "module"}
