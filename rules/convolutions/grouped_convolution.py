"""Convolutions that sum over groups of channels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import gcd

from tclint.analysis.change import Change
from tclint.analysis.layers import (
    by_line,
    convolutions,
    costliest,
    gain_phrase,
    groups_of,
    indices_of,
    is_depthwise,
    layers_take,
    rounded,
    sentence,
    share_percent,
    worth_pricing,
)
from tclint.analysis.options import best_option, priced
from tclint.analysis.what_if.layer_edits import regrouped
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.core.units import count
from tclint.plugin import Finding, Fix, GraphContext, GraphRule, Op


class GroupedConvShape(GraphRule):
    """A grouped convolution is slower than one with fewer groups.

    What it does
    Prices every grouped convolution that is not depthwise with fewer groups of the same channels, down to
    one, and reports the number of groups that gains most.

    Why it costs
    cuDNN's grouped Tensor Core kernels exist for some widths of a group and some numbers of groups, fewer of
    them for the gradients. Others run as many small products, in another memory format, or on CUDA cores: a
    dense convolution can take less time although it multiplies many times as much.

    Example
        nn.Conv2d(896, 896, 3, groups=16)     # 56 channels per group

    Use instead
        nn.Conv2d(896, 896, 3)                # more weights; it can compute all that the grouped one can

    When it does not apply
    Depthwise convolutions (one channel per group) have kernels of their own. Models whose parameters or
    FLOPs count. Where the memory format is what makes the groups slow, channels-last-loses says so too.
    """

    code = "ARC003"
    name = "grouped-conv-shape"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, grouped convolutions: channels per group of the Tensor Core kernels",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        grouped = [op for op in convolutions(context.graph) if _is_grouped(op)]
        for ops in by_line(grouped).values():
            if worth_pricing(context, indices_of(ops)):
                yield from self._findings(context, ops)

    def _findings(self, context: GraphContext, ops: list[Op]) -> Iterator[Finding]:
        concerned = indices_of(ops)
        best = best_option(context, priced(context, concerned, _options(ops)))
        if best is None:
            return
        groups = sorted({(groups_of(op), max(groups_of(op) // best.what, 1)) for op in ops})
        changes = ", ".join(f"{present} -> {other}" for present, other in groups[:4])
        first = costliest(context, ops)
        shares = share_percent(context, concerned)
        added = context.after(best.change).graph.parameter_count - context.graph.parameter_count
        yield self.finding(
            context.location(first),
            f"{sentence(layers_take(ops, 'grouped convolution', shares))}; groups {changes} with the same "
            f"channels, {count(added)} parameters more, {gain_phrase(best.effect)}.",
            effect=best.effect,
            evidence={
                "groups": [list(pair) for pair in groups],
                "parameters_added": added,
                "share_percent": rounded(shares),
            },
            fix=Fix(
                f"Where the model may have more weights, build these convolutions with groups {changes}; a "
                "weight of fewer groups holds the old one's blocks, and zeros between them."
            ),
            related=context.related(first),
            change=best.change,
        )


def _is_grouped(op: Op) -> bool:
    source, weight = op.input("input"), op.input("weight")
    whole = source is not None and weight is not None and len(source.shape) == len(weight.shape)
    return whole and groups_of(op) > 1 and not is_depthwise(op)


def _options(ops: list[Op]) -> Iterator[tuple[int, Change]]:
    """(number of groups merged into one, change) for each common divisor of the convolutions' groups, and for
    merging all groups."""
    common = gcd(*(groups_of(op) for op in ops))
    times = [number for number in range(2, common + 1) if common % number == 0]
    for together in (*times, max(groups_of(op) for op in ops)):
        yield together, Change(edit=partial(regrouped, ops=ops, times=together))
