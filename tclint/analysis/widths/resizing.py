"""What another size of some dims is worth, be it larger or smaller."""

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
    """How much less forward work the model does, as a share; negative: more."""

    def phrase(self) -> str:
        """'520 -> 512'."""
        return ", ".join(f"{present} -> {other}" for present, other in self.sizes)


def best_resizing(
    context: GraphContext, candidates: Iterable[Mapping[DimGroup, int]], cost_of: Sequence[int]
) -> Resizing | None:
    """The candidate that gains most over the work it saves; None where none can be resized.

    A smaller model is faster anyway: what counts is how much faster than its size explains.
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
    """Gain of the step on the best GPU beyond the share of the work that is saved."""
    return (resizing.effect.best_gain_percent or 0.0) - max(resizing.flops_percent, 0.0)


def the_batch(context: GraphContext) -> tuple[DimGroup, ...] | str:
    """The leading dims of the model's inputs, all of one size; else why there is no one batch."""
    batches = tuple(group for group in context.dims.groups if group.is_batch)
    sizes = sorted({group.size for group in batches})
    if len(sizes) > 1:
        return f"the inputs' leading dims differ ({', '.join(map(str, sizes[:4]))})"
    return batches or "no leading dim of an input is a batch"


_STEP = 4
"""Times a batch is raised until it is enough."""
_MOST_BATCH = 1 << 16
"""Where the memory of a batch is not known."""


def larger_batch(
    context: GraphContext, times: float, cost_of: Sequence[int], is_enough: Callable[[GraphContext], bool]
) -> tuple[Effect, str, Change | None] | None:
    """What the first larger batch that is enough gains per sample, its clause, and the change.

    Where none that fits the GPU is enough, it is the smallest of those that gain most; None where none gains
    what a report lists.

    Args:
        context: the model.
        times: the present batch from which on to try.
        cost_of: ops whose time is concerned.
        is_enough: of the model at another batch, whether there is no more to ask for.
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
    # What the ops do not gain themselves is the optimizer's time, spread over more samples: no finding.
    if best is None or context.own_gain_percent(cost_of, best.change) < context.settings.min_gain_percent:
        return None
    words = f"; per sample, a batch of {batches[0].size} -> {best.what} {gain_phrase(best.effect)}"
    return best.effect, words, best.change


def batch_change(batches: Sequence[DimGroup], size: int) -> Change:
    """Another batch, whose step is compared per sample."""
    return replace(resize(dict.fromkeys(batches, size)), samples=size / batches[0].size)
