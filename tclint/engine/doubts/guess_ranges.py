"""Computes how far a step may be from its price because of what its trace had to guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.comparisons import WhatIf
from tclint.analysis.what_if.usual_batch import as_if_stated
from tclint.core.units import time_text
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.graph.ops import Assumption, Graph

_FACTOR = 2.0
"""If plausible step times differ by at least this factor, a range is stated."""


def ranged(
    graph: Graph, scenarios: Sequence[Scenario], steps_us: Mapping[str, float], priced: GraphContext | None
) -> tuple[tuple[Assumption, ...], dict[str, tuple[float, float]]]:
    """The graph's assumptions, with guesses marked as doubtful if the step depends strongly on them; and GPU
    -> range of the step time.

    Args:
        graph: as it was traced.
        steps_us: by GPU, as they are reported.
        priced: the graph at the batch of that step, where it was traced at another.
    """
    assumptions = list(graph.assumptions)
    bounds = {gpu: [step_us] for gpu, step_us in steps_us.items()}
    for guess in graph.guesses:
        steps: dict[str, list[float]] = {}
        chosen, *others = _at_batch([graph, *(other for _, other in guess.others)], priced)
        for scenario in scenarios:
            found = estimate(chosen, scenario)
            gpu, as_traced_us = found.gpu.id, found.step_time_us
            if not as_traced_us:
                continue
            times = [estimate(other, scenario).step_time_us / as_traced_us for other in others]
            steps[gpu] = [steps_us[gpu] * ratio for ratio in times]
        extremes = [(min(steps_us[gpu], *of), max(steps_us[gpu], *of)) for gpu, of in steps.items()]
        if all(longest <= _FACTOR * shortest for shortest, longest in extremes):
            continue
        for gpu, of_gpu in steps.items():
            bounds[gpu] += of_gpu
        first = next(iter(steps))
        step_times = ", ".join(
            f"{time_text(step_us)} {label}"
            for (label, _), step_us in zip(guess.others, steps[first], strict=True)
        )
        what = f"{assumptions[guess.assumption].what}; {guess.why}: the step takes {step_times}, on {first}"
        assumptions[guess.assumption] = replace(assumptions[guess.assumption], what=what, is_doubtful=True)
    ranges = {gpu: (min(of), max(of)) for gpu, of in bounds.items() if len(of) > 1}
    return tuple(assumptions), ranges


def _at_batch(graphs: list[Graph], priced: GraphContext | None) -> list[Graph]:
    """The graphs at the batch of the priced one; as they are where one of them cannot be resized."""
    batch = None if priced is None else as_if_stated(priced).batch
    if priced is None or batch is None:
        return graphs
    try:
        return [WhatIf(GraphContext(graph, priced.settings)).at_batch(batch) for graph in graphs]
    except DimsUnresolved:
        return graphs
