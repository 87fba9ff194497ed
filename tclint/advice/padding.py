"""What padding a dim, and everything coupled to it, is worth for the whole step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tclint.advice.alignment import AMPERE_MULTIPLE, largest_power_of_two_in, padding_multiples, round_up
from tclint.finding import Effect

from tclint.graph.dims import DimsUnresolved

if TYPE_CHECKING:
    from tclint.context import GraphContext
    from tclint.graph.dims import DimGroup

_SAME_GAIN = 0.05
"""Gains that differ by less than this part are equal: held-out errors of the cost model are larger."""

_MAX_GROWTH = 1.5
"""A dim that would have to grow by more than this is too narrow to be called misaligned."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Dims made larger together."""

    sizes: tuple[tuple[int, int], ...]
    """Distinct (present, padded) sizes, smallest first."""
    effect: Effect
    unresolved: tuple[str, ...] = ()
    """Why some of the dims had to stay as they are."""

    def phrase(self, limit: int = 4) -> str:
        """'1001 -> 1008, 3003 -> 3008'."""
        shown = ", ".join(f"{present} -> {padded}" for present, padded in self.sizes[:limit])
        return shown + (f" and {len(self.sizes) - limit} more" if len(self.sizes) > limit else "")


def best_padding(
    context: GraphContext,
    groups: Sequence[DimGroup],
    cost_of: Iterable[int],
    *,
    multiples: tuple[int, ...] | None = None,
) -> Padding | Effect:
    """The padding of the groups that gains most, or an unknown effect with the reason.

    All groups are padded to one multiple, since a matrix is as fast as its worst aligned dim. Among
    paddings of equal gain the guides' preferred multiple wins.
    """
    concerned = tuple(cost_of)
    multiples = multiples or padding_multiples(context.settings.precision)
    if not multiples:
        return Effect(unknown=f"{context.settings.precision} has no alignment to pad to")
    movable, reasons = _resizable(context, groups, multiples[0])
    if not movable:
        return Effect(unknown=reasons[0] if reasons else "nothing is known about what depends on this dim")
    tried: dict[tuple[tuple[int, int], ...], Effect] = {}
    for multiple in multiples:
        changes = {group: round_up(group.size, multiple) for group in movable}
        sizes = tuple(sorted({(group.size, size) for group, size in changes.items() if group.size != size}))
        if not sizes or sizes in tried:
            continue
        if tried and any(size > _MAX_GROWTH * present for present, size in sizes):
            break
        try:
            changed = context.dims.resize(changes)
        except DimsUnresolved as error:
            reasons.append(str(error))
            continue
        tried[sizes] = context.effect(concerned, graph=changed)
    if not tried:
        return Effect(unknown=reasons[0] if reasons else "no larger size fits")
    sizes = _preferred(tried, context)
    return Padding(sizes, tried[sizes], tuple(dict.fromkeys(reasons)))


def mean_gain_percent(effect: Effect) -> float:
    """Over the GPUs: a change is chosen for all of them."""
    gains = [gain.gain_percent for gain in effect.per_gpu.values()]
    return sum(gains) / len(gains) if gains else 0.0


def _preferred(tried: dict[tuple[tuple[int, int], ...], Effect], context: GraphContext) -> tuple[tuple[int, int], ...]:
    best = max(mean_gain_percent(effect) for effect in tried.values())
    tolerance = _SAME_GAIN * abs(best)
    equal = [sizes for sizes, effect in tried.items() if mean_gain_percent(effect) >= best - tolerance]
    wanted = AMPERE_MULTIPLE.get(context.settings.precision, 1)

    def alignment(sizes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        aligned = min(min(largest_power_of_two_in(size), wanted) for _, size in sizes)
        return aligned, -sum(size for _, size in sizes)

    return max(equal, key=alignment)


def _resizable(
    context: GraphContext, groups: Sequence[DimGroup], multiple: int
) -> tuple[list[DimGroup], list[str]]:
    """The groups that can be resized together, and why the others cannot."""
    if _resize(context, {group: round_up(group.size, multiple) for group in groups}) is None:
        return list(groups), []
    movable, reasons = [], []
    for group in groups:
        reason = _resize(context, {group: round_up(group.size, multiple)})
        if reason is None:
            movable.append(group)
        else:
            reasons.append(reason)
    if movable and _resize(context, {group: round_up(group.size, multiple) for group in movable}) is not None:
        movable = movable[:1]
    return movable, reasons


def _resize(context: GraphContext, changes: dict[DimGroup, int]) -> str | None:
    try:
        context.dims.resize(changes)
    except DimsUnresolved as error:
        return str(error)
    return None


