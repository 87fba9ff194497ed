"""Recognises causal masks of traced attention: they hide from every token the later ones and nothing else."""

from __future__ import annotations

from typing import Literal

from tclint.analysis.attention import AttentionBlock
from tclint.graph.ops import Graph, Op, TensorSpec

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
