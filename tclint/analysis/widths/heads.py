"""Heads of attention whose width changes: they are kept equal, or their number changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.graph_context import GraphContext
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.ops import Graph

_LIKED_HEADS = (32, 64, 128)
"""Head sizes for which fused kernels were made."""
_MOST_CHANGE = 2
"""The largest factor by which heads may become larger or smaller."""


def with_equal_heads(
    context: GraphContext, changes: dict[DimGroup, int], changed: Graph
) -> dict[DimGroup, int]:
    """The changes, and further ones that keep the heads of queries and values equal if they were equal.

    The product of the scores couples queries only with keys, so values could get heads of another size, and
    one name in the code would stand for two numbers.

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
    return all(op.operand_positions is not None for op in (block.ops[0], block.ops[-1]))


def _places(block: AttentionBlock) -> tuple[tuple[int, int], tuple[int, int]]:
    """(op, input) of the queries and of the values."""
    first, last = block.ops[0], block.ops[-1]
    if block.is_fused:
        names = first.input_names
        return (first.index, names.index("query")), (first.index, names.index("value"))
    queries, values = first.operand_positions, last.operand_positions
    assert queries is not None
    assert values is not None
    return (first.index, queries[0]), (last.index, values[1])


Heads = tuple[int, int]
"""(number of heads, their size)."""


def other_heads(
    context: GraphContext, width: int, wider: Sequence[int]
) -> Iterator[tuple[int, Heads, dict[DimGroup, int]]]:
    """Other numbers of heads that divide another width evenly: (width, heads, sizes of the groups).

    There are none if an attention of that width shares keys, or if the model's code fixes its heads.

    Args:
        context: the model.
        width: the present number of heads times their size.
        wider: the other widths.
    """
    blocks = [b for b in context.once(_blocks) if b.heads > 1 and b.heads * b.head_dim == width]
    if len({(block.heads, block.head_dim) for block in blocks}) != 1:
        return
    pairs = [_groups(context, block) for block in blocks]
    size = blocks[0].head_dim
    for other in wider:
        for head in _LIKED_HEADS:
            if other % head or head == other or not size <= head * _MOST_CHANGE <= size * _MOST_CHANGE**2:
                continue
            sizes: dict[DimGroup, int] = {}
            for pair in pairs:
                if pair is None:
                    return
                sizes |= {pair[0]: other // head, pair[1]: head}
            yield other, (other // head, head), sizes


def _groups(context: GraphContext, block: AttentionBlock) -> tuple[DimGroup, DimGroup] | None:
    """The dims of an attention's number of heads and of their size, if both can change and its keys have as
    many heads."""
    (query, query_at), (value, value_at) = _places(block)
    found = []
    for axis in (-3, -1):
        ends = []
        for index, position in ((query, query_at), (value, value_at)):
            rank = len(context.graph.ops[index].inputs[position].shape)
            ends.append(context.dims.group_of_input(index, position, rank + axis) if rank >= 4 else None)
        group = ends[0]
        if group is None or group.fixed or group.unresolved or group.composite:
            return None
        if axis == -3 and ends[1] != group:
            return None
        found.append(group)
    return found[0], found[1]
