"""A rule on dims that are divided over GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.attention import attention_blocks
from tclint.analysis.layers import by_line, layers_phrase, related_sites, sentence, width_dims
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.graph.ops.products import leaf_ops
from tclint.plugin import Effect, Finding, Fix, GraphContext, GraphRule, Op


class TensorParallelDivisibility(GraphRule):
    """Heads, a layer's width or the vocabulary are not divisible by the number of GPUs they are split over.

    What it does
    With --tensor-parallel N, checks that the heads of every attention, the widths between two linear
    layers, and the vocabulary are multiples of N, and that a GPU's part of a width is still a multiple of
    8 (fp16, bf16; 4 in TF32).

    Why it costs
    Tensor parallelism gives every GPU whole heads and equal slices of the wide layers. What is not
    divisible is an error in most frameworks, or padded; and a slice of 4104 / 4 = 1026 columns is
    misaligned on every GPU, although 4104 was not.

    Example
        nn.MultiheadAttention(1920, num_heads=15)      # --tensor-parallel 8

    Use instead
        nn.MultiheadAttention(2048, num_heads=16)

    When it does not apply
    Without --tensor-parallel. Small heads of a model and layers that the parallel plan leaves whole: the
    rule does not know the plan.
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
        problems: dict[int, tuple[Op, str]] = {}
        for block in attention_blocks(context.graph):
            if block.heads > 1 and block.heads % parts:
                problems[block.ops[0].index] = block.ops[0], f"{block.heads} heads"
        for head in context.vocabulary_heads:
            if head.size % parts:
                problems[head.op.index] = head.op, f"a vocabulary of {head.size}"
        for op in leaf_ops(context.graph):
            if op.kind == "linear" and op.index not in problems:
                width = self._bad_width(op, context)
                if width is not None:
                    problems[op.index] = op, width
        for ops in by_line(op for op, _ in problems.values()).values():
            yield self._finding(context, ops, list(dict.fromkeys(problems[op.index][1] for op in ops)))

    def _bad_width(self, op: Op, context: GraphContext) -> str | None:
        """The width between two layers, of which each GPU holds a slice."""
        parts = context.settings.tensor_parallel
        for dim in width_dims(op, context.dims):
            group = dim.group
            if dim.role != "out_features" or group is None or group.is_output or group.fixed:
                continue
            if dim.size % parts:
                return f"{dim.size} columns"
            multiple = efficient_multiple(context.settings.precision)
            if multiple and dim.size % multiple == 0 and dim.size // parts % multiple:
                return f"{dim.size} columns ({dim.size // parts} on each, not a multiple of {multiple})"
        return None

    def _finding(self, context: GraphContext, ops: list[Op], what: list[str]) -> Finding:
        parts = context.settings.tensor_parallel
        location = context.location(ops[0])
        return self.finding(
            location,
            f"{sentence(layers_phrase(ops, ops[0].name))}: {', '.join(what)} cannot be split evenly over "
            f"{parts} GPUs.",
            effect=Effect(unknown="what a parallel plan does with uneven slices is not known"),
            evidence={"tensor_parallel": parts, "sizes": what},
            fix=Fix(f"Choose heads, widths and vocabulary as multiples of {parts} (widths of {8 * parts})."),
            related=related_sites([op.construct_site for op in ops], location, "split in the same way"),
        )
