"""A rule on dims that are divided over GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import Effect, Finding, Fix, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    DimGroup,
    Padding,
    attention_blocks,
    best_padding,
    by_line,
    efficient_multiple,
    indices_of,
    is_misaligned,
    layers_phrase,
    related_sites,
    sentence,
    width_dims,
)


class TensorParallelDivisibility(GraphRule):
    """Heads, a width or the vocabulary cannot be split over the GPUs into equal, aligned parts.

    What it does
    With --tensor-parallel N, checks that the heads of every attention, the widths between two linear
    layers, and the vocabulary are multiples of N, and that a GPU's part of a width or of the vocabulary is
    still a multiple of 8 (fp16, bf16; 4 in TF32). Parts that are not are padded and priced, as one GPU runs
    them.

    Why it costs
    Tensor parallelism gives every GPU whole heads and equal slices of the wide layers. What is not
    divisible is an error in most frameworks, or padded, or all GPUs wait for the one with the largest slice;
    and a slice of 4104 / 4 = 1026 columns is misaligned on every GPU, although 4104 was not.

    Example
        nn.MultiheadAttention(1920, num_heads=15)      # --tensor-parallel 8

    Use instead
        nn.MultiheadAttention(2048, num_heads=16)

    When it does not apply
    Without --tensor-parallel. Small heads of a model and layers that the parallel plan leaves whole: the
    rule knows no plan but Megatron's, which it finds in the traced graph.
    """

    code = "DIM015"
    name = "tp-divisibility"
    level = "warning"
    confidence = "medium"
    sources = (
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): hidden size and "
        "heads divisible by the tensor-parallel size",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        parts = context.settings.tensor_parallel
        if parts < 2:
            return
        uneven: dict[int, tuple[Op, str]] = {}
        misaligned: dict[int, tuple[Op, tuple[DimGroup, ...]]] = {}
        for block in attention_blocks(context.graph):
            if block.heads > 1 and block.heads % parts:
                uneven[block.ops[0].index] = block.ops[0], f"{block.heads} heads"
        for op, what, groups in _split_widths(context):
            size = groups[0].size
            if size % parts:
                uneven.setdefault(op.index, (op, what))
            elif not is_misaligned(size, context.settings.precision) and is_misaligned(
                size // parts, context.settings.precision
            ):
                misaligned.setdefault(op.index, (op, groups))
        for ops in by_line(op for op, _ in uneven.values()).values():
            yield self._uneven(context, ops, list(dict.fromkeys(uneven[op.index][1] for op in ops)))
        for ops in by_line(op for op, _ in misaligned.values()).values():
            yield self._misaligned(
                context, ops, tuple(dict.fromkeys(group for op in ops for group in misaligned[op.index][1]))
            )

    def _uneven(self, context: GraphContext, ops: list[Op], what: list[str]) -> Finding:
        parts = context.settings.tensor_parallel
        location = context.location(ops[0])
        return self.finding(
            location,
            f"{sentence(layers_phrase(ops, ops[0].name))}: {', '.join(what)} cannot be split evenly over "
            f"{parts} GPUs.",
            effect=Effect(unknown="what a parallel plan does with uneven slices is not known"),
            evidence={"tensor_parallel": parts, "sizes": what},
            fix=Fix(
                f"Make the number of heads a multiple of {parts}, and widths and the vocabulary multiples of "
                f"{parts * (efficient_multiple(context.settings.precision) or 1)}."
            ),
            related=related_sites([op.construct_site for op in ops], location, "split in the same way"),
        )

    def _misaligned(self, context: GraphContext, ops: list[Op], groups: tuple[DimGroup, ...]) -> Finding:
        parts = context.settings.tensor_parallel
        multiple = efficient_multiple(context.settings.precision) or 1
        location = context.location(ops[0])
        sizes = sorted({group.size for group in groups})
        slices = ", ".join(f"{size // parts} of {size}" for size in sizes)
        message = (
            f"{sentence(layers_phrase(ops, ops[0].name))}: {slices} columns on each of {parts} GPUs, "
            f"not a multiple of {multiple}"
        )
        evidence: dict[str, Any] = {"tensor_parallel": parts, "sizes": sizes, "multiple": multiple}
        related = related_sites([op.construct_site for op in ops], location, "split in the same way")
        outcome = best_padding(context, groups, indices_of(ops))
        if not isinstance(outcome, Padding):
            return self.finding(
                location,
                f"{message}.",
                effect=outcome,
                evidence=evidence,
                fix=Fix(f"Make widths and the vocabulary multiples of {multiple * parts}."),
                related=related,
            )
        return self.finding(
            location,
            f"{message}; padding {outcome.phrase()} {outcome.gain_phrase()}.",
            effect=outcome.effect,
            evidence=evidence | outcome.evidence(),
            fix=Fix(f"Change {outcome.phrase()}; weights trained with the old size no longer fit."),
            change=outcome.change,
            related=related,
        )


def _split_widths(context: GraphContext) -> Iterator[tuple[Op, str, tuple[DimGroup, ...]]]:
    """(product, its width in words, the dims to change with it) of products that are split over their
    columns."""
    for head in context.vocabulary_heads:
        tables = (
            context.dims.group_of_input(op.index, op.input_names.index("weight"), 0) for op in head.embeddings
        )
        groups = tuple(dict.fromkeys(g for g in (head.group, *tables) if g is not None))
        if groups and context.parts_of(groups[0]) > 1:
            yield head.op, f"a vocabulary of {head.size}", groups
    for op in context.graph.products:
        if op.kind != "linear":
            continue
        for dim in width_dims(op, context.dims):
            group = dim.group
            if dim.role == "out_features" and group is not None and context.parts_of(group) > 1:
                yield op, f"{dim.size} columns", (group,)
