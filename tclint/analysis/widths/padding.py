"""Prices the padding of dims, with everything coupled to them, over the whole step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tclint.analysis.change import Change, resize, together
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import gain_phrase
from tclint.analysis.options import Option, best_option, priced
from tclint.analysis.widths.alignment import (
    largest_power_of_two_in,
    padding_multiples,
    round_up,
)
from tclint.analysis.widths.heads import Heads, other_heads, with_equal_heads
from tclint.analysis.widths.interfaces import wider_inputs
from tclint.config.precisions import PRECISION_FACTS
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.lowering.step import forward_flops

_MAX_GROWTH = 1.5
"""A dim that would have to grow by more than this factor is too narrow to count as misaligned."""


LARGEST_CUT = 1 / 8
"""The largest share of a width or a batch that may be given up for a faster one."""

_Sizes = tuple[tuple[int, int], ...]
"""Distinct (present, other) sizes, smallest first."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to make dims aligned."""

    sizes: _Sizes
    inputs: _Sizes = ()
    heads: Heads | None = None
    saved_percent: float = 0.0
    """The percentage of the forward work that a smaller model saves."""

    @property
    def is_padding(self) -> bool:
        """Whether nothing becomes smaller, so that the model can still compute the same."""
        return self.heads is None and all(other >= present for present, other in self.sizes)


@dataclass(frozen=True, slots=True)
class Padding:
    """Dims made aligned together."""

    sizes: _Sizes
    effect: Effect
    change: Change
    unresolved: tuple[str, ...] = ()
    """The reasons why some of the dims could not change."""
    tried: tuple[tuple[_Sizes, float], ...] = ()
    """Every priced padding, with its gain in percent of the step, the mean over the GPUs."""
    inputs: _Sizes = ()
    """The data's own widths that are padded with zeros too."""
    heads: Heads | None = None
    """Another number of heads, and their size."""
    parameters_added: int | None = None
    """The number of added parameters if the architecture changes (a smaller size, other heads); else None."""
    instead: Padding | None = None
    """For a change of architecture: the padding that keeps the model as it is."""
    cut_back: Mapping[str, float] = field(default_factory=dict)
    """GPU id -> the gain in percent with the padded outputs cut back to their size; empty: none grows."""

    def gain_phrase(self) -> str:
        """The gain of `effect`, and that of `cut_back` where it is smaller."""
        return gain_phrase(self.effect, self.cut_back)

    def phrase(self, limit: int = 4) -> str:
        """'1001 -> 1008, 3003 -> 3008', '770 -> 768 with 6 heads of 128'."""
        heads = f" with {self.heads[0]} heads of {self.heads[1]}" if self.heads else ""
        return sizes_phrase(self.sizes, limit) + heads

    def evidence(self) -> dict[str, Any]:
        """Evidence for a finding: the sizes, the candidates with their gains, and the dims that cannot
        change."""
        found: dict[str, Any] = {
            "padding": [list(pair) for pair in self.sizes],
            **({"input_padding": [list(pair) for pair in self.inputs]} if self.inputs else {}),
            **({"heads": list(self.heads)} if self.heads else {}),
            **({} if self.parameters_added is None else {"parameters_added": self.parameters_added}),
            "candidates": [
                {"padding": [list(pair) for pair in sizes], "gain_percent": round(gain, 2)}
                for sizes, gain in self.tried
            ],
        }
        return found | ({"not_padded": list(self.unresolved)} if self.unresolved else {})


def sizes_phrase(sizes: _Sizes, limit: int = 4) -> str:
    """(present, other) sizes for a message: '520 -> 528, 1001 -> 1008'."""
    shown = ", ".join(f"{present} -> {padded}" for present, padded in sizes[:limit])
    return shown + (f" and {len(sizes) - limit} more" if len(sizes) > limit else "")


