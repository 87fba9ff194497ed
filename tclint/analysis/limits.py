"""Recognises models that something else than products limits: memory, or kernels too small for the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tclint.analysis.change import COMPILED
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import indices_of, module_pattern
from tclint.cost.rows import Row
from tclint.graph.lowering.work import Convolution, Gemm
from tclint.graph.ops.op import GEMM_KINDS

LATENCY_BOUND_PERCENT = 20.0
"""A model counts as latency-bound if such kernels take at least this percentage of the step. Networks at the
batches they are trained with have 0 to 2 % (11 % for ResNeXt, whose groups are narrow), so a fifth is
clear."""


@dataclass(frozen=True, slots=True)
class LatencyBound:
    """A model whose step consists to a large part of waiting."""

    op_indices: tuple[int, ...]
    """Ops with a kernel that is limited by latency on some GPU."""
    share_percent: dict[str, float]
    """The share of the step, by GPU id."""
    causes: tuple[str, ...]
    """The costliest of these kernels on the GPU where they take most: '24 gelu (blocks.*.act)'."""


def batch_is_assumed(context: GraphContext) -> bool:
    """Whether the tracer chose the batch because nobody stated it; a small batch is then no fault of the
    model."""
    metadata = context.graph.metadata
    return metadata.get("inputs_from") == "inferred" and "batch" not in metadata


def latency_bound(context: GraphContext) -> LatencyBound | None:
    """The latency-bound ops; None if their kernels take less than LATENCY_BOUND_PERCENT on every GPU."""
    shares: dict[str, float] = {}
    waiting: dict[str, list[Row]] = {}
    small: set[int] = set()
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        rows = [row for row in estimate.rows if row.limiter == "latency" and row.op_index >= 0]
        small.update(row.op_index for row in rows)
        shares[estimate.gpu.id] = estimate.percent_of_step(sum(row.time_us for row in rows))
        waiting[estimate.gpu.id] = rows
    worst = max(shares, key=lambda gpu: shares[gpu], default="")
    if not worst or shares[worst] < LATENCY_BOUND_PERCENT:
        return None
    return LatencyBound(tuple(sorted(small)), shares, tuple(_causes(context, waiting[worst])))


_MOST_CAUSES = 3


def _causes(context: GraphContext, rows: Sequence[Row]) -> Iterator[str]:
    """The operators of these kernels in words, costliest first."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    ordered = sorted(by_name.values(), key=lambda same: -sum(row.time_us for row in same))
    for same in ordered[:_MOST_CAUSES]:
        ops = [context.graph.ops[index] for index in dict.fromkeys(row.op_index for row in same)]
        counted = f"{len(ops)} {same[0].name}"
        pattern = module_pattern(ops) if len(ops) > 1 else ops[0].module_path
        # The forward products give the size of the layer; those of the gradients are the same, transposed.
        forward = [row for row in same if row.phase == "forward"]
        largest = max(forward or same, key=lambda row: row.time_us)
        yield counted + (f" ({pattern})" if pattern else "") + _size(largest)


def _size(row: Row) -> str:
    work = row.work
    if isinstance(work, Gemm):
        times = f"{work.batch} x " if work.batch > 1 else ""
        return f", products of {times}{work.m} x {work.n} x {work.k}"
    if isinstance(work, Convolution):
        size = "x".join(str(extent) for extent in work.output_size)
        return f", on {work.batch} x {size} positions"
    return ""


MOVING_KINDS = ("norm", "pool", "softmax", "elementwise", "reduction")
"""Kinds of ops with few operations per byte."""


def is_memory_bound(context: GraphContext) -> bool:
    """Whether these ops take longer than all products and convolutions on some GPU.

    They have to take longer by more than the error of the prediction, both eagerly and under torch.compile,
    so that memory limits the architecture and not only its execution.
    """
    moving = indices_of(op for op in context.graph.ops if op.kind in MOVING_KINDS)
    products = indices_of(op for op in context.graph.ops if op.kind in GEMM_KINDS)
    compiled = context.with_settings(**COMPILED.settings)
    for scenarios in zip(context.scenarios, compiled.scenarios, strict=True) if products else ():
        estimates = [context.estimate(scenario) for scenario in scenarios]
        if all(
            estimate.time_of_us(moving)
            > estimate.time_of_us(products)
            * (1.0 + estimate.uncertainty_of_percent((*moving, *products)) / 100.0)
            for estimate in estimates
        ):
            return True
    return False
