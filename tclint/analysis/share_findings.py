"""A finding about layers that together take a share of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    share_percent,
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
    shares = share_percent(context, indices_of(ops) if concerned is None else concerned)
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
