"""Checks by the share of parameters with gradients that the trace is of the model that is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tclint.core.text import listed
from tclint.core.units import count, percent_text
from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.ops import Assumption, Graph

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