def best_padding(
    context: GraphContext,
    groups: Sequence[DimGroup],
    cost_of: Iterable[int],
    given: Mapping[int, int] | None = None,
    *,
    may_shrink: bool = False,
) -> Padding | Effect:
    """The padding of the groups that gains most, or an unknown effect with the reason.

    All groups are padded to one multiple, since a matrix is as fast as its worst aligned dim, and with
    them the other dims of the same size that the author may choose. Among paddings of equal gain the guides'
    preferred multiple wins, and a larger model wins over a smaller one. Of a smaller model, only the gain
    beyond the saved work counts.

    Args:
        context: the model.
        groups: the dims to pad.
        cost_of: indices of the ops concerned.
        given: op index -> input width of the data's own; each padding is also tried with zeros there.
        may_shrink: whether to try smaller sizes and other numbers of heads as well.
    """
    multiples = padding_multiples(context.settings.precision)
    if not multiples:
        return Effect(unknown=f"{context.settings.precision} has no alignment to pad to")
    movable, reasons = _resizable(context, _without_repetition(groups), multiples[0])
    if not movable:
        return Effect(unknown=reasons[0] if reasons else "nothing is known about what depends on this dim")
    movable = _with_the_same_width(context, movable, multiples[0])
    ways = list(_paddings(context, movable, multiples, given or {}, reasons))
    if may_shrink:
        ways += _architectures(context, movable, multiples)
    tried = priced(context, cost_of, ways, reasons)
    wanted = PRECISION_FACTS[context.settings.precision].largest_multiple or 1

    def liked(way: _Way) -> tuple[bool, bool, int, int]:
        aligned = min(min(largest_power_of_two_in(size), wanted) for _, size in way.sizes)
        return not way.inputs, way.is_padding, aligned, -sum(size for _, size in way.sizes)

    def worth(option: Option[_Way]) -> float:
        return option.gain_percent - max(option.what.saved_percent, 0.0)

    best = best_option(context, tried, liked, worth)
    if best is None:
        return Effect(unknown=reasons[0] if reasons else "no larger size fits")
    as_it_is = best_option(context, [option for option in tried if option.what.is_padding], liked)

    def padding(option: Option[_Way], instead: Padding | None = None) -> Padding:
        way, added = option.what, None
        if not way.is_padding:
            added = context.after(option.change).graph.parameter_count - context.graph.parameter_count
        gains = tuple(((*one.what.sizes, *one.what.inputs), one.gain_percent) for one in tried)
        return Padding(
            way.sizes,
            option.effect,
            option.change,
            tuple(dict.fromkeys(reasons)),
            gains,
            way.inputs,
            way.heads,
            added,
            instead,
            _gains_cut_back(context, option.change),
        )

    if best.what.is_padding or as_it_is is None or as_it_is.gain_percent <= 0.0:
        return padding(best)
    return padding(replace(best, change=replace(best.change, instead=as_it_is.change)), padding(as_it_is))


def _gains_cut_back(context: GraphContext, change: Change) -> dict[str, float]:
    steps_us = context.step_us_cut_back(change)
    before = (context.estimate(scenario) for scenario in context.scenarios)
    return {
        one.gpu.id: one.percent_of_step(one.step_time_us - steps_us[one.gpu.id]) for one in before if steps_us
    }


def _architectures(
    context: GraphContext, groups: Sequence[DimGroup], multiples: tuple[int, ...]
) -> Iterator[tuple[_Way, Change]]:
    """Smaller sizes, and widths near the present ones with other numbers of heads."""
    flops, seen = forward_flops(context.graph), set[tuple[_Sizes, Heads | None]]()
    for changes, heads in _smaller(context, groups, multiples):
        sizes = tuple(sorted({(group.size, size) for group, size in changes.items() if group.size != size}))
        shown = (
            sizes if heads is None else tuple(pair for pair in sizes if pair[0] in {g.size for g in groups})
        )
        if not shown or (sizes, heads) in seen:
            continue
        seen.add((sizes, heads))
        try:
            equal = with_equal_heads(context, changes, context.dims.resize(changes))
            smaller = context.dims.resize(equal)
        except DimsUnresolved:
            continue
        saved = 100.0 * (1.0 - forward_flops(smaller) / flops) if flops else 0.0
        yield _Way(shown, heads=heads, saved_percent=saved), resize(equal)


