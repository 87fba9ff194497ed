"""Attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from tclint.analysis.widths.misalignment import misaligned_layers
from tclint.plugin import Change, Effect, Finding, Fix, Graph, GraphContext, GraphRule, Op, TensorSpec, resize
from tclint.plugin.graph import (
    SMALLEST_WIDTH,
    AttentionBlock,
    DimGroup,
    alignment_gain_percent,
    attention_blocks,
    best_option,
    efficient_multiple,
    gain_phrase,
    indices_of,
    layers_take,
    priced,
    rounded,
    sentence,
)

_NARROW_HEAD = 8
"""Heads of at most this size waste three quarters of the work, since PyTorch's flash kernels compute at least
32."""
_LIKED = (64, 128)
_SMALLEST_HEAD, _LARGEST_HEAD = 32, 256
"""Fused kernels exist up to 256; below 32 a head is less than a tile's edge."""


class HeadDim(GraphRule):
    """Attention heads have a size that kernels pad or run slowly.

    What it does
    Looks at the head size (model width over number of heads) of every attention, fused or written out as
    product, softmax and product. Sizes that are not a power of two, not a multiple of 8 (4 in TF32), or
    at most 8 are priced against other numbers of heads of the same total width.

    Why it costs
    Fused kernels exist for a few head sizes and compute the next larger one: 80 costs as much as 96.
    Written-out attention multiplies with the head size as the inner dim, once per head: a misaligned one
    runs on slow kernels, and a small one leaves little work per tile.

    Example
        nn.MultiheadAttention(embed_dim=2560, num_heads=32)   # heads of 80

    Use instead
        nn.MultiheadAttention(embed_dim=2560, num_heads=40)   # heads of 64; or 20 of 128

    When it does not apply
    A different number of heads is a different model, with other weights: a choice for training from
    scratch. Powers of two from 16 on are left alone.
    """

    code = "DIM005"
    name = "head-dim"
    level = "warning"
    confidence = "medium"
    sources = (
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): hidden size per "
        "head divisible by 64, or by the largest power of two possible",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        # linear-misaligned reports unsplit attention over a misaligned width.
        widths = {dim.size for layers in context.once(misaligned_layers) for dim in layers.dims}
        blocks = [
            block
            for block in attention_blocks(context.graph)
            if self._is_odd(block, context) and (block.heads or block.head_dim not in widths)
        ]
        by_size: dict[tuple[object, ...], list[AttentionBlock]] = {}
        for block in blocks:
            key = (block.ops[0].line, block.head_dim, block.heads, block.is_fused)
            by_size.setdefault(key, []).append(block)
        for same in by_size.values():
            if not context.worth_pricing(indices_of(op for block in same for op in block.ops)):
                continue
            finding = self._finding(context, same)
            if finding is not None:
                yield finding

    def _is_odd(self, block: AttentionBlock, context: GraphContext) -> bool:
        multiple = efficient_multiple(context.settings.precision)
        size = block.head_dim
        if (
            multiple is None
            or size < SMALLEST_WIDTH
            or block.heads == 1
            or block.heads * size % multiple != 0
        ):
            # linear-misaligned reports a misaligned total width, whose padding changes the heads as well. A
            # single head was not made by splitting a width.
            return False
        if _is_given(block, context):
            return False  # attention over channels sums over tokens and not over a head's features
        return size % multiple != 0 or size & (size - 1) != 0 or size <= _NARROW_HEAD

    def _finding(self, context: GraphContext, blocks: list[AttentionBlock]) -> Finding | None:
        block = blocks[0]
        ops = [op for each in blocks for op in each.ops]
        concerned = indices_of(ops)
        shares = context.share_percent(concerned)
        evidence = {"head_dim": block.head_dim, "heads": block.heads, "share_percent": rounded(shares)}
        width = block.heads * block.head_dim
        message = (
            f"{sentence(layers_take([each.ops[0] for each in blocks], 'attention', shares))} with heads of "
            f"{block.head_dim}{f' ({width} over {block.heads} heads)' if block.heads else ''}"
        )
        refused = ["the number of heads cannot be told from the graph"]
        tried = priced(context, concerned, _options(context, blocks, refused), refused)
        best = best_option(context, tried, lambda size: (size in _LIKED, -abs(size - block.head_dim)))
        location = context.location(block.ops[0])
        if best is None:
            multiple = efficient_multiple(context.settings.precision) or 1
            bound = alignment_gain_percent(context, concerned, (multiple,))
            if max(bound.values()) < context.settings.min_gain_percent:
                return None
            return self.finding(
                location,
                f"{message}; at most {max(bound.values()):.1f} % of the step is lost to misalignment.",
                effect=Effect(unknown=refused[-1]),
                evidence=evidence | {"gain_is_at_most_percent": rounded(bound)},
                fix=Fix("Choose a number of heads that makes their size a multiple of 8, 64 or 128 at best."),
                level="info",
            )
        head_dim, effect = best.what, best.effect
        return self.finding(
            location,
            f"{message}; {width // head_dim} heads of {head_dim} {gain_phrase(effect)}.",
            effect=effect,
            evidence=evidence | {"better_head_dim": head_dim, "better_heads": width // head_dim},
            fix=Fix(
                f"Train with {width // head_dim} heads of {head_dim} in the same total width of {width}."
            ),
            change=best.change,
        )


def _is_given(block: AttentionBlock, context: GraphContext) -> bool:
    """Whether the inner dim of the scores is the data's."""
    op = block.ops[0]
    group = context.dims.group_of_input(op.index, 0, len(op.inputs[0].shape) - 1)
    return group is not None and group.fixed is not None


def _rewritten(
    context: GraphContext, blocks: list[AttentionBlock], head_dim: int
) -> dict[DimGroup, int] | str:
    """The new sizes for written-out attention, where heads and head size change and their product stays; or
    the reason why there are none."""
    changes: dict[DimGroup, int] = {}
    for block in blocks:
        scores = block.ops[0]
        rank = len(scores.inputs[0].shape)
        heads = context.dims.group_of_input(scores.index, 0, rank - 3)
        size = context.dims.group_of_input(scores.index, 0, rank - 1)
        if heads is None or size is None or rank < 4:
            return "the number of heads cannot be told from the graph"
        changes[heads] = block.heads * block.head_dim // head_dim
        changes[size] = head_dim
    return changes


def _options(
    context: GraphContext, blocks: list[AttentionBlock], refused: list[str]
) -> Iterator[tuple[int, Change]]:
    """Every other head size that is a multiple of 8 and divides the width into more than one head."""
    width = blocks[0].heads * blocks[0].head_dim
    for size in range(_SMALLEST_HEAD, min(_LARGEST_HEAD, width // 2) + 1, 8):
        if width % size or size == blocks[0].head_dim:
            continue
        if blocks[0].is_fused:
            ops = [block.ops[0] for block in blocks]
            yield size, Change(edit=partial(with_head_dim, ops=ops, head_dim=size))
            continue
        sizes = _rewritten(context, blocks, size)
        if isinstance(sizes, str):
            refused.append(sizes)
        else:
            yield size, resize(sizes)


def with_head_dim(graph: Graph, ops: Iterable[Op], head_dim: int) -> Graph | None:
    """The fused attentions with heads of size `head_dim`; None if their width is not a multiple of it.

    Tensors keep their number of elements, [B, heads, S, D] becoming [B, heads * D / head_dim, S, head_dim],
    so that the layers around them stay as they are.
    """
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        inputs = []
        for spec, name in zip(op.inputs, op.input_names, strict=True):
            reshaped = _reheaded(spec, head_dim) if name in ("query", "key", "value") else spec
            if reshaped is None:
                return None
            inputs.append(reshaped)
        output = _reheaded(op.outputs[0], head_dim)
        if output is None:
            return None
        changed[op.index] = replace(op, inputs=tuple(inputs), outputs=(output, *op.outputs[1:]))
    return graph.with_ops(changed)


def _reheaded(spec: TensorSpec, head_dim: int) -> TensorSpec | None:
    if len(spec.shape) != 4:
        return None
    batch, heads, length, present = spec.shape
    if heads * present % head_dim:
        return None
    shape = (batch, heads * present // head_dim, length, head_dim)
    return spec.reshaped(shape)
