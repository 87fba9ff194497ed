"""Prices other sizes of some dims, larger or smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tclint.analysis.change import Change, resize
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import gain_phrase
from tclint.analysis.options import Option, best_option, priced
from tclint.analysis.what_if.comparisons import batch_limits
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.lowering.step import forward_flops


@dataclass(frozen=True, slots=True)
class Resizing:
    """Dims at other sizes."""

    sizes: tuple[tuple[int, int], ...]
    """Distinct (present, other) sizes, smallest first."""
    effect: Effect
    change: Change
    flops_percent: float
    """The percentage of the forward work that is saved; negative if the work grows."""

    def phrase(self) -> str:
        """'520 -> 512'."""
        return ", ".join(f"{present} -> {other}" for present, other in self.sizes)


def best_resizing(
    context: GraphContext, candidates: Iterable[Mapping[DimGroup, int]], cost_of: Sequence[int]
) -> Resizing | None:
    """The candidate that gains most beyond the work that it saves; None if none can be resized.

    A smaller model is faster anyway, so only the gain beyond its smaller size counts.
    """
    flops = forward_flops(context.graph)

    def options() -> Iterator[tuple[float, Change]]:
        for sizes in candidates:
            try:
                changed = context.dims.resize(dict(sizes))
            except DimsUnresolved:
                continue
            yield 100.0 * (flops - forward_flops(changed)) / flops if flops else 0.0, resize(sizes)

    tried = priced(context, cost_of, options())
    best = best_option(context, tried, worth=lambda option: option.gain_percent - max(option.what, 0.0))
    if best is None:
        return None
    sizes = tuple(sorted({(group.size, size) for group, size in best.change.sizes}))
    return Resizing(sizes, best.effect, best.change, best.what)


def surplus_percent(resizing: Resizing) -> float:
    """The gain of the step on the best GPU beyond the percentage of the work that is saved."""
    return (resizing.effect.best_gain_percent or 0.0) - max(resizing.flops_percent, 0.0)


def the_batch(context: GraphContext) -> tuple[DimGroup, ...] | str:
    """The leading dims of the model's inputs if all have one size; else the reason why there is no single
    batch."""
    batches = tuple(group for group in context.dims.groups if group.is_batch)
    sizes = sorted({group.size for group in batches})
    if len(sizes) > 1:
        return f"the inputs' leading dims differ ({', '.join(map(str, sizes[:4]))})"
    return batches or "no leading dim of an input is a batch"


_STEP = 4
"""The factor by which a batch is enlarged until it is enough."""
_MOST_BATCH = 1 << 16
"""The largest batch to try if the memory of a batch is unknown."""


def larger_batch(
    context: GraphContext, times: float, cost_of: Sequence[int], is_enough: Callable[[GraphContext], bool]
) -> tuple[Effect, str, Change | None] | None:
    """(gain per sample, clause for a message, change) of the first larger batch that is enough.

    If no batch that fits the GPU is enough, it is the smallest of those that gain most; None if none gains
    what a report lists.

    Args:
        context: the model.
        times: the multiple of the present batch from which on to try.
        cost_of: the ops concerned.
        is_enough: tells for the model at another batch whether it needs no larger one.
    """
    batches = the_batch(context)
    if isinstance(batches, str):
        return Effect(unknown=batches), "", None
    limits = (batch_limits(context, scenario).largest for scenario in context.scenarios)
    most = min((limit for limit in limits if limit), default=_MOST_BATCH)
    size, tried = math.ceil(batches[0].size * times), list[Option[int]]()
    enough: Option[int] | None = None
    while size <= most and enough is None:
        change = batch_change(batches, size)
        try:
            tried.append(Option(size, change, context.effect(cost_of, change)))
            enough = tried[-1] if is_enough(context.after(change)) else None
        except DimsUnresolved as error:
            return Effect(unknown=str(error)), "", None
        size *= _STEP
    best = enough or best_option(context, tried, liked=lambda size: -size)
    # A gain outside these ops is only the optimizer's time spread over more samples, and no finding.
    if best is None or context.own_gain_percent(cost_of, best.change) < context.settings.min_gain_percent:
        return None
    words = f"; per sample, a batch of {batches[0].size} -> {best.what} {gain_phrase(best.effect)}"
    return best.effect, words, best.change


def batch_change(batches: Sequence[DimGroup], size: int) -> Change:
    """The change to another batch, whose step is compared per sample."""
    return replace(resize(dict.fromkeys(batches, size)), samples=size / batches[0].size)
