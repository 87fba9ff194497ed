"""Products too small to keep a GPU busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tclint.analysis.attention import attention_blocks
from tclint.analysis.latency import batch_is_assumed, latency_bound
from tclint.analysis.layers import (
    costliest,
    indices_of,
    layers_take,
    leaf_ops,
    operand_positions,
    related_sites,
    rounded,
    sentence,
    share_percent,
    width_dims,
    worth_pricing,
    worth_saying_unpriced,
)
from tclint.analysis.widths.alignment import SMALLEST_WIDTH
from tclint.analysis.widths.interfaces import is_given
from tclint.analysis.widths.resizing import larger_batch
from tclint.graph.lowering.work import Gemm
from tclint.plugin import Effect, Finding, Fix, GraphContext, GraphRule, Op

_SMALL = 128
"""Linear/Fully-Connected Layers User's Guide: below about 128 rows or outputs, V100 waits for memory."""


class SmallGemm(GraphRule):
    """A linear layer is so small that the GPU waits for memory instead of computing.

    What it does
    Finds linear layers with fewer than 128 rows (batch times tokens), inputs or outputs whose time is not
    limited by arithmetic, and reports those whose share of the step is large enough: once per model where
    the rows are few, with the gain per sample of a larger batch, and once where layers are narrow and
    take five times --min-gain (5 % of the step).

    Why it costs
    A product of M x K with K x N does 2MNK operations on MK + KN + MN values. When one of the three dims
    is small, each value read is used too rarely: with a batch of 1 only once, where a V100 could do 139
    operations per byte.

    Example
        nn.Linear(4096, 1024)      # called with a batch of 16

    Use instead
        nn.Linear(4096, 1024)      # called with a batch of 256; or several narrow layers as one

    When it does not apply
    Inference whose batch is set by latency requirements, and inputs that tclint inferred: nobody chose
    their batch. Models that wait as a whole, which latency-bound-layers reports. Products inside
    attention. Scores and other outputs of one to four values. Layers that are a small part of the step.
    """

    code = "DIM012"
    name = "small-gemm"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Linear/Fully-Connected Layers User's Guide, Batch Size and Input And Output Neuron "
        "Counts: above 128",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        few_rows, narrow = _starved(context)
        # A model that is latency-bound as a whole is told so once, by latency-bound-layers.
        whole = batch_is_assumed(context) or context.once(latency_bound) is not None
        if few_rows and not whole and worth_pricing(context, indices_of(few_rows)):
            yield from self._few_rows(context, few_rows)
        if narrow and worth_saying_unpriced(context, indices_of(narrow)):
            yield self._narrow(context, narrow, share_percent(context, indices_of(narrow)))

    def _few_rows(self, context: GraphContext, ops: list[Op]) -> Iterator[Finding]:
        concerned = indices_of(ops)
        first = costliest(context, ops)
        product = _starved_product(first, context)
        assert product is not None
        shares = share_percent(context, concerned)
        products = [one for op in ops if (one := _starved_product(op, context)) is not None]
        larger = larger_batch(
            context, _SMALL / min(one.m for one in products), concerned, lambda at: not _starved(at)[0]
        )
        if larger is None:
            return
        effect, words, change = larger
        location = context.location(first)
        yield self.finding(
            location,
            f"{sentence(layers_take(ops, 'linear layer', shares))}, waiting for memory with {product.m} "
            f"row{'s' if product.m > 1 else ''} each{words}.",
            effect=effect,
            evidence={"rows": product.m, "share_percent": rounded(shares)},
            fix=Fix(
                f"Raise the batch so that these layers see {_SMALL} rows or more (accumulating fewer steps), "
                "or batch requests together in inference."
            ),
            related=related_sites(
                [op.construct_site for op in ops], location, "another layer that sees as few rows"
            ),
            identity="rows",
            change=change,
        )

    def _narrow(self, context: GraphContext, ops: list[Op], shares: dict[str, float]) -> Finding:
        first = costliest(context, ops)
        product = _starved_product(first, context)
        assert product is not None
        location = context.location(first)
        return self.finding(
            location,
            f"{sentence(layers_take(ops, 'linear layer', shares))}, waiting for memory: "
            f"{'layers of ' if len(ops) > 1 else ''}{product.k} x {product.n} "
            f"{'and the like are' if len(ops) > 1 else 'is'} narrow.",
            effect=Effect(unknown="a wider layer makes a different model"),
            evidence={"in_features": product.k, "out_features": product.n, "share_percent": rounded(shares)},
            fix=Fix(_join(ops) + "Prefer wider layers to more of them."),
            related=(
                *context.related(first),
                *related_sites([op.construct_site for op in ops], location, "another narrow layer"),
            ),
            identity="narrow",
        )


def _starved(context: GraphContext) -> tuple[list[Op], list[Op]]:
    """Layers that wait for memory with few rows, and with few inputs or outputs."""
    attention = {op.index for block in attention_blocks(context.graph) for op in block.ops}
    few_rows: list[Op] = []
    narrow: list[Op] = []
    for op in leaf_ops(context.graph):
        if op.kind not in ("linear", "matmul") or op.index in attention:
            continue
        product = _starved_product(op, context)
        if product is None or product.batch > 1:
            continue
        if product.m < _SMALL:
            few_rows += [op] if _rows_follow_the_batch(op, context) else []
        elif _is_chosen(op, context):
            narrow.append(op)
    return few_rows, narrow


def _join(ops: list[Op]) -> str:
    """Advice for narrow layers that have an input in common; '' where none have."""
    sources = Counter(op.inputs[0].source for op in ops)
    del sources[None]
    return (
        "Join narrow layers that read the same input into one. "
        if max(sources.values(), default=0) > 1
        else ""
    )


def _rows_follow_the_batch(op: Op, context: GraphContext) -> bool:
    """False where the rows are known to be something else: positions of a table, a grid."""
    positions = operand_positions(op)
    if positions is None:
        return True
    shape = op.inputs[positions[0]].shape
    groups = [context.dims.group_of_input(op.index, positions[0], axis) for axis in range(len(shape) - 1)]
    return any(group is None or group.is_batch or group.unresolved for group in groups)


def _is_chosen(op: Op, context: GraphContext) -> bool:
    """Whether the narrow side of a layer is a width, and not the model's input or output."""
    narrow = [dim for dim in width_dims(op, context.dims) if dim.size < _SMALL]
    return bool(narrow) and not any(
        dim.size < SMALLEST_WIDTH
        or dim.group is None
        or dim.group.fixed
        or dim.group.is_output
        or dim.group.unresolved
        or is_given(dim, context)
        for dim in narrow
    )


def _starved_product(op: Op, context: GraphContext) -> Gemm | None:
    """The op's forward product, where it is small and waits for memory on some GPU."""
    for scenario in context.scenarios:
        for row in context.estimate(scenario).rows_of(op.index):
            work = row.work
            if row.role != "forward" or not isinstance(work, Gemm) or row.limiter == "math":
                continue
            if min(work.m, work.n, work.k) < _SMALL:
                return work
    return None
