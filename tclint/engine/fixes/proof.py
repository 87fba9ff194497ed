"""Whether a traced model with its fixes made is what the plan promised."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tclint.analysis.advice import advice
from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.core.units import time_text
from tclint.engine.check import relative_path
from tclint.engine.model_pass import as_priced
from tclint.graph.ops import Graph

TOLERANCE_PERCENT = 1.0
"""How far, as a share of the step, the traced gain may differ from that of its fix alone before it is
said."""


Key: TypeAlias = "str | tuple[str, str, int]"


@dataclass(frozen=True, slots=True)
class Proof:
    """What holds of a model, to compare an edited one with."""

    target: str
    rules: tuple[GraphRule, ...]
    settings: Settings
    context: GraphContext
    """The context of its unchanged trace."""
    known: frozenset[Key]
    """The keys of all its findings, even those that gain too little to be listed."""
    _known: list[Any] = field(default_factory=list, repr=False)
    """The graph that was looked at last, with its findings and its step."""

    @property
    def step_time_us(self) -> dict[str, float]:
        """By GPU, as it is."""
        return step_times_us(self.context)

    def problem(self, graph: Graph, fixed: Sequence[Finding], before_us: Mapping[str, float]) -> str | None:
        """Why an edited model is no fix; None where it is one.

        Args:
            graph: as it was traced.
            fixed: findings that have to be gone.
            before_us: the step without the last of them, by GPU.
        """
        pays, step_time_us = self._checked(graph)
        left = [finding for finding in fixed if key_of(finding) in pays]
        if left:
            return f"{_said(left[0])} would still be reported"
        for finding in self._new(graph):
            if finding.level == "error":
                return f"it makes an error of its own: {_said(finding)}"
        times = [step_time_us[gpu] / before for gpu, before in before_us.items() if before]
        if times and math.prod(times) >= 1.0:
            gpu = max(before_us, key=lambda name: step_time_us[name] / before_us[name])
            return (
                f"the edited model's step is no shorter: {time_text(step_time_us[gpu])} on {gpu}, and "
                f"{time_text(before_us[gpu])} without it"
            )
        return None

    def told(self, graph: Graph, expected_us: Mapping[str, float]) -> Iterator[str]:
        """What differs from the plan in an edited model that is a fix: new findings, another gain."""
        for finding in self._new(graph):
            yield f"{_said(finding)} is new with it"
        _, step_time_us = self._checked(graph)
        for gpu, before in self.step_time_us.items():
            off_us = step_time_us[gpu] - expected_us[gpu]
            if abs(off_us) > TOLERANCE_PERCENT / 100.0 * before:
                yield (
                    f"the edited model's step on {gpu} is {time_text(abs(off_us))} "
                    f"{'longer' if off_us > 0 else 'shorter'} than the fix alone would make it"
                )

    def _new(self, graph: Graph) -> list[Finding]:
        pays, _ = self._checked(graph)
        return [
            finding
            for key, finding in pays.items()
            if key not in self.known and not self._gained_before(finding, graph)
        ]

    def _gained_before(self, finding: Finding, graph: Graph) -> bool:
        """Whether a fix gained as much time before, and only its share of a shorter step is larger."""
        change = finding.change
        if not isinstance(change, Change) or change.sizes or change.edit:
            return False
        step_us, gained_us = self.step_time_us, []
        for one in (self.context.graph, graph):
            as_is = GraphContext(one, self.settings, self.target)
            changed_us = step_times_us(as_is.after(change))
            gained_us.append({gpu: time - changed_us[gpu] for gpu, time in step_times_us(as_is).items()})
        before_us, after_us = gained_us
        return all(
            100.0 * (after_us[gpu] - before_us[gpu]) / step_us[gpu] <= TOLERANCE_PERCENT for gpu in step_us
        )

    def paying(self, graph: Graph) -> frozenset[Key]:
        """The findings of a graph that gain enough to be listed, by their keys."""
        return frozenset(self._checked(graph)[0])

    def _checked(self, graph: Graph) -> tuple[dict[Key, Finding], dict[str, float]]:
        if not self._known or self._known[0] is not graph:
            context, found = checked(graph, self.rules, self.settings, self.target)
            pays = {
                key_of(finding): finding
                for finding in map(relative_finding, found)
                if (finding.effect.best_gain_percent or 0.0) >= self.settings.min_gain_percent
            }
            self._known[:] = [graph, pays, step_times_us(context)]
        return self._known[1], self._known[2]


def _said(finding: Finding) -> str:
    return f"{finding.code} {finding.name} at {finding.location.path}:{finding.location.line}"


def checked(
    graph: Graph, rules: Sequence[GraphRule], settings: Settings, target: str
) -> tuple[GraphContext, list[Finding]]:
    """A traced graph as reports price it, and all its findings."""
    graph, settings = as_priced(graph, settings)
    context = GraphContext(graph, settings, target)
    return context, [replace(finding, target=target) for rule in rules for finding in advice(rule, context)]


def step_times_us(context: GraphContext) -> dict[str, float]:
    """The predicted step, by GPU."""
    estimates = (context.estimate(scenario) for scenario in context.scenarios)
    return {estimate.gpu.id: estimate.step_time_us for estimate in estimates}


def relative_finding(finding: Finding) -> Finding:
    """With its path as reports have it, which its fingerprint rests on."""
    location = replace(finding.location, path=relative_path(finding.location.path))
    return replace(finding, location=location)


def key_of(finding: Finding) -> Key:
    """What a finding is known by, with its path as reports have it."""
    return relative_finding(finding).key


def other_interface(before: Graph, after: Graph, dropped: Collection[str] = ()) -> str | None:
    """How a rewritten model differs from the one before it for its callers; None: in nothing.

    Args:
        before: as it was traced before the rewrite.
        after: as it was traced with it.
        dropped: parameters that the fix takes away.
    """
    if [spec.shape for spec in before.outputs] != [spec.shape for spec in after.outputs]:
        return "the edited model returns other shapes"
    theirs = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in after.parameters}
    ours = {parameter.name.removeprefix("_orig_mod."): parameter.shape for parameter in before.parameters}
    added = [name for name, shape in theirs.items() if ours.get(name) != shape]
    if added:
        return f"the edited model has another {added[0]}"
    gone = {name for name in dropped if name not in theirs}
    unread = sorted(trained(before) - trained(after) - gone)
    return f"the edited model no longer reads {unread[0]}" if unread else None


def trained(graph: Graph) -> set[str]:
    """The trainable parameters that its operators read."""
    read = {spec.parameter for op in graph.ops for spec in op.inputs if spec.parameter}
    return {
        one.name.removeprefix("_orig_mod.") for one in graph.parameters if one.trainable and one.name in read
    }
