"""Findings about layers that together take a share of the step, and such that torch.compile fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import (
    costliest,
    indices_of,
    layers_take,
    related_sites,
    rounded,
    sentence,
)
from tclint.core.finding import Effect, Finding, Fix, Level, Location
from tclint.graph.ops import Op


def share_finding(
    rule: GraphRule,
    context: GraphContext,
    ops: Sequence[Op],
    noun: str,
    words: str,
    *,
    effect: Effect,
    advice: str,
    concerned: Sequence[int] | None = None,
    evidence: Mapping[str, Any] | None = None,
    others: str = "another such layer",
    location: Location | None = None,
    identity: str = "",
    change: Change | None = None,
    level: Level | None = None,
) -> Finding:
    """'12 linear layers (blocks.*.fc) take 12.3 % of the step' + `words`, at the costliest layer's line.

    A finding about calls passes its `location`; the other lines are then calls too.

    Args:
        concerned: indices of the ops whose time counts; None: those of `ops`.
        others: the message at the other lines that construct such layers.
        location: the location of the finding; None: the costliest layer's line.
    """
    shares = context.share_percent(indices_of(ops) if concerned is None else concerned)
    first = costliest(context, ops)
    place = location or context.location(first)
    sites = [
        op.call_site or op.construct_site if location else op.construct_site or op.call_site for op in ops
    ]
    return rule.finding(
        place,
        f"{sentence(layers_take(ops, noun, shares))}{words}.",
        effect=effect,
        evidence={"layers": len(ops), "share_percent": rounded(shares), **(evidence or {})},
        fix=Fix(advice),
        related=(*(() if location else context.related(first)), *related_sites(sites, place, others)),
        identity=identity,
        change=change,
        level=level,
    )


Check = Callable[["GraphContext"], Iterator[Finding]]


def annotate_if_compile_fixes(
    context: GraphContext, check: Check, what: str = "pads such products"
) -> Iterator[Finding]:
    """The findings of `check`. Under torch.compile they include those of the eager model, marked as handled.

    Where the compiled step still gains (Inductor's padding copies, the source's does not), that gain is
    the effect; else the effect is that torch.compile handles it.

    Args:
        context: the model under the run's settings.
        check: a rule's check.
        what: the action of torch.compile in words: 'pads such products'.
    """
    if not context.settings.compiled:
        yield from check(context)
        return
    least = context.settings.min_gain_percent
    eager = {
        finding.fingerprint: finding
        for finding in check(context.with_settings(compiled=False))
        if (finding.effect.best_gain_percent or 0.0) >= least
    }
    for finding in check(context):
        gain_percent = finding.effect.best_gain_percent
        if gain_percent is None or gain_percent >= least:
            eager.pop(finding.fingerprint, None)
            yield _marked(finding, f"torch.compile handles this, it {what}; the gain is what remains.")
        elif finding.fingerprint not in eager:
            yield finding
    for finding in eager.values():
        marked = _marked(finding, f"That is eager execution: torch.compile handles this, it {what}.")
        yield replace(marked, effect=Effect(unknown=f"torch.compile handles this: it {what}"), change=None)


def _marked(finding: Finding, note: str) -> Finding:
    return replace(
        finding,
        level="info",
        message=f"{finding.message} {note}",
        evidence={**finding.evidence, "torch_compile_handles_this": True},
    )
