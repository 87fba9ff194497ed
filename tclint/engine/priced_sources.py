"""Prices the findings of training code with the model that is linted beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.core.finding import Finding, Related
from tclint.core.rule import Rule
from tclint.engine.model_pass import in_doubt
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.source.source_rule import SourceRule


@dataclass(frozen=True)
class Trained:
    """A traced model and the files of which the scripts that build it run something."""

    target: str
    context: GraphContext
    scripts: frozenset[str]
    """Absolute paths of the files."""


def priced(
    read: Sequence[Finding], traced: Sequence[Finding], rules: Sequence[Rule], models: Sequence[Trained]
) -> tuple[list[Finding], list[Finding]]:
    """Source findings with prices, and the traced findings without those that report the same problem.

    A rule states the effect of its fix on the model (`SourceRule.change`). The model that gains most gives
    the price, and the price gives the level: a warning if the gain exceeds the uncertainty of the times. A
    finding that gains nothing in any model is dropped.
    """
    by_code: dict[str, list[SourceRule]] = {}
    for rule in rules:
        if isinstance(rule, SourceRule):
            by_code.setdefault(rule.code, []).append(rule)
    replaced: set[int] = set()
    found = []
    for finding in read:
        options = [
            (model, change)
            for model in models
            if os.path.abspath(finding.location.path) in model.scripts
            for rule in by_code.get(finding.code, ())
            if (change := rule.change(finding, model.context)) is not None
        ]
        same = [
            other
            for other in traced
            if other.code == finding.code and other.target in {model.target for model, _ in options}
        ]
        prices = list(_prices(finding, options))
        best = max(prices, key=lambda one: one.effect.mean_gain_percent, default=finding)
        twin = next((other for other in same if other.target == best.target), None)
        if twin is not None:
            related = (*best.related, Related(twin.location, twin.message))
            best = replace(best, level=twin.level, effect=twin.effect, change=twin.change, related=related)
            replaced.update(map(id, same))
        if best is finding:
            found.append(finding)
        elif best.effect.mean_gain_percent > 0.0:
            # Rules use level info for findings without a price; with a price, the level follows it.
            level = best.level if best.level == "error" else "warning"
            found.append(in_doubt(replace(best, target=None, level=level)))
    return found, [finding for finding in traced if id(finding) not in replaced]


def _prices(finding: Finding, options: Sequence[tuple[Trained, object]]) -> Iterator[Finding]:
    for model, change in options:
        assert isinstance(change, Change)
        try:
            effect = model.context.effect(None, change)
        except DimsUnresolved:
            continue
        # The plan of fixes starts from the model as it was traced, not as it is resized.
        planned = None if change.sizes_before else change
        yield replace(finding, effect=effect, change=planned, target=model.target)
