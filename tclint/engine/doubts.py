"""Doubts with which a report opens because its figures depend on them: guessed sizes, parameters that nothing
trains, work without a price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.comparisons import WhatIf
from tclint.analysis.what_if.usual_batch import as_if_stated
from tclint.core.text import listed
from tclint.core.units import count, percent_text, time_text
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.lowering.work import Gap
from tclint.graph.ops import Assumption, Graph
from tclint.graph.ops.op_tables import operators

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
    assumptions = list((graph if priced is None else priced.graph).assumptions)
    bounds = {gpu: [step_us] for gpu, step_us in steps_us.items()}
    for guess in graph.guesses:
        if not guess.others:  # tracing it at others would have taken too long
            what = f"{assumptions[guess.assumption].what}; {guess.why}"
            assumptions[guess.assumption] = replace(
                assumptions[guess.assumption], what=what, is_doubtful=True
            )
            continue
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


_NEARLY_ALL = 0.9
"""Many forwards leave out a head for pretraining or one of several heads, so a few percent may be missing."""
_LITTLE = 0.5


def untrained(graph: Graph) -> Iterator[Assumption]:
    """An assumption about trainable parameters that a training step leaves without gradients."""
    trainable = {
        name: parameter
        for parameter in graph.parameters
        if parameter.trainable and not parameter.is_buffer
        for name in (parameter.name, *parameter.aliases)
    }
    total = sum({parameter.name: parameter.numel for parameter in trainable.values()}.values())
    if not total or not graph.ops:
        return
    used, trained = set[str](), set[str]()
    for op, needs in zip(graph.ops, gradient_needs(graph), strict=True):
        for spec, needed in zip(op.inputs, needs, strict=True):
            if spec.parameter in trainable:
                used.add(trainable[spec.parameter].name)
                if needed:
                    trained.add(trainable[spec.parameter].name)
    sizes = {parameter.name: parameter.numel for parameter in trainable.values()}
    of_used, of_trained = (sum(sizes[name] for name in names) / total for names in (used, trained))
    if of_used < _NEARLY_ALL:
        yield Assumption(
            f"that the forward is what trains, though it reaches only {percent_text(100 * of_used)} of "
            f"{count(total)} trainable parameters (not {_largest(sizes, used)}); name what computes the "
            "loss, or give the inputs with which it does",
            graph.root_site,
            is_doubtful=of_used < _LITTLE,
        )
    elif of_trained < _NEARLY_ALL:
        yield Assumption(
            f"that the step trains little: {percent_text(100 * (1 - of_trained))} of {count(total)} "
            "trainable parameters get no gradient, because the forward runs under no_grad or detaches what "
            f"they make ({_largest(sizes, trained)}); --mode infer prices a step without a backward pass",
            graph.root_site,
            is_doubtful=of_trained < _LITTLE,
        )


def _largest(sizes: dict[str, int], without: set[str]) -> str:
    """The top-level modules with most of the remaining parameters."""
    modules: Counter[str] = Counter()
    for name, size in sizes.items():
        if name not in without:
            modules[name.partition(".")[0]] += size
    return listed([name for name, _ in modules.most_common()], 3)


_DOUBTFUL_PERCENT = 25.0
"""Of the operators, or of the forward FLOPs: with more of them unpriced, the figures are of another step."""
_FREE = operators("memory", "free")


def unpriced(graph: Graph, gaps: Sequence[Gap]) -> Assumption | None:
    """That operators without a formula take no time, where they are many; the report lists all of them."""
    missing = {index for gap in gaps for index in gap.op_indices}
    running = sum(op.kind != "view" and op.name not in _FREE for op in graph.ops)
    flops_percent = sum(gap.flops_percent or 0.0 for gap in gaps)
    percent = max(100.0 * len(missing) / max(running, 1), flops_percent)
    if percent < _DOUBTFUL_PERCENT:
        return None
    names = listed(list(dict.fromkeys(gap.name for gap in gaps)), 3)
    told = f"that {len(missing)} of {running} operators, which have no formula ({names}), take no time"
    return Assumption(told, is_doubtful=True)


def written_backward(graph: Graph) -> Assumption | None:
    """That backward passes which the model's code writes out do what autograd would do in their place."""
    own = [op for op in graph.ops if op.has_own_backward and op.kind != "view"]
    if not own:
        return None
    running = sum(op.kind != "view" and op.name not in _FREE for op in graph.ops)
    told = (
        f"the backward of custom autograd.Functions ({len(own)} of {running} operators) is priced as the "
        "derivative of their forward"
    )
    return Assumption(told, own[0].call_site)
