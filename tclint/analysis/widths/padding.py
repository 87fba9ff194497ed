"""What padding a dim, and everything coupled to it, is worth for the whole step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.change import Change, resize, together
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import operand_positions
from tclint.analysis.options import best_option, priced
from tclint.analysis.widths.alignment import (
    ampere_multiple,
    largest_power_of_two_in,
    padding_multiples,
    round_up,
)
from tclint.analysis.widths.interfaces import wider_inputs
from tclint.core.finding import Effect
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.ops import Graph


def with_equal_heads(
    context: GraphContext, changes: dict[DimGroup, int], changed: Graph
) -> dict[DimGroup, int]:
    """The changes, and those that keep the heads of queries and values equal where they were.

    Only the scores' product ties queries to keys; values may have heads of another size, and then one name
    in the code would stand for two numbers.

    Args:
        context: the model.
        changes: groups and their new sizes.
        changed: the graph with them.
    """
    extra: dict[DimGroup, int] = {}
    for block in context.once(_blocks):
        (query, query_at), (value, value_at) = _places(block)
        ops = context.graph.ops
        if ops[query].inputs[query_at].shape[-1] != ops[value].inputs[value_at].shape[-1]:
            continue
        sizes = [
            changed.ops[index].inputs[position].shape[-1]
            for index, position in ((query, query_at), (value, value_at))
        ]
        if sizes[0] == sizes[1]:
            continue
        index, position = (query, query_at) if sizes[0] < sizes[1] else (value, value_at)
        axis = len(ops[index].inputs[position].shape) - 1
        group = context.dims.group_of_input(index, position, axis)
        if group is not None and not (group.fixed or group.unresolved):
            extra[group] = max(sizes)
    return changes | extra


def _blocks(context: GraphContext) -> tuple[AttentionBlock, ...]:
    return tuple(block for block in attention_blocks(context.graph) if _is_known(block))


def _is_known(block: AttentionBlock) -> bool:
    if block.is_fused:
        return all(name in block.ops[0].input_names for name in ("query", "value"))
    return all(operand_positions(op) is not None for op in (block.ops[0], block.ops[-1]))


def _places(block: AttentionBlock) -> tuple[tuple[int, int], tuple[int, int]]:
    """(op, input) of the queries and of the values."""
    first, last = block.ops[0], block.ops[-1]
    if block.is_fused:
        names = first.input_names
        return (first.index, names.index("query")), (first.index, names.index("value"))
    queries, values = operand_positions(first), operand_positions(last)
    assert queries is not None
    assert values is not None
    return (first.index, queries[0]), (last.index, values[1])


_MAX_GROWTH = 1.5
"""A dim that would have to grow by more than this is too narrow to be called misaligned."""


_Sizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Padding:
    """Dims made larger together."""

    sizes: _Sizes
    """Distinct (present, padded) sizes, smallest first."""
    effect: Effect
    change: Change
    unresolved: tuple[str, ...] = ()
    """Why some of the dims had to stay as they are."""
    tried: tuple[tuple[_Sizes, float], ...] = ()
    """Every padding that was priced, with its gain in percent of the step, the mean over the GPUs."""
    inputs: _Sizes = ()
    """The data's own widths that are padded with zeros too."""

    def phrase(self, limit: int = 4) -> str:
        """'1001 -> 1008, 3003 -> 3008'."""
        return sizes_phrase(self.sizes, limit)

    def evidence(self) -> dict[str, Any]:
        """For a finding: the sizes, the candidates with their gains, and what could not be padded."""
        found: dict[str, Any] = {
            "padding": [list(pair) for pair in self.sizes],
            **({"input_padding": [list(pair) for pair in self.inputs]} if self.inputs else {}),
            "candidates": [
                {"padding": [list(pair) for pair in sizes], "gain_percent": round(gain, 2)}
                for sizes, gain in self.tried
            ],
        }
        return found | ({"not_padded": list(self.unresolved)} if self.unresolved else {})


def sizes_phrase(sizes: _Sizes, limit: int = 4) -> str:
    shown = ", ".join(f"{present} -> {padded}" for present, padded in sizes[:limit])
    return shown + (f" and {len(sizes) - limit} more" if len(sizes) > limit else "")


