"""What another size of some dims is worth, be it larger or smaller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tclint.analysis.change import Change, resize
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import gain_phrase
from tclint.analysis.widths.padding import mean_gain_percent
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.lowering.step import forward_flops

LARGEST_CUT = 1 / 8
"""How much of a width or a batch may be given up for a faster one."""


@dataclass(frozen=True, slots=True)
class Resizing:
    """Dims at other sizes."""

    sizes: tuple[tuple[int, int], ...]
    """Distinct (present, other) sizes, smallest first."""
    effect: Effect
    change: Change
    flops_percent: float
    """How much less forward work the model does, as a share; negative: more."""

    def phrase(self) -> str:
        """'520 -> 512'."""
        return ", ".join(f"{present} -> {other}" for present, other in self.sizes)


def best_resizing(
    context: GraphContext,
    candidates: Iterable[Mapping[DimGroup, int]],
    cost_of: Sequence[int],
) -> Resizing | None:
    """The candidate that gains most over the work it saves; None where none can be resized.

    A smaller model is faster anyway: what counts is how much faster than its size explains.
    """
    best: Resizing | None = None
    for changes in candidates:
        try:
            changed = context.dims.resize(changes)
        except DimsUnresolved:
            continue
        flops = forward_flops(context.graph)
        saved_percent = 100.0 * (flops - forward_flops(changed)) / flops if flops else 0.0
        sizes = tuple(sorted({(group.size, size) for group, size in changes.items()}))
        effect = context.effect(cost_of, graph=changed)
        found = Resizing(sizes, effect, resize(changes), saved_percent)
        if best is None or _surplus(found) > _surplus(best):
            best = found
    return best


def surplus_percent(resizing: Resizing) -> float:
    """Gain of the step on the best GPU beyond the share of the work that is saved."""
    return (resizing.effect.best_gain_percent or 0.0) - max(resizing.flops_percent, 0.0)


def _surplus(resizing: Resizing) -> float:
    return mean_gain_percent(resizing.effect) - max(resizing.flops_percent, 0.0)


def the_batch(context: GraphContext) -> tuple[DimGroup, ...] | str:
    """The leading dims of the model's inputs, all of one size; else why there is no one batch."""
    batches = tuple(group for group in context.dims.groups if group.is_batch)
    sizes = sorted({group.size for group in batches})
    if len(sizes) > 1:
        return f"the inputs' leading dims differ ({', '.join(map(str, sizes[:4]))})"
    return batches or "no leading dim of an input is a batch"


def larger_batch(context: GraphContext, times: int, cost_of: Sequence[int]) -> tuple[Effect, str]:
    """What a batch that many times as large gains per sample in some ops, and the clause that says so."""
    batches = the_batch(context)
    if isinstance(batches, str):
        return Effect(unknown=batches), ""
    best = best_batch(context, batches, (batches[0].size * times,), cost_of)
    if isinstance(best, str):
        return Effect(unknown=best), ""
    return best.effect, f"; per sample, a batch of {best.phrase()} {gain_phrase(best.effect)}"


def best_batch(
    context: GraphContext, batches: Sequence[DimGroup], sizes: Iterable[int], cost_of: Sequence[int]
) -> Resizing | str:
    """The batch whose samples take the least time in the ops of `cost_of`; else why there is none.

    Gains are those of the present number of samples, and of these ops alone: a larger batch also spreads
    the optimizer's time over more samples, which is no finding.
    """
    best: Resizing | None = None
    reason = "there is no other batch to try"
    for size in sizes:
        present = batches[0].size
        try:
            changed = context.dims.resize(dict.fromkeys(batches, size))
        except DimsUnresolved as error:
            reason = str(error)
            continue
        effect = context.effect(cost_of, graph=changed, work_ratio=size / present, only_concerned=True)
        if best is None or mean_gain_percent(effect) > mean_gain_percent(best.effect):
            best = Resizing(((present, size),), effect, resize(dict.fromkeys(batches, size)), 0.0)
    return reason if best is None else best
