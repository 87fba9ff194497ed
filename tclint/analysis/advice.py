"""What a rule advises of a model: its findings, less those that their own price speaks against."""

from __future__ import annotations

from dataclasses import replace

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.options import mean_gain_percent
from tclint.core.finding import Effect, Finding
from tclint.core.rule import apply_rule
from tclint.graph.dims.coupled import DimsUnresolved


def advice(rule: GraphRule, context: GraphContext) -> list[Finding]:
    """The findings of a rule that hold by the model's own price.

    A finding's change is priced as a report prices the changed model, whatever price the rule gave it. What
    gains nothing on the mean of the GPUs is not advised. Errors hold at any price.
    """
    priced = (_priced(context, one) for one in apply_rule(rule, context, context.root_location()))
    return [
        one
        for one in priced
        if one.level == "error" or not one.effect.per_gpu or mean_gain_percent(one.effect) > 0.0
    ]


def _priced(context: GraphContext, finding: Finding) -> Finding:
    if not isinstance(finding.change, Change):
        return finding
    try:
        return replace(finding, effect=context.effect(finding.effect.op_indices, finding.change))
    except DimsUnresolved as error:
        return replace(finding, effect=Effect(unknown=str(error)), change=None)


def asked_again(rule: GraphRule, context: GraphContext, finding: Finding) -> list[Finding]:
    """What a rule lists of the model with one of its findings' changes made, and had not found before.

    Advice is final where this is nothing. The finding itself is among it where it is still there.
    """
    assert isinstance(finding.change, Change)
    present = context.with_settings(**finding.change.presupposes)
    known = {other.key for other in advice(rule, present)} - {finding.key}
    least = context.settings.min_gain_percent
    return [
        other
        for other in advice(rule, present.after(finding.change))
        if other.key not in known
        and (other.level == "error" or (other.effect.best_gain_percent or least) >= least)
    ]
