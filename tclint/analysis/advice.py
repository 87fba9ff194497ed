"""What a rule advises of a model: its findings, less those that their own price speaks against."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.options import TOLERATED, mean_gain_percent
from tclint.core.finding import Effect, Finding
from tclint.core.rule import apply_rule
from tclint.graph.dims.coupled import DimsUnresolved


def advice(rule: GraphRule, context: GraphContext) -> list[Finding]:
    """The findings of a rule, with their prices; those that a report lists hold by these.

    A finding's change is priced as a report prices the changed model, whatever price the rule gave it. What
    gains nothing on the mean of the GPUs is not listed, nor what would, once it is made, have the same rule
    ask for something else. Errors hold at any price. What gains too little to be listed may do so after other
    fixes, and stays.
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
    """Whether a report lists it for its gain on one of the GPUs, or for want of a price."""
    gain_percent = finding.effect.best_gain_percent
    least = context.settings.min_gain_percent
    return finding.level == "error" or gain_percent is None or gain_percent >= least


def gains(finding: Finding, context: GraphContext) -> bool:
    """Whether it gains on the mean of the GPUs; where some lose, by more than what options may differ by."""
    per_gpu = finding.effect.per_gpu
    if not per_gpu or finding.level == "error":
        return True
    loses = any(gain.gain_percent < 0.0 for gain in per_gpu.values())
    least = TOLERATED * context.settings.min_gain_percent if loses else 0.0
    return mean_gain_percent(finding.effect) > least


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
    """What a rule lists of the model with one of its findings' changes made, and had not found before.

    Advice is final where this is nothing. The finding itself is among it where it is still there.

    Args:
        rule: whose finding it is.
        context: the model as it is.
        finding: with a change.
        known: keys of all findings of the rule.
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
