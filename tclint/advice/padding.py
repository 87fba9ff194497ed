"""What padding a dim, and everything coupled to it, is worth for the whole step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
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


_Sizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Padding:
    """Dims made larger together."""

    sizes: _Sizes
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
    movable, reasons = _resizable(context, _without_repetition(groups), multiples[0])
    if not movable:
        return Effect(unknown=reasons[0] if reasons else "nothing is known about what depends on this dim")
    steps = _steps(movable)
    tried: dict[_Sizes, Effect] = {}
    for multiple in multiples:
        changes = _padded(movable, steps, multiple)
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


def _without_repetition(groups: Sequence[DimGroup]) -> list[DimGroup]:
    """The groups without products of the same dims: 3 * heads * head_dim follows heads * head_dim."""
    found: dict[tuple[str, ...], DimGroup] = {}
    for group in sorted(groups, key=lambda group: group.size):
        key = tuple(sorted(root.id for root in group.roots)) if group.composite else (group.id,)
        found.setdefault(key, group)
    return list(found.values())


def _steps(groups: Sequence[DimGroup]) -> dict[int, int]:
    """For every size, what it must stay a multiple of: 12 heads make a width a multiple of 12.

    Groups of one size are padded alike: a width that its author wrote once is a residual stream here and
    heads times head_dim there.
    """
    steps: dict[int, int] = {}
    for group in groups:
        step = 1
        if group.composite and group.roots and group.size % group.roots[-1].size == 0:
            step = group.size // group.roots[-1].size
        steps[group.size] = lcm(steps.get(group.size, 1), step)
    return steps


def _padded(groups: Sequence[DimGroup], steps: dict[int, int], multiple: int) -> dict[DimGroup, int]:
    return {group: round_up(group.size, lcm(multiple, steps[group.size])) for group in groups}


def mean_gain_percent(effect: Effect) -> float:
    """Over the GPUs: a change is chosen for all of them."""
    gains = [gain.gain_percent for gain in effect.per_gpu.values()]
    return sum(gains) / len(gains) if gains else 0.0


def _preferred(tried: dict[_Sizes, Effect], context: GraphContext) -> _Sizes:
    best = max(mean_gain_percent(effect) for effect in tried.values())
    tolerance = _SAME_GAIN * abs(best)
    equal = [sizes for sizes, effect in tried.items() if mean_gain_percent(effect) >= best - tolerance]
    wanted = AMPERE_MULTIPLE.get(context.settings.precision, 1)

    def alignment(sizes: _Sizes) -> tuple[int, int]:
        aligned = min(min(largest_power_of_two_in(size), wanted) for _, size in sizes)
        return aligned, -sum(size for _, size in sizes)

    return max(equal, key=alignment)


def _resizable(
    context: GraphContext, groups: Sequence[DimGroup], multiple: int
) -> tuple[list[DimGroup], list[str]]:
    """The groups that can be resized together, and why the others cannot."""
    changes = _padded(groups, _steps(groups), multiple)
    if _resize(context, changes) is None:
        return list(groups), []
    movable, reasons = [], []
    for group in groups:
        reason = _resize(context, {group: changes[group]})
        if reason is None:
            movable.append(group)
        else:
            reasons.append(reason)
    if movable and _resize(context, {group: changes[group] for group in movable}) is not None:
        movable = movable[:1]
    return movable, reasons


def _resize(context: GraphContext, changes: dict[DimGroup, int]) -> str | None:
    try:
        context.dims.resize(changes)
    except DimsUnresolved as error:
        return str(error)
    return None
