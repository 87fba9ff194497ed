"""Recognises models that something else than products limits: memory, or kernels too small for the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import module_pattern
from tclint.cost.rows import Row
from tclint.graph.lowering.work import Convolution, Gemm

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
