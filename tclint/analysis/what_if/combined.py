"""All fixes of a report at once: what the step takes when every one of them is made.

Gains do not add up: a padded layer gains less once the model is compiled, and two findings may ask for the
same change. So the changes are made together, and the changed model is priced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tclint.analysis.change import Change, Edit
from tclint.core.finding import Finding
from tclint.cost.estimate import Estimate, estimate
from tclint.graph.dims.coupled import DimsUnresolved

if TYPE_CHECKING:
    from tclint.analysis.graph_context import GraphContext
    from tclint.cost.scenario import Scenario
    from tclint.graph.dims.coupled import DimGroup
    from tclint.graph.ops import Graph


@dataclass(frozen=True, slots=True)
class CombinedFix:
    """The step with several fixes made, per GPU id."""

    step_time_us: dict[str, float]
    readiness_percent: dict[str, float]
    made: tuple[Finding, ...]
    """Findings whose fixes are in it."""


@dataclass(slots=True)
class _Plan:
    """Changes that go together."""

    sizes: dict[DimGroup, int] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    scenarios: list[Callable[[Scenario], Scenario]] = field(default_factory=list)

    def with_change(self, change: Change) -> _Plan:
        """Where two changes give one group a size, the first stays: it gains more."""
        edits = [change.edit] if change.edit else []
        scenarios = [change.scenario] if change.scenario else []
        return _Plan(dict(change.sizes) | self.sizes, self.edits + edits, self.scenarios + scenarios)

    def graph(self, context: GraphContext) -> Graph | None:
        """The changed graph; None where a change does not fit the model with the others made."""
        try:
            graph: Graph | None = context.dims.resize(self.sizes) if self.sizes else context.graph
        except DimsUnresolved:
            return None
        for edit in self.edits:
            graph = None if graph is None else edit(graph)
        return graph

    def estimates(self, context: GraphContext, graph: Graph) -> list[Estimate]:
        priced = []
        for scenario in context.scenarios:
            changed = scenario
            for change in self.scenarios:
                changed = change(changed)
            priced.append(estimate(graph, changed))
        return priced


def all_fixes(context: GraphContext, findings: Sequence[Finding]) -> CombinedFix | None:
    """The findings' fixes made together, those that gain most first; None where none has a priced fix.

    A fix that costs time once the others are made is left out, and so is one that does not fit them.
    """
    gaining = [f for f in findings if f.change and (f.effect.best_gain_percent or 0.0) > 0.0]
    gaining.sort(key=lambda f: -(f.effect.best_gain_percent or 0.0))
    if not gaining:
        return None
    plan = _Plan()
    best = [context.estimate(scenario) for scenario in context.scenarios]
    made: list[Finding] = []
    for finding in gaining:
        assert isinstance(finding.change, Change)
        tried = plan.with_change(finding.change)
        graph = tried.graph(context)
        if graph is None:
            continue
        priced = tried.estimates(context, graph)
        if _relative_time(priced, best) <= 1.0:
            plan, best = tried, priced
            made.append(finding)
    if not made:
        return None
    return CombinedFix(
        {found.gpu.id: found.step_time_us for found in best},
        {found.gpu.id: found.readiness_percent for found in best},
        tuple(made),
    )


def _relative_time(after: Sequence[Estimate], before: Sequence[Estimate]) -> float:
    """Mean over the GPUs of the step times' ratio."""
    ratios = [a.step_time_us / b.step_time_us for a, b in zip(after, before, strict=True) if b.step_time_us]
    return sum(ratios) / len(ratios) if ratios else 1.0
