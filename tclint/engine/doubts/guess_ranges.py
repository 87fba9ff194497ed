"""Computes how far a step may be from its price because of what its trace had to guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tclint.core.units import time_text
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.ops import Assumption, Graph

_FACTOR = 2.0
"""If plausible step times differ by at least this factor, a range is stated."""


def ranged(
    graph: Graph, scenarios: Sequence[Scenario], steps_us: Mapping[str, float]
) -> tuple[tuple[Assumption, ...], dict[str, tuple[float, float]]]:
    """The graph's assumptions, with guesses marked as doubtful if the step depends strongly on them; and GPU
    -> range of the step time.

    Args:
        steps_us: GPU -> the reported step time, perhaps at a batch other than the traced one.
    """
    assumptions = list(graph.assumptions)
    bounds = {gpu: [step_us] for gpu, step_us in steps_us.items()}
    for guess in graph.guesses:
        steps: dict[str, list[float]] = {}
        for scenario in scenarios:
            priced = estimate(graph, scenario)
            gpu, as_traced_us = priced.gpu.id, priced.step_time_us
            if not as_traced_us:
                continue
            times = [estimate(other, scenario).step_time_us / as_traced_us for _, other in guess.others]
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
