"""An upper bound on what aligning dims can gain, from the kernels alone: cheap, needs no resized graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.widths.alignment import round_up
from tclint.cost.kernels.pricing import price_works
from tclint.graph.lowering.work import Convolution, Gemm, Work


def alignment_gain_percent(
    context: GraphContext, op_indices: Iterable[int], multiples: tuple[int, ...]
) -> dict[str, float]:
    """GPU id -> percentage of the step that the ops' products lose to misaligned dims.

    Each product is priced again with its misaligned dims rounded up, at the best of the multiples;
    copies and elementwise work around it are left as they are.
    """
    indices = tuple(dict.fromkeys(op_indices))
    gains = {}
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        saved_us = 0.0
        rows = [row for index in indices for row in estimate.rows_of(index)]
        rows = [row for row in rows if isinstance(row.work, Gemm | Convolution)]
        padded = [[_padded(row.work, multiple) for row in rows] for multiple in multiples]
        prices = [price_works(works, estimate.gpu, scenario.precision) for works in padded]
        for position, row in enumerate(rows):
            others = [tried[position] for tried in prices]
            best_us = min((price.time_us for price in others if price is not None), default=row.time_us)
            saved_us += max(row.time_us - best_us, 0.0)
        gains[estimate.gpu.id] = estimate.percent_of_step(saved_us)
    return gains


def _padded(work: Work, multiple: int) -> Work:
    if isinstance(work, Gemm):
        return replace(
            work, m=round_up(work.m, multiple), n=round_up(work.n, multiple), k=round_up(work.k, multiple)
        )
    if isinstance(work, Convolution) and work.groups == 1:
        return replace(
            work,
            in_channels=round_up(work.in_channels, multiple),
            out_channels=round_up(work.out_channels, multiple),
        )
    return work


def quantization_loss_percent(
    context: GraphContext, op_indices: Iterable[int] | None = None
) -> dict[str, float]:
    """GPU id -> percentage of the step that math-limited products spend on the empty parts of tiles and
    waves.

    Args:
        context: the model.
        op_indices: None: all ops.
    """
    chosen = None if op_indices is None else frozenset(op_indices)
    losses = {}
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        lost_us = sum(
            row.time_us * (1.0 - row.tile_efficiency * row.wave_efficiency)
            for row in estimate.rows
            if row.tile is not None and row.limiter == "math" and (chosen is None or row.op_index in chosen)
        )
        losses[estimate.gpu.id] = estimate.percent_of_step(lost_us)
    return losses
