"""Attention written out where a fused kernel would do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from tclint.plugin import Change, DimsUnresolved, Finding, GraphContext, GraphRule
from tclint.plugin.graph import (
    AttentionBlock,
    attention_blocks,
    gain_phrase,
    indices_of,
    share_finding,
)

from .fusions import attention_mask, with_fused_attention

_LARGEST_HEAD = 256
"""Flash attention supports no larger heads (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), and the
gain of the kernel that does is unknown."""


class ManualAttention(GraphRule):
    """Attention is written out as product, softmax and product, with its scores in memory.

    What it does
    Finds softmax(q k^T) v whose scores and weights nothing else reads, and prices the step with
    torch.nn.functional.scaled_dot_product_attention in its place. Scale, additive bias, mask and dropout
    between the products become arguments of the call.

    Why it costs
    The scores of S tokens are S x S values per head. Written out, they go to memory after the first
    product, and each of scale, mask, softmax, dropout reads and writes them again, in fp32 where autocast
    wants it; backward does so once more. The fused kernels keep them on the chip.

    Example
        weights = (q @ k.transpose(-2, -1) / d ** 0.5).softmax(-1)
        x = self.dropout(weights) @ v

    Use instead
        x = F.scaled_dot_product_attention(q, k, v)     # dropout_p=... while training

    When it does not apply
    The weights are returned or looked at. Something other than scale, addition, mask and dropout happens
    to the scores (mixing of heads, capped scores: FlexAttention may handle these). Short sequences, where
    the scores are small: the predicted gain decides. A learned additive bias is possible, but runs a
    slower kernel than no mask at all.
    """

    code = "ARC005"
    name = "manual-attention"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch torch.nn.functional.scaled_dot_product_attention: the fused kernels and their conditions",
        "FlashAttention (arXiv 2205.14135): the scores stay on the chip",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        readers = context.graph.consumers()
        returned = {spec.producer for spec in context.graph.outputs}
        by_line: dict[tuple[str, int], list[AttentionBlock]] = {}
        for block in attention_blocks(context.graph):
            if block.is_fused or block.key_length < 2 or block.head_dim > _LARGEST_HEAD:
                continue
            # Rows of the scores are inside one call of the user's code, whatever library layers it uses.
            inside = {block.ops[0].index, *block.between}
            path = {*inside, block.ops[-1].index}
            read_elsewhere = any(
                reader.index not in path for index in inside for reader in readers.get(index, ())
            )
            if not read_elsewhere and not inside & returned and _is_plain(block, context):
                # By the line of the scores: a masked and an unmasked softmax are replaced together.
                site = block.ops[0].call_site
                by_line.setdefault((site.path, site.line) if site else ("", 0), []).append(block)
        for blocks in by_line.values():
            finding = self._finding(context, blocks)
            if finding is not None:
                yield finding

    def _finding(self, context: GraphContext, blocks: list[AttentionBlock]) -> Finding | None:
        concerned = sorted({index for b in blocks for index in (*indices_of(b.ops), *b.between)})
        if not context.worth_pricing(concerned):
            return None
        change = Change(edit=partial(with_fused_attention, blocks=blocks))
        try:
            effect = context.effect(concerned, change)
        except DimsUnresolved:
            return None
        largest = max(blocks, key=lambda block: block.query_length * block.key_length)
        sizes = {(block.query_length, block.key_length) for block in blocks}
        scores = f"{'up to ' * (len(sizes) > 1)}{largest.query_length} x {largest.key_length}"
        return share_finding(
            self,
            context,
            [block.ops[1] for block in blocks],
            "written-out attention",
            f", with scores of {scores} per head in memory; scaled_dot_product_attention "
            f"{gain_phrase(effect)}",
            concerned=concerned,
            effect=effect,
            advice=_advice(context, blocks),
            evidence={"query_length": largest.query_length, "key_length": largest.key_length},
            others="another line of such attention",
            location=context.call_location(largest.ops[1]),
            change=change,
        )


def _advice(context: GraphContext, blocks: list[AttentionBlock]) -> str:
    graph = context.graph
    between = [[graph.ops[index].name for index in block.between] for block in blocks]
    mask, doubt = "", ""
    if all(block.causal_mask(graph) is not None for block in blocks):
        mask = ", is_causal=True"
    elif all(
        block.query_length == block.key_length and _MASKING & set(names)
        for block, names in zip(blocks, between, strict=True)
    ):
        mask = ", is_causal=True"
        doubt = " if the mask hides later tokens alone; attn_mask=... takes any other"
    elif any(attention_mask(graph, block) is not None for block in blocks):
        mask = ", attn_mask=..."
    dropout = ", dropout_p=..." if any("dropout" in names for names in between) else ""
    scale = "" if all(_has_default_scale(context, block) for block in blocks) else ", scale=..."
    return (
        f"Call torch.nn.functional.scaled_dot_product_attention(q, k, v{mask}{dropout}{scale}) instead of "
        f"the two products and the softmax{doubt}."
    )


def _has_default_scale(context: GraphContext, block: AttentionBlock) -> bool:
    """Whether the scores are scaled by one over the root of the head's size, as the fused call does by
    default."""
    scale = 1.0
    for op in (context.graph.ops[index] for index in block.between):
        number = op.attributes.get("other")
        if op.name in ("mul", "div") and isinstance(number, int | float) and number:
            scale = scale * number if op.name == "mul" else scale / number
    return math.isclose(scale, block.head_dim**-0.5, rel_tol=1e-3)


_MASKING = frozenset({"masked_fill", "where"})
_ALLOWED = frozenset({"mul", "div", "add", "sub", "masked_fill", "where", "dropout", "softmax"})


def _is_plain(block: AttentionBlock, context: GraphContext) -> bool:
    """Whether the ops between the products act on whole rows and can be expressed by the fused call's
    arguments."""
    ops = [context.graph.ops[index] for index in block.between]
    if any(op.kind not in ("view", "copy") and op.name not in _ALLOWED for op in ops):
        return False
    softmax = block.ops[1]
    rank = len(softmax.inputs[0].shape)
    axis = softmax.attributes.get("dim", -1)
    scores = block.ops[0].outputs[0].shape
    return isinstance(axis, int) and axis % rank == rank - 1 and softmax.inputs[0].shape[-2:] == scores[-2:]
