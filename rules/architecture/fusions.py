"""What-if edits that let one op do the work of several; the others become views, which cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import prod

from tclint.plugin import Graph, Op, TensorSpec
from tclint.plugin.graph import (
    AttentionBlock,
)


def with_joined_linears(graph: Graph, layers: Iterable[Sequence[int]]) -> Graph:
    """The graph with each set of linear layers of one input joined into one layer, followed by views."""
    changed: dict[int, Op] = {}
    for indices in layers:
        ops = [graph.ops[index] for index in indices]
        width = sum(op.outputs[0].shape[-1] for op in ops)
        first, *others = ops
        inputs = []
        for spec, name in zip(first.inputs, first.input_names, strict=True):
            # The weight is [out, in], the bias [out].
            inputs.append(spec.resized(0, width) if name in ("weight", "bias") else spec)
        output = first.outputs[0].resized(len(first.outputs[0].shape) - 1, width)
        changed[first.index] = replace(first, inputs=tuple(inputs), outputs=(output,))
        changed |= {op.index: op.emptied() for op in others}
    return graph.with_ops(changed)


def with_fused_attention(graph: Graph, blocks: Iterable[AttentionBlock]) -> Graph | None:
    """The graph with written-out attentions replaced by scaled_dot_product_attention, including the ops
    between the products.

    None if the attention's tensors do not have the form that such a call takes.
    """
    changed: dict[int, Op] = {}
    masks: set[int] = set()
    for block in blocks:
        scores, product = graph.ops[block.ops[0].index], graph.ops[block.ops[-1].index]
        causal = block.causal_mask(graph)
        fused = _fused(graph, scores, product, block, is_causal=causal is not None)
        if fused is None:
            return None
        masks |= causal or set()
        changed |= {index: graph.ops[index].emptied() for index in (scores.index, *block.between)}
        changed[product.index] = fused
    return graph.with_ops(
        changed | {index: graph.ops[index].emptied() for index in _unread(graph, masks, changed)}
    )


def with_causal_attention(graph: Graph, indices: Iterable[int]) -> Graph:
    """The graph with fused attentions that are told to be causal in place of their masks."""
    changed: dict[int, Op] = {}
    masks: set[int] = set()
    for op in (graph.ops[index] for index in indices):
        given = zip(op.inputs, op.input_names, strict=True)
        kept = [(spec, name) for spec, name in given if name != "attn_mask"]
        mask = op.input("attn_mask")
        masks |= set() if mask is None else graph.ancestors(mask)
        changed[op.index] = replace(
            op,
            inputs=tuple(spec for spec, _ in kept),
            input_names=tuple(name for _, name in kept),
            attributes={**op.attributes, "is_causal": True},
        )
    return graph.with_ops(
        changed | {index: graph.ops[index].emptied() for index in _unread(graph, masks, changed)}
    )


def _unread(graph: Graph, masks: Set[int], gone: Mapping[int, Op]) -> set[int]:
    """The ops of masks that nothing else reads any more."""
    readers = graph.consumers() if masks else {}
    left: set[int] = set()
    for index in sorted(masks, reverse=True):
        if all(reader.index in gone or reader.index in left for reader in readers.get(index, ())):
            left.add(index)
    return left


def _fused(graph: Graph, scores: Op, product: Op, block: AttentionBlock, *, is_causal: bool) -> Op | None:
    first, second = scores.operand_positions, product.operand_positions
    if first is None or second is None:
        return None
    query, transposed, value = scores.inputs[first[0]], scores.inputs[first[1]], product.inputs[second[1]]
    if not len(query.shape) == len(transposed.shape) == len(value.shape) or len(query.shape) < 3:
        return None
    key_shape = (*transposed.shape[:-2], transposed.shape[-1], transposed.shape[-2])
    inputs = [
        _with_four_dims(query, query.shape),
        _with_four_dims(transposed, key_shape),
        _with_four_dims(value, value.shape),
    ]
    names = ["query", "key", "value"]
    mask = None if is_causal else attention_mask(graph, block)
    if mask is not None:
        inputs.append(mask)
        names.append("attn_mask")
    return replace(
        product,
        name="scaled_dot_product_attention",
        kind="attention",
        inputs=tuple(inputs),
        input_names=tuple(names),
        attributes={"dropout_p": _dropped(graph, block), "is_causal": is_causal},
        parent=None,
    )


def _dropped(graph: Graph, block: AttentionBlock) -> float:
    """The part of the weights that a dropout between the products takes out."""
    between = [graph.ops[index] for index in block.between]
    found = (op.attributes.get("p", 0.0) for op in between if "dropout" in op.name)
    return max((float(part) for part in found), default=0.0)


def _with_four_dims(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """The tensor as [B, heads, S, D]; bmm's [B * heads, S, D] becomes [B * heads, 1, S, D], which is the same
    work."""
    four = (prod(shape[:-3]), *shape[-3:]) if len(shape) >= 4 else (shape[0], 1, *shape[1:])
    return spec.reshaped(four)


def attention_mask(graph: Graph, block: AttentionBlock) -> TensorSpec | None:
    """The tensor that is added to the scores or masks them; None if there is none."""
    for index in block.between:
        op = graph.ops[index]
        if op.name in ("add", "masked_fill", "where", "sub"):
            for spec in op.inputs:
                if spec.producer not in (block.ops[0].index, *block.between) and spec.numel > 1:
                    return spec
    return None
