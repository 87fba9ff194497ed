"""Finds attention in a graph: fused, or written out as product, softmax, product; and its causal masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.graph.ops.axis_order import PERMUTES

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

    def hides_later(self, mask: TensorSpec, *, marks_seen: bool | None = None) -> bool:
        """Whether a mask over queries and keys hides later tokens and nothing else, as `is_causal=True` does.

        Args:
            mask: over the scores of this attention.
            marks_seen: whether it is True for tokens that are seen, or for those that are hidden; None: it is
                added to the scores.
        """
        if mask.triangle is None or self.query_length != self.key_length or mask.shape[-1] != self.key_length:
            return False
        earlier, later = mask.triangle
        if marks_seen is None:
            return earlier == 0.0 and later <= _LOWEST
        return bool(earlier) is marks_seen and bool(later) is not marks_seen

    def causal_mask(self, graph: Graph) -> frozenset[int] | None:
        """The ops that make the causal mask of this written-out attention; None if its mask is not causal, or
        if what it holds is not known."""
        if self.query_length != self.key_length:
            return None
        masks: list[TensorSpec] = []
        scaled: dict[int, tuple[_Entries, _Entries]] = {self.ops[0].index: ((1.0, 1.0), (0.0, 0.0))}
        added = (0.0, 0.0)
        for op in (graph.ops[index] for index in self.between):
            if op.kind == "softmax":
                break
            found = _through(op, scaled, masks, self.key_length)
            if found is None:
                return None
            scaled[op.index] = found
            added = found[1]
        if not masks or added[0] != 0.0 or not added[1] <= _LOWEST:
            return None
        return frozenset().union(*(graph.ancestors(mask) for mask in masks))


def attention_blocks(graph: Graph) -> tuple[AttentionBlock, ...]:
    """Every attention of the graph, in order."""
    readers = graph.consumers()
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
    positions = scores.operand_positions
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


_LOWEST = -1e4
"""A number this low, added to the scores of hidden tokens, makes their weights zero in every precision."""


_COPIES = frozenset({"_to_copy", "clone", "contiguous", "to"})

_Entries = tuple[float, float]
"""A number for earlier tokens and the query's own, and one for later ones."""


def _through(
    op: Op, scaled: Mapping[int, tuple[_Entries, _Entries]], masks: list[TensorSpec], length: int
) -> tuple[_Entries, _Entries] | None:
    """What scores are multiplied with and what is added to them after an op; None if that is not known.

    Args:
        op: between the product and the softmax.
        scaled: the same of the ops before it.
        masks: receives the masks that it reads.
        length: the number of keys.
    """
    known = ((i, scaled.get(-1 if s.producer is None else s.producer)) for i, s in enumerate(op.inputs))
    at, before = next(((i, found) for i, found in known if found is not None), (-1, None))
    if before is None:
        return None
    scale, added = before
    if op.kind == "view" or op.name in _COPIES:
        moved = op.name in PERMUTES or op.outputs[0].shape[-2:] != op.inputs[at].shape[-2:]
        return None if moved else before
    others = [spec for position, spec in enumerate(op.inputs) if position != at]
    entries: list[_Entries] = []
    for spec in others:
        if spec.triangle is not None and spec.shape[-1] == length:
            masks.append(spec)
            entries.append(spec.triangle)
        elif spec.value is not None:
            entries.append((spec.value, spec.value))
        else:
            return None
    names = ("value",) if op.name == "masked_fill" else ("other", "self")
    numbers = [op.attributes[name] for name in names if isinstance(op.attributes.get(name), int | float)]
    entries += [(float(number), float(number)) for number in numbers]
    return _combined(op, at, scale, added, entries)


def _combined(
    op: Op, at: int, scale: _Entries, added: _Entries, entries: list[_Entries]
) -> tuple[_Entries, _Entries] | None:
    if op.name in ("masked_fill", "where") and len(entries) == 2:
        condition, number = entries
        is_scores = [bool(one) is (op.name == "where" and at == 1) for one in condition]
        return (
            _each(lambda k: scale[k] if is_scores[k] else 0.0),
            _each(lambda k: added[k] if is_scores[k] else number[k]),
        )
    if len(entries) != 1:
        return None
    (other,) = entries
    alpha = float(op.attributes.get("alpha") or 1)
    if op.name == "mul":
        return _each(lambda k: scale[k] * other[k]), _each(lambda k: added[k] * other[k])
    if op.name == "div" and at == 0 and all(other):
        return _each(lambda k: scale[k] / other[k]), _each(lambda k: added[k] / other[k])
    if op.name == "add":
        return scale, _each(lambda k: added[k] + alpha * other[k])
    if op.name == "sub" and at == 0:
        return scale, _each(lambda k: added[k] - alpha * other[k])
    return None


def _each(entry: Callable[[int], float]) -> _Entries:
    return entry(0), entry(1)