def _smaller(
    context: GraphContext, groups: Sequence[DimGroup], multiples: tuple[int, ...]
) -> Iterator[tuple[dict[DimGroup, int], Heads | None]]:
    for multiple in multiples:
        yield padded_sizes(context, groups, multiple, down=True), None
    for width in dict.fromkeys(group.size for group in groups if not group.is_output):
        near = {multiple * (width // multiple + up) for multiple in _HEADED for up in (0, 1)}
        near = {other for other in near if abs(other - width) <= LARGEST_CUT * width}
        for other, heads, sizes in other_heads(context, width, sorted(near)):
            roots = set(sizes)
            rest = [group for group in groups if not roots & set(group.roots)]
            aligned = padded_sizes(context, [group for group in rest if group.size != width], multiples[0])
            yield {**aligned, **{g: other for g in rest if g.size == width}, **sizes}, heads


_HEADED = (64, 128)
"""Widths that heads of a preferred size divide are multiples of one of these."""


def _paddings(
    context: GraphContext,
    groups: Sequence[DimGroup],
    multiples: tuple[int, ...],
    given: Mapping[int, int],
    reasons: list[str],
) -> Iterator[tuple[_Way, Change]]:
    """For each multiple the groups padded to it, without and with given inputs."""
    seen: set[_Sizes] = set()
    for multiple in multiples:
        changes = padded_sizes(context, groups, multiple)
        sizes = tuple(sorted({(group.size, size) for group, size in changes.items() if group.size != size}))
        if not sizes or sizes in seen:
            continue
        if seen and any(size > _MAX_GROWTH * present for present, size in sizes):
            break
        try:
            changes = with_equal_heads(context, changes, context.dims.resize(changes))
        except DimsUnresolved as error:
            reasons.append(str(error))
            continue
        seen.add(sizes)
        yield _Way(sizes), resize(changes)
        if given:
            inputs = {index: round_up(size, multiple) for index, size in given.items()}
            pairs = tuple(sorted({(size, inputs[index]) for index, size in given.items()}))
            yield _Way(sizes, pairs), together([resize(changes), wider_inputs(inputs)])


def padded_sizes(
    context: GraphContext, groups: Sequence[DimGroup], multiple: int, *, down: bool = False
) -> dict[DimGroup, int]:
    """Group -> its next multiple; groups of one size get the same one if all of them can have it.

    A group that can have no multiple at all is left out. With `down`, it is the multiple below, for widths
    that may shrink and lose little by it.
    """
    by_size: dict[tuple[int, bool], list[DimGroup]] = {}
    for group in groups:
        shrinks = down and not (group.is_output or group.is_vocabulary)
        by_size.setdefault((group.size, shrinks), []).append(group)
    changes: dict[DimGroup, int] = {}
    for (present, shrinks), same in by_size.items():
        smaller = _multiples(context, same, multiple, down=True) if shrinks else {}
        cuts_little = bool(smaller) and min(smaller.values()) >= (1 - LARGEST_CUT) * present
        sizes = smaller if cuts_little else _multiples(context, same, multiple)
        # 10 heads of 101 become 10 of 104, so the residual stream of 1010 has to become 1040 too.
        wanted = (min if cuts_little else max)(sizes.values(), default=0)
        for group, size in sizes.items():
            changes[group] = size if group.composite else wanted
    return changes


def _multiples(
    context: GraphContext, groups: Sequence[DimGroup], multiple: int, *, down: bool = False
) -> dict[DimGroup, int]:
    sizes = {
        group: context.dims.next_multiple(group, multiple * context.parts_of(group), down=down)
        for group in groups
    }
    return {group: size for group, size in sizes.items() if size is not None}


def _with_the_same_width(context: GraphContext, groups: list[DimGroup], multiple: int) -> list[DimGroup]:
    """The groups and others of the same sizes that can be resized with them."""
    wider = of_the_same_width(context, groups)
    if len(wider) == len(groups) or _resize(context, padded_sizes(context, wider, multiple)) is not None:
        return groups
    return wider


def of_the_same_width(context: GraphContext, groups: Sequence[DimGroup]) -> list[DimGroup]:
    """The groups and all others of the same sizes, since one written width can be a residual stream here and
    heads times head_dim there."""
    own = {group.id for group in groups}
    wider = list(groups)
    for size in dict.fromkeys(group.size for group in groups if not group.is_output):
        for group in context.dims.groups_of_size(size):
            interface = group.is_batch or group.is_output or group.is_vocabulary
            if group.id not in own and not (interface or group.fixed or group.unresolved):
                own.add(group.id)
                wider.append(group)
    return _without_repetition(wider)


def _without_repetition(groups: Sequence[DimGroup]) -> list[DimGroup]:
    """The groups without products of the same dims: 3 * heads * head_dim follows heads * head_dim."""
    found: dict[tuple[str, ...], DimGroup] = {}
    for group in sorted(groups, key=lambda group: group.size):
        key = tuple(sorted(root.id for root in group.roots)) if group.composite else (group.id,)
        found.setdefault(key, group)
    return list(found.values())


def _resizable(
    context: GraphContext, groups: Sequence[DimGroup], multiple: int
) -> tuple[list[DimGroup], list[str]]:
    """The groups that can be resized together, and the reasons why the others cannot."""
    changes = padded_sizes(context, groups, multiple)
    if len(changes) == len(groups) and _resize(context, changes) is None:
        return list(groups), []
    movable, reasons = [], []
    for group in groups:
        if group not in changes:
            reasons.append(group.unresolved or _misfit(group, multiple))
            continue
        reason = _resize(context, {group: changes[group]})
        if reason is None:
            movable.append(group)
        else:
            reasons.append(reason)
    if movable and _resize(context, padded_sizes(context, movable, multiple)) is not None:
        movable = movable[:1]
    return movable, reasons


def _misfit(group: DimGroup, multiple: int) -> str:
    parts = ", ".join(str(root.size) for root in group.roots)
    return f"{group.size} follows from other dims ({parts}), none of which makes it a multiple of {multiple}"


def _resize(context: GraphContext, changes: dict[DimGroup, int]) -> str | None:
    try:
        context.dims.resize(changes)
    except DimsUnresolved as error:
        return str(error)
    return None
