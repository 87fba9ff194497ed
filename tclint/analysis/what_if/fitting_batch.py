"""The same model with a batch that fits the GPU."""

from __future__ import annotations

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.latency import batch_is_assumed
from tclint.analysis.what_if.comparisons import WhatIf, batch_limits
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.graph.ops import Assumption


def with_fitting_batch(context: GraphContext) -> tuple[GraphContext, tuple[Assumption, ...]]:
    """The same model at the largest power-of-two batch that fits the smallest GPU, and an assumption that
    says so.

    The context itself is returned if its batch was stated or fits, if not even one sample fits, or if the
    batch is unknown or cannot be resized.
    """
    if not batch_is_assumed(context):
        return context, ()
    limits = {scenario.gpu: batch_limits(context, scenario) for scenario in context.scenarios}
    largest = {gpu: limit.largest for gpu, limit in limits.items() if limit.largest}
    smallest = min(largest, key=lambda gpu: largest[gpu], default=None)
    if smallest is None:
        return context, ()
    present = limits[smallest].batch
    if present is None or largest[smallest] >= present:
        return context, ()
    batch = 1 << (largest[smallest].bit_length() - 1)
    try:
        graph = WhatIf(context).at_batch(batch)
    except DimsUnresolved:
        return context, ()
    note = f"batch: {batch}, because {present} does not fit into the memory of one {smallest}"
    fitting = GraphContext(graph, context.settings, context.target)
    return fitting, (Assumption(f"{note}; --batch sets another"),)
