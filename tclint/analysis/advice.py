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
    """The findings of a rule that hold by the model's own price.

    A finding's change is priced as a report prices the changed model, whatever price the rule gave it. What
    gains nothing on the mean of the GPUs is not advised, nor what would be listed and, once it is made, have
    the same rule ask for something else. Errors hold at any price.
    """
    found = _gaining(rule, context)
    known = frozenset(finding.key for finding in found)
    return [
        finding
        for finding in found
        if finding.level == "error"
        or not isinstance(finding.change, Change)
        or not _is_listed(finding, context)
        or not asked_again(rule, context, finding, known)
    ]


def _gaining(rule: GraphRule, context: GraphContext) -> list[Finding]:
    priced = (_priced(context, one) for one in apply_rule(rule, context, context.root_location()))
    return [one for one in priced if one.level == "error" or not one.effect.per_gpu or _gains(one, context)]


def _gains(finding: Finding, context: GraphContext) -> bool:
    """On the mean of the GPUs; where some lose, by more than what options may differ by."""
    gain_percent = mean_gain_percent(finding.effect)
    if all(gain.gain_percent >= 0.0 for gain in finding.effect.per_gpu.values()):
        return gain_percent > 0.0
    return gain_percent > TOLERATED * context.settings.min_gain_percent


def _is_listed(finding: Finding, context: GraphContext) -> bool:
    gain_percent = finding.effect.best_gain_percent
    least = context.settings.min_gain_percent
    return finding.level == "error" or gain_percent is None or gain_percent >= least


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
    assert isinstance(finding.change, Change)
    made = context.with_settings(**finding.change.presupposes).after(finding.change)
    return [
        other
        for other in _gaining(rule, made)
        if (other.key == finding.key or other.key not in known) and _is_listed(other, made)
    ]