def best_padding(
    context: GraphContext,
    groups: Sequence[DimGroup],
    cost_of: Iterable[int],
    given: Mapping[int, int] | None = None,
) -> Padding | Effect:
    """The padding of the groups that gains most, or an unknown effect with the reason.

    All groups are padded to one multiple, since a matrix is as fast as its worst aligned dim, and with
    them the other dims of the same size that the author may choose. Among paddings of equal gain the guides'
    preferred multiple wins.

    Args:
        context: the model.
        groups: what is padded.
        cost_of: indices of the ops concerned.
        given: by op index, input widths of the data's own; each padding is tried with zeros there, too.
    """
    multiples = padding_multiples(context.settings.precision)
    if not multiples:
        return Effect(unknown=f"{context.settings.precision} has no alignment to pad to")
    movable, reasons = _resizable(context, _without_repetition(groups), multiples[0])
    if not movable:
        return Effect(unknown=reasons[0] if reasons else "nothing is known about what depends on this dim")
    movable = _with_the_same_width(context, movable, multiples[0])
    tried = priced(context, cost_of, _paddings(context, movable, multiples, given or {}, reasons), reasons)
    wanted = ampere_multiple(context.settings.precision) or 1

    def alignment(padded: tuple[_Sizes, _Sizes]) -> tuple[bool, int, int]:
        sizes, inputs = padded
        aligned = min(min(largest_power_of_two_in(size), wanted) for _, size in sizes)
        return not inputs, aligned, -sum(size for _, size in sizes)

    best = best_option(context, tried, alignment)
    if best is None:
        return Effect(unknown=reasons[0] if reasons else "no larger size fits")
    sizes, inputs = best.what
    return Padding(
        sizes,
        best.effect,
        best.change,
        tuple(dict.fromkeys(reasons)),
        tuple(((*option.what[0], *option.what[1]), option.gain_percent) for option in tried),
        inputs,
    )


def _paddings(
    context: GraphContext,
    groups: Sequence[DimGroup],
    multiples: tuple[int, ...],
    given: Mapping[int, int],
    reasons: list[str],
) -> Iterator[tuple[tuple[_Sizes, _Sizes], Change]]:
    """Distinct (present, padded) sizes of the groups and of given inputs, and the change, by multiple."""
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
        yield (sizes, ()), resize(changes)
        if given:
            inputs = {index: round_up(size, multiple) for index, size in given.items()}
            pairs = tuple(sorted({(size, inputs[index]) for index, size in given.items()}))
            yield (sizes, pairs), together([resize(changes), wider_inputs(inputs)])


def padded_sizes(context: GraphContext, groups: Sequence[DimGroup], multiple: int) -> dict[DimGroup, int]:
    """The next multiple of every group, groups of one size alike where all of them can take it.

    A group that can take no multiple at all is left out.
    """
    by_size: dict[int, list[DimGroup]] = {}
    for group in groups:
        by_size.setdefault(group.size, []).append(group)
    changes: dict[DimGroup, int] = {}
    for same in by_size.values():
        sizes = {group: context.dims.next_multiple(group, multiple) for group in same}
        # 10 heads of 101 become 10 of 104, which is what the residual stream of 1010 has to be, too.
        wanted = max((size for size in sizes.values() if size is not None), default=None)
        for group, size in sizes.items():
            if size is not None and wanted is not None:
                changes[group] = size if group.composite else wanted
    return changes


def _with_the_same_width(context: GraphContext, groups: list[DimGroup], multiple: int) -> list[DimGroup]:
    """The groups and others of their sizes, where those can be resized with them."""
    wider = of_the_same_width(context, groups)
    if len(wider) == len(groups) or _resize(context, padded_sizes(context, wider, multiple)) is not None:
        return groups
    return wider


def of_the_same_width(context: GraphContext, groups: Sequence[DimGroup]) -> list[DimGroup]:
    """The groups and others of their sizes: a width that is written once is a residual stream here and heads
    times head_dim there."""
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
    """The groups that can be resized together, and why the others cannot."""
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
