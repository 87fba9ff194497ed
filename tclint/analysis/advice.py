"""The advice of a rule on a model: its findings without those whose own price speaks against them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.options import TOLERATED
from tclint.core.finding import Effect, Finding
from tclint.core.rule import apply_rule
from tclint.graph.dims.coupled import DimsUnresolved


def advice(rule: GraphRule, context: GraphContext) -> list[Finding]:
    """The findings of a rule, with prices that justify those that a report lists.

    A finding's change is priced as a report prices the changed model, whatever price the rule gave it. A
    finding is left out if it gains nothing on the mean of the GPUs, or if the same rule would ask for
    something else once its change is made. Errors stay at any price. Findings that gain too little to be
    listed stay, since they may gain enough after other fixes.
    """
    found = [_priced(context, one) for one in apply_rule(rule, context, context.root_location())]
    known = frozenset(finding.key for finding in found if gains(finding, context))
    return [
        finding
        for finding in found
        if finding.level == "error"
        or not is_listed(finding, context)
        or (gains(finding, context) and not asked_again(rule, context, finding, known))
    ]


def is_listed(finding: Finding, context: GraphContext) -> bool:
    """Whether a report lists a finding: it gains enough on one of the GPUs, or it has no price."""
    gain_percent = finding.effect.best_gain_percent
    least = context.settings.min_gain_percent
    return finding.level == "error" or gain_percent is None or gain_percent >= least


def gains(finding: Finding, context: GraphContext) -> bool:
    """Whether a finding gains on the mean of the GPUs; if it loses on some, the gain has to exceed the
    tolerance between options."""
    per_gpu = finding.effect.per_gpu
    if not per_gpu or finding.level == "error":
        return True
    loses = any(gain.gain_percent < 0.0 for gain in per_gpu.values())
    least = TOLERATED * context.settings.min_gain_percent if loses else 0.0
    return finding.effect.mean_gain_percent > least


def _priced(context: GraphContext, finding: Finding) -> Finding:
    if not isinstance(finding.change, Change):
        return finding
    try:
        return replace(finding, effect=context.effect(finding.effect.op_indices, finding.change))
    except DimsUnresolved as error:
        return replace(finding, effect=Effect(unknown=str(error)), change=None)


def asked_again(
    rule: GraphRule, context: GraphContext, finding: Finding, known: Set[object]
) -> list[Finding]:
    """The new findings that a rule lists for the model after the change of one of its findings.

    Advice is final if there are none. If the finding itself persists, it is among them.

    Args:
        rule: the rule of the finding.
        context: the unchanged model.
        finding: a finding with a change.
        known: keys of all findings of the rule on the unchanged model.
    """
    change = finding.change
    if not isinstance(change, Change):
        return []
    made = context.with_settings(**change.presupposes).after(change)
    again = (_priced(made, one) for one in apply_rule(rule, made, made.root_location()))
    return [
        other
        for other in again
        if (other.key == finding.key or other.key not in known)
        and is_listed(other, made)
        and gains(other, made)
    ]
