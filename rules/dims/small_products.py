"""Products, also implicit ones of convolutions, that are small for the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from tclint.plugin import Finding, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    Gemm,
    attention_blocks,
    larger_batch,
    latency_bound,
    share_finding,
)

_SMALL = 128
"""The edge of an ordinary tile, which a smaller side does not fill; below about 128 rows, V100 waits for
memory (Linear/Fully-Connected Layers User's Guide)."""


def _dense(context: GraphContext) -> list[Op]:
    """Forward convolutions that sum over all channels; transposed ones swap the roles of M and K."""
    return [
        op
        for op in context.graph.convolutions
        if op.groups == 1 and "transpose" not in op.name and op.inputs[0].shape[1:]
    ]


class SmallConvolution(GraphRule):
    """A convolution's matrix product has too few rows to keep the GPU busy.

    What it does
    Looks at every dense convolution as the matrix product that it is: N P Q rows (batch times output
    positions), K columns, C R S summed values. Convolutions with fewer than 128 rows, or with fewer than
    128 summed values on narrow outputs, whose time is not limited by arithmetic, are reported with the
    gain per sample of a larger batch.

    Why it costs
    A tile computes up to 256 x 128 results. With a batch of 1 on a 7 x 7 image there are 49 rows: one
    tile in that direction, a handful in all, on a GPU with a hundred SMs.

    Example
        nn.Conv2d(512, 512, 3, padding=1)      # batch 1, 7 x 7

    Use instead
        nn.Conv2d(512, 512, 3, padding=1)      # batch 32 or more

    When it does not apply
    Inference whose batch is set by latency requirements, and inputs that tclint inferred: nobody chose
    their batch. Steps in which such layers are a small part. Models that wait as a whole: see
    latency-bound-layers.
    """

    code = "DIM013"
    name = "conv-implicit-gemm-small"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA Convolutional Layers User's Guide: the dims of the implicit GEMM",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from _findings(
            self,
            context,
            _few_positions,
            "convolution",
            lambda rows: f", with as few as {rows} rows in their matrix products",
            advice="Raise the batch (or the crop) until batch times output positions is 128 or more.",
        )


def _few_positions(context: GraphContext) -> dict[int, int]:
    """The rows of every dense convolution's implicit product, by op index, that has few and that something
    else than arithmetic limits on some GPU."""
    rows = {op.index: op.outputs[0].shape[0] * prod(op.outputs[0].shape[2:]) for op in _dense(context)}
    return {
        op.index: rows[op.index]
        for op in _dense(context)
        if rows[op.index] < _SMALL and context.limiters(op, products_only=True) - {"math"}
    }


class SmallGemm(GraphRule):
    """A linear layer sees so few rows that the GPU waits for memory instead of computing.

    What it does
    Finds linear layers with fewer than 128 rows (batch times tokens) whose time is not limited by
    arithmetic, and reports them once per model where a larger batch is predicted to gain per sample.

    Why it costs
    A product of M x K with K x N does 2MNK operations on MK + KN + MN values. When one of the three dims
    is small, each value read is used too rarely: with a batch of 1 only once, where a V100 could do 139
    operations per byte.

    Example
        nn.Linear(4096, 1024)      # called with a batch of 16

    Use instead
        nn.Linear(4096, 1024)      # called with a batch of 256

    When it does not apply
    Inference whose batch is set by latency requirements, and inputs that tclint inferred: nobody chose
    their batch. Models that wait as a whole, which latency-bound-layers reports. Products inside
    attention. Layers that are a small part of the step.
    """

    code = "DIM012"
    name = "small-gemm"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA Linear/Fully-Connected Layers User's Guide, Batch Size: above 128",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from _findings(
            self,
            context,
            _few_rows,
            "linear layer",
            lambda rows: f", waiting for memory with {rows} row{'s' if rows > 1 else ''} each",
            advice=f"Raise the batch so that these layers see {_SMALL} rows or more (accumulating fewer "
            "steps), or batch requests together in inference.",
            others="another layer that sees as few rows",
        )


def _few_rows(context: GraphContext) -> dict[int, int]:
    """The rows of every linear layer, by op index, that has few and waits for memory on some GPU."""
    attention = {op.index for block in attention_blocks(context.graph) for op in block.ops}
    found = {}
    for op in context.graph.products:
        if op.kind not in ("linear", "matmul") or op.index in attention:
            continue
        product = _starved_product(op, context)
        if product is not None and product.batch == 1 and _rows_follow_the_batch(op, context):
            found[op.index] = product.m
    return found


def _rows_follow_the_batch(op: Op, context: GraphContext) -> bool:
    """Whether the rows may grow with the batch; False if they are known to be positions of a table or a
    grid."""
    positions = op.operand_positions
    if positions is None:
        return True
    shape = op.inputs[positions[0]].shape
    groups = [context.dims.group_of_input(op.index, positions[0], axis) for axis in range(len(shape) - 1)]
    return any(group is None or group.is_batch or group.unresolved for group in groups)


def _starved_product(op: Op, context: GraphContext) -> Gemm | None:
    """The op's forward product, where it has few rows and waits for memory on some GPU."""
    for scenario in context.scenarios:
        for row in context.estimate(scenario).rows_of(op.index):
            work = row.work
            if row.role == "forward" and isinstance(work, Gemm) and row.limiter != "math" and work.m < _SMALL:
                return work
    return None


def _findings(
    rule: GraphRule,
    context: GraphContext,
    few_of: Callable[[GraphContext], dict[int, int]],
    noun: str,
    words: Callable[[int], str],
    **others: Any,
) -> Iterator[Finding]:
    """A finding where a larger batch is predicted to gain per sample.

    Args:
        few_of: the rows of products that have too few, by op index.
        words: what is said of the least of these numbers.
        others: further arguments of `share_finding`.
    """
    # latency-bound-layers reports a latency-bound model once as a whole.
    if context.batch_is_assumed or context.once(latency_bound) is not None:
        return
    few = few_of(context)
    if not few or not context.worth_pricing(few):
        return
    rows = min(few.values())
    larger = larger_batch(context, _SMALL / rows, tuple(few), lambda at: not few_of(at))
    if larger is None:
        return
    effect, gains, change = larger
    yield share_finding(
        rule,
        context,
        [context.graph.ops[index] for index in few],
        noun,
        f"{words(rows)}{gains}",
        effect=effect,
        evidence={"rows": rows},
        identity="rows",
        change=change,
        **others,
    )
