"""The same model with the batch that it is priced at where nobody stated one."""

from __future__ import annotations

import re
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.comparisons import BatchLimits, WhatIf, batch_groups, batch_limits
from tclint.config.settings import Settings
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.graph.ops import ASSUMED_BATCH, Assumption, Graph, TensorSpec

_LARGEST = 1024
"""Few models are trained with more on one GPU, however little memory they take."""


def with_usual_batch(context: GraphContext) -> tuple[GraphContext, tuple[Assumption, ...]]:
    """The same model at the batch that people would run it with, and a sentence about it.

    In training that is the largest power of two that takes half of the memory of the smallest GPU: at the
    batch of a trace most models wait for the host. In inference it is the traced one if that fits, else the
    largest power of two that does.

    The context itself where the batch was stated, where not even one sample fits, and where the batch is
    unknown or cannot be resized.
    """
    if not context.batch_is_assumed:
        return context, ()
    limits = {scenario.gpu: batch_limits(context, scenario) for scenario in context.scenarios}
    limits = {gpu: limit for gpu, limit in limits.items() if limit.largest}
    smallest = min(limits, key=lambda gpu: limits[gpu].largest or 0, default=None)
    if smallest is None:
        return context, ()
    batch, why = _usual(limits[smallest], smallest, trains=context.settings.mode == "train")
    said = (Assumption(f"batch: {batch}, {why}; --batch sets another"),) if why else ()
    if batch == limits[smallest].batch:
        return context, said
    try:
        graph = WhatIf(context).at_batch(batch)
    except DimsUnresolved:
        return context, ()
    return GraphContext(_told_so(graph, context.graph), context.settings, context.target), said


def _told_so(graph: Graph, traced: Graph) -> Graph:
    """The graph with assumptions that name its own inputs, not those that were traced."""
    told: dict[str, set[str]] = {}
    for old, new in zip(traced.inputs, graph.inputs, strict=True):
        told.setdefault(_text(old), set()).add(_text(new))
    changed = {old: new.pop() for old, new in told.items() if len(new) == 1}

    def said(assumption: Assumption) -> Assumption:
        what = re.sub(r"\w+\[[\d,]+\]", lambda found: changed.get(found[0], found[0]), assumption.what)
        return replace(assumption, what=what)

    return replace(graph, assumptions=tuple(map(said, graph.assumptions)))


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"


def as_if_stated(context: GraphContext) -> Settings:
    """The context's settings, with the batch that its graph has been given."""
    batches = batch_groups(context.dims) if context.batch_is_assumed else ()
    return replace(context.settings, batch=batches[0].size) if batches else context.settings


def _usual(limits: BatchLimits, gpu: str, *, trains: bool) -> tuple[int, str]:
    """A batch, and why it is that."""
    traced, largest, half = limits.batch or 0, limits.largest or 0, limits.of_half or 0
    if largest < traced:
        return _power_of_two(largest), f"because {traced} does not fit into the memory of one {gpu}"
    # Another leading dim is of something else: the length of a sequence, the nodes of a graph.
    if trains and traced == ASSUMED_BATCH:
        if half <= traced:
            return traced, f"because {2 * traced} would fill more than half of the memory of one {gpu}"
        batch = min(_power_of_two(half), _LARGEST)
        filled = "half" if batch < _LARGEST else "less than half"
        return batch, f"with which the step fills {filled} of the memory of one {gpu}"
    return traced, ""


def _power_of_two(most: int) -> int:
    return 1 << (most.bit_length() - 1)
