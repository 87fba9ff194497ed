"""Finds attention in a graph: fused, or written out as product, softmax, product."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.analysis.layers import consumers, operand_positions
from tclint.graph.ops import Graph, Op

_PASSED_THROUGH = frozenset({"elementwise", "view", "copy", "softmax"})
_MAX_STEPS = 12
"""The most ops (scaling, bias, masks, dropout, views) between a product and its softmax; no model has
more."""


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """One attention: a fused op, or the three of a written-out one."""

    ops: tuple[Op, ...]
    """The op of a fused attention; the three ops q k^T, softmax and weights v of a written-out one."""
    heads: int
    head_dim: int
    query_length: int
    key_length: int
    between: tuple[int, ...] = ()
    """For a written-out attention the indices of the ops between the two products: scaling, bias, mask,
    softmax, dropout, views."""

    @property
    def is_fused(self) -> bool:
        return self.ops[0].kind == "attention"


def attention_blocks(graph: Graph) -> tuple[AttentionBlock, ...]:
    """Every attention of the graph, in order."""
    readers = consumers(graph.ops)
    blocks = []
    for op in graph.ops:
        block = _fused(op) if op.kind == "attention" else None
        if op.kind == "softmax":
            block = _written_out(graph, op, readers)
        if block is not None:
            blocks.append(block)
    return tuple(blocks)


def _fused(op: Op) -> AttentionBlock | None:
    query, key = op.input("query"), op.input("key")
    if query is None or key is None or len(query.shape) < 3:
        return None
    heads = query.shape[-3] if len(query.shape) >= 4 else 1
    return AttentionBlock((op,), heads, query.shape[-1], query.shape[-2], key.shape[-2])


def _written_out(graph: Graph, softmax: Op, readers: dict[int, list[Op]]) -> AttentionBlock | None:
    before = _matmul_before(graph, softmax)
    after = _matmul_after(softmax, readers)
    if before is None or after is None:
        return None
    (scores, first), (product, second) = before, after
    positions = operand_positions(scores)
    if positions is None:
        return None
    query, output = scores.inputs[positions[0]], scores.outputs[0]
    # The shape is [batch, heads, S, D], or [batch * heads, S, D], where heads and batch cannot be separated.
    heads = query.shape[-3] if len(query.shape) >= 4 else 0
    return AttentionBlock(
        (scores, softmax, product),
        heads,
        query.shape[-1],
        output.shape[-2],
        output.shape[-1],
        (*reversed(first), softmax.index, *second),
    )


def _matmul_before(graph: Graph, softmax: Op) -> tuple[Op, list[int]] | None:
    """The product that makes the scores, and the ops between it and the softmax, last first."""
    op = softmax
    passed: list[int] = []
    for _ in range(_MAX_STEPS):
        producers = [graph.ops[spec.producer] for spec in op.inputs if spec.producer is not None]
        if not producers:
            return None
        # The scores are the first operand of the scale, the mask and the bias alike.
        op = next((p for p in producers if p.kind == "matmul"), producers[0])
        if op.kind == "matmul":
            return op, passed
        if op.kind not in _PASSED_THROUGH:
            return None
        passed.append(op.index)
    return None


def _matmul_after(softmax: Op, readers: dict[int, list[Op]]) -> tuple[Op, list[int]] | None:
    """The product that reads the weights, and the ops between the softmax and it."""
    op = softmax
    passed: list[int] = []
    for _ in range(_MAX_STEPS):
        following = readers.get(op.index, [])
        found = next((reader for reader in following if reader.kind == "matmul"), None)
        if found is not None:
            return found, passed
        if not following or following[0].kind not in _PASSED_THROUGH:
            return None
        op = following[0]
        passed.append(op.index)
    return None
