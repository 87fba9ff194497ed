"""Sizes of attention heads that data flow leaves free to differ, and that no model lets differ."""

from __future__ import annotations

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.op_dims import operand_positions
from tclint.graph.dims.coupled import DimGroup
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
