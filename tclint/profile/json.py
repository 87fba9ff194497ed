"""A profile as JSON; times in microseconds, shares in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tclint.core.version import __version__
from tclint.profile.profile import RankProfile
from tclint.profile.ranks import slowest_first
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
    plain = {
        name: getattr(summary, name)
        for name in Summary.__slots__
        if name not in ("by_kind", "by_use", "reasons", "conversions", "operators", "pauses", "unknown_names")
    }
    return {
        **plain,
        "compute_capability": profile.trace.device.compute_capability,
        "event_count": profile.trace.event_count,
        "idle_percent": summary.idle_percent,
        "launch_wait_percent": summary.launch_wait_percent,
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
