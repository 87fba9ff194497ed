"""Whether a change keeps to the budget: the models in the scenario that they are run in, and new findings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tclint.config.budget import Budget
from tclint.core.units import bytes_text, count, flops_text, percent_text, significant, time_text

SHARES = frozenset({"readiness_percent", "tensor_core_time_percent", "aligned_flops_percent"})
"""Metrics that move by points; the others do by percent of their old value."""

GATED: Final = {"step_time_us": "step", "readiness_percent": "readiness", "memory_bytes": "memory"}
"""Metrics that a budget limits, and what a sentence calls them."""


@dataclass(frozen=True, slots=True)
class MetricDelta:
    """One metric that moved."""

    name: str
    unit: str
    target: str | None
    gpu: str | None
    precision: str | None
    mode: str | None
    old: float | None
    new: float | None
    change: float | None
    """Points for shares, percent of the old value for others; None where one side has no value."""
    is_own: bool = False
    """Whether it is the scenario in which the model runs; what other precisions would cost is information."""
    is_regression: bool = False

    @property
    def is_share(self) -> bool:
        return self.name in SHARES

    @property
    def is_gated(self) -> bool:
        """Whether a budget limits it."""
        return self.is_own and self.name in GATED

    @property
    def where(self) -> str:
        """'a100-sxm4-80gb, fp16, train': the dimensions that apply, without the target."""
        return ", ".join(part for part in (self.gpu, self.precision, self.mode) if part)


def judged(deltas: Sequence[MetricDelta], budget: Budget) -> list[MetricDelta]:
    """The deltas, with those that exceed the budget marked.

    A share of Tensor Core time falls as well where Tensor Core kernels get faster: readiness counts where the
    step does not.
    """
    faster = {(delta.target, delta.gpu) for delta in _own_steps(deltas) if (delta.change or 0.0) < 0.0}
    limits = {
        "step_time_us": budget.step_percent,
        "readiness_percent": budget.readiness_points,
        "memory_bytes": budget.memory_percent,
    }

    def exceeds(delta: MetricDelta) -> bool:
        if not delta.is_gated or delta.change is None:
            return False
        if delta.name == "readiness_percent":
            return -delta.change > limits[delta.name] and (delta.target, delta.gpu) not in faster
        return delta.change > limits[delta.name]

    return [replace(delta, is_regression=exceeds(delta)) for delta in deltas]


def _own_steps(deltas: Iterable[MetricDelta]) -> Iterator[MetricDelta]:
    return (delta for delta in deltas if delta.is_own and delta.name == "step_time_us")


def faster_targets(deltas: Sequence[MetricDelta]) -> frozenset[str]:
    """The models whose step got shorter on a GPU, and longer on none."""
    changes: dict[str, list[float]] = defaultdict(list)
    for delta in _own_steps(deltas):
        if delta.target is not None:
            changes[delta.target].append(math.inf if delta.change is None else delta.change)
    return frozenset(target for target, moved in changes.items() if max(moved) < 0.0)


def is_left_to_gain(finding: Mapping[str, Any], faster: frozenset[str]) -> bool:
    """Whether a finding is only news because the rest of its models got faster.

    What it costs is in a step that is shorter than before; an error is wrong however fast.
    """
    is_priced = "unknown" not in finding["effect"]
    return is_priced and finding["level"] != "error" and faster.issuperset(targets_of(finding))


def regressions(
    deltas: Iterable[MetricDelta], findings: Iterable[tuple[Mapping[str, Any], str]]
) -> list[str]:
    """One sentence for each model that regressed, with its new findings; then those of the sources.

    Args:
        findings: those that count, each with how it is said: 'new warning DIM001 ... at model.py:7'.
    """
    moved: dict[tuple[str, str], list[str]] = defaultdict(list)
    for delta in deltas:
        if delta.is_regression:
            moved[delta.target or "", delta.where].append(gated_text(delta))
    worse: dict[str, list[str]] = defaultdict(list)
    for (target, where), texts in moved.items():
        worse[target].append(f"{', '.join(texts)} on {where}")
    read: list[str] = []
    for finding, said in findings:
        targets = targets_of(finding)
        if targets == (None,):
            read.append(said)
            continue
        # A finding of several models counts once, for a model that regressed if there is one.
        of = next((one for one in targets if one in worse), targets[0])
        others = len(targets) - 1
        worse[of or ""].append(f"{said} (and of {count(others)} more)" if others else said)
    return [*(f"{target}: {'; '.join(parts)}" for target, parts in worse.items()), *read]


def targets_of(finding: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The models of a finding in a report; (None,) for one of the sources."""
    return tuple(finding.get("targets") or (finding["target"],))


def gated_text(delta: MetricDelta) -> str:
    """'step 395 us -> 843 us (+113 %)'."""
    return f"{GATED[delta.name]} {moved_text(delta)}"


def moved_text(delta: MetricDelta) -> str:
    """'395 us -> 843 us (+113 %)'."""
    moved = f"{value_text(delta, delta.old)} -> {value_text(delta, delta.new)}"
    return moved if delta.change is None else f"{moved} ({change_text(delta)})"


def change_text(delta: MetricDelta) -> str:
    """'+3.2 %', '-4 points'; '' where one side has no value."""
    if delta.change is None:
        return ""
    sign, unit = "+" if delta.change > 0 else "", " points" if delta.is_share else " %"
    return f"{sign}{significant(delta.change)}{unit}"


def value_text(delta: MetricDelta, value: float | None) -> str:
    """One of its two values with its unit."""
    if value is None:
        return "unavailable"
    if delta.unit == "us":
        return time_text(value)
    if delta.unit == "percent":
        return percent_text(value)
    if delta.unit == "FLOP":
        return flops_text(value)
    if delta.unit == "bytes":
        return bytes_text(value)
    return count(int(value)) if delta.unit == "count" else f"{significant(value)}x"
