"""Finds attention in a graph: fused, or written out as product, softmax, product; and its causal masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tclint.analysis.layers import consumers
from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.graph.ops.products import operand_positions

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


_Part = Literal["later", "earlier"]
"""The entries of a square of tokens by tokens that are True or nonzero: those above the diagonal, or the
others."""
_OTHER: dict[_Part, _Part] = {"later": "earlier", "earlier": "later"}
_CUTS: dict[tuple[str, object], _Part] = {("tril", 0): "earlier", ("triu", 1): "later"}
_LOWEST = -1e4
"""A number this low, added to the scores of hidden tokens, makes their weights zero in every precision."""
_KEPT = frozenset({"to", "bool", "type", "float", "clone", "contiguous"})
_VIEWS = frozenset({"view", "reshape", "unsqueeze", "expand", "expand_as", "broadcast_to"})
_MOST_STEPS = 8


def causal_mask(graph: Graph, block: AttentionBlock) -> frozenset[int] | None:
    """The ops that make the causal mask of an attention; None if its mask is not causal, or if the graph does
    not show how it is made.

    Attention that is masked twice does not count as causal.
    """
    if block.query_length != block.key_length:
        return None
    inside = {block.ops[0].index, *block.between}
    masks = [
        (op, spec)
        for op in (graph.ops[index] for index in block.between)
        if op.name in ("add", "masked_fill", "where", "sub")
        for spec in op.inputs
        if spec.producer not in inside and spec.numel > 1
    ]
    if len(masks) != 1:
        return None
    ((op, spec),) = masks
    if op.name == "masked_fill" and _is_low(op.attributes.get("value")):
        return _made(graph, spec, "later")
    if op.name == "add":
        return _made(graph, spec, "later", low=True)
    return None


def _is_low(value: object) -> bool:
    return isinstance(value, float | int) and value <= _LOWEST


def _made(graph: Graph, spec: TensorSpec, part: _Part, *, low: bool = False) -> frozenset[int] | None:
    """The ops that make a mask which is True in that part, or with `low` a low number there and zero
    elsewhere."""
    passed: set[int] = set()
    for _ in range(_MOST_STEPS):
        if spec.producer is None:
            return None
        op = graph.ops[spec.producer]
        passed.add(op.index)
        if op.name in ("tril", "triu"):
            cut = _CUTS.get((op.name, op.attributes.get("diagonal")))
            ones = _source(graph, op, low)
            return frozenset({*passed, ones}) if cut == part and ones is not None else None
        if not low and (op.name in ("bitwise_not", "logical_not") or _compares(op, "eq", 0)):
            part = _OTHER[part]
        elif not (op.name in _KEPT or op.name in _VIEWS or _compares(op, "ne", 0) or _compares(op, "eq", 1)):
            return None
        spec = op.inputs[0]
    return None


def _compares(op: Op, name: str, number: int) -> bool:
    return op.name == name and len(op.inputs) == 1 and op.attributes.get("other") == number


def _source(graph: Graph, op: Op, low: bool) -> int | None:
    """The index of the op that made a square of ones, or of low numbers; None if it is another op."""
    shape, producer = op.outputs[0].shape, op.inputs[0].producer
    if producer is None or len(shape) < 2 or shape[-1] != shape[-2]:
        return None
    made = graph.ops[producer]
    if low:
        value = made.attributes.get("fill_value")
        return producer if made.name == "full" and _is_low(value) else None
    return producer if made.name == "ones" else None
