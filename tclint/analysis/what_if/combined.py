"""The fixes of a report in the order in which to make them, and the step time after each.

Gains do not add up: a padded layer gains less once the model is compiled, attention may gain only once its
width is padded, and two findings may ask for the same change. So the best fix is made first, and the others
are priced again on the changed model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tclint.analysis.change import Change, together
from tclint.analysis.graph_context import GraphContext
from tclint.core.finding import Finding
from tclint.cost.estimate import Estimate
from tclint.graph.dims.coupled import DimsUnresolved

_EVALUATIONS_PER_FIX = 4
"""The most times that a fix is priced, on average; each time takes as long as pricing the model."""


@dataclass(frozen=True, slots=True)
class FixStep:
    """One fix, made after those before it."""

    finding: Finding
    step_time_us: dict[str, float]
    """GPU id -> the step time with this fix made."""
    readiness_percent: dict[str, float]


@dataclass(frozen=True, slots=True)
class CombinedFix:
    """The step with several fixes made, per GPU id."""

    step_time_us: dict[str, float]
    readiness_percent: dict[str, float]
    made: tuple[Finding, ...]
    """The findings whose fixes are made."""
    steps: tuple[FixStep, ...] = ()
    """The fixes that change the step, in order."""
    cut_back_us: dict[str, float] = field(default_factory=dict)
    """GPU id -> the step time with the outputs that they pad cut back; empty: they pad none."""


def all_fixes(
    context: GraphContext,
    findings: Sequence[Finding],
    others: Sequence[Finding] = (),
    *,
    min_gain_percent: float = 0.0,
) -> CombinedFix | None:
    """The findings' fixes made together, best first; None if none has a priced fix.

    A fix that costs time after the others, or does not fit them, is left out.

    Args:
        others: findings that alone gain less than `min_gain_percent` of the step; their fixes are made if
            they gain that much after other fixes.
    """
    known = [(f.effect.best_gain_percent or 0.0, f) for f in findings if _joins(f)]
    queue = [(gain, f) for gain, f in known if gain > 0.0]
    waiting = [f for gain, f in known if gain <= 0.0] + [f for f in others if _joins(f)]
    free = {id(f) for _, f in queue}
    if not queue:
        return None
    left = _EVALUATIONS_PER_FIX * (len(queue) + len(waiting))
    best = [context.estimate(scenario) for scenario in context.scenarios]
    made: list[Finding] = []
    steps: list[FixStep] = []

    def gain_of(finding: Finding) -> tuple[float, list[Estimate]] | None:
        """The gain of a finding now, in percent of the step; None if it does not fit or gains too little."""
        try:
            if _excludes(context, [change_of(one) for one in made], change_of(finding)):
                return None
            changed = context.after(together([change_of(one) for one in (*made, finding)]))
        except DimsUnresolved:
            return None
        priced = [changed.estimate(scenario) for scenario in changed.scenarios]
        gain = 100.0 * (1.0 - _relative_time(priced, best))
        least = 0.0 if id(finding) in free else min_gain_percent
        return (gain, priced) if gain >= least else None

    tried_with = -1
    while left > 0:
        if not queue:
            if tried_with == len(made) or not made:
                break
            # A fix that gained nothing before may gain now.
            tried_with = len(made)
            again, waiting = waiting, []
            for finding in again:
                left -= 1
                found = gain_of(finding)
                if found is not None:
                    queue.append((found[0], finding))
                else:
                    waiting.append(finding)
            continue
        queue.sort(key=lambda item: -item[0])
        _, finding = queue.pop(0)
        left -= 1
        found = gain_of(finding)
        if found is None:
            waiting.append(finding)
            continue
        gain, priced = found
        if queue and gain < queue[0][0]:
            queue.append((gain, finding))
            continue
        changes = _times(priced) != _times(best)
        best = priced
        made.append(finding)
        if changes:
            ready = {price.gpu.id: price.readiness_percent for price in best}
            steps.append(FixStep(finding, _times(best), ready))
    if not made:
        return None
    ready = {price.gpu.id: price.readiness_percent for price in best}
    cut_back_us = context.step_us_cut_back(together([change_of(one) for one in made]))
    return CombinedFix(_times(best), ready, tuple(made), tuple(steps), cut_back_us)


_MOST_TIMES = 8
"""The largest factor between related widths of a model: four times the width, three projections in one."""


def _excludes(context: GraphContext, made: Sequence[Change], change: Change) -> bool:
    """Whether a change gives a dim a size other than the changes that are already made.

    If one size is a multiple of another, both may be one number in the code, so they have to keep their
    ratio.
    """
    taken = together(made).sizes
    for group, size in change.sizes if taken else ():
        if context.dims.size_of(group, dict(taken)) not in (group.size, size):
            return True
        for other, new in taken:
            large, small = max(group.size, other.size), min(group.size, other.size)
            made_of = other != group and large % small == 0 and large // small <= _MOST_TIMES
            if made_of and size * other.size != new * group.size:
                return True
    return False


def _joins(finding: Finding) -> bool:
    return isinstance(finding.change, Change) and not finding.change.is_of_batch


def change_of(finding: Finding) -> Change:
    """The change of a finding that has one."""
    assert isinstance(finding.change, Change)
    return finding.change


def _times(priced: Sequence[Estimate]) -> dict[str, float]:
    return {price.gpu.id: price.step_time_us for price in priced}


def _relative_time(after: Sequence[Estimate], before: Sequence[Estimate]) -> float:
    """The mean over the GPUs of the ratio of the step times."""
    ratios = [a.step_time_us / b.step_time_us for a, b in zip(after, before, strict=True) if b.step_time_us]
    return sum(ratios) / len(ratios) if ratios else 1.0
