"""The same model at other plausible values of what a trace guessed: sizes that nothing states, and data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from torch import nn

from tclint.graph.ops import Graph, Guess
from tclint.tracing.inputs.given import ADVICE, CallInputs
from tclint.tracing.inputs.guesses.other_sizes import other_sizes
from tclint.tracing.values.assumptions import Policy

Trace = Callable[[CallInputs, Policy], Graph]
_MOST_SECONDS = 5.0
"""Of one trace: of a model that takes longer, the others are not waited for."""


def guesses(graph: Graph, inputs: CallInputs, model: nn.Module, trace: Trace) -> Iterator[Guess]:
    """What the trace on those inputs guessed and might have been another value.

    Args:
        trace: traces the model on such inputs, with data that give such answers.
    """
    is_slow = graph.metadata["trace_s"] > _MOST_SECONDS
    sizes = other_sizes(inputs, model, _enlarged(graph))
    said = [place for place, one in enumerate(graph.assumptions) if one.what.endswith(ADVICE)]
    if sizes is not None and said:
        tries = functools.partial(_first, trace=trace)
        smaller = () if is_slow else tries(sizes.smaller)
        # What takes no smaller picture states its size, in the sizes of its layers.
        larger = () if is_slow else tries(sizes.larger if smaller else sizes.larger[:1])
        if smaller or larger or is_slow:
            yield Guess(said[-1], sizes.why, (*smaller, *larger))
    if is_slow:
        return
    before = len(inputs.assumptions)
    if len(graph.assumptions) > before:
        yield from _of_data(graph, inputs, before, trace)


def _enlarged(graph: Graph) -> int:
    """How many times the pictures that a model makes are as high as those that it takes."""
    taken, made = (
        next((spec.shape[-2] for spec in specs if len(spec.shape) == 4), 0)
        for specs in (graph.inputs, graph.outputs)
    )
    return max(1, made // taken) if taken else 1


_POLICIES: tuple[tuple[Policy, str], ...] = (
    ("least", "if 1 in 100 is selected and loops end at their first chance"),
    ("most", "if loops that end by a value take 10 rounds"),
)


def _of_data(graph: Graph, inputs: CallInputs, before: int, trace: Trace) -> Iterator[Guess]:
    """Args:
    before: how much was assumed before anything ran.
    """
    others, places = [], []
    for policy, told in _POLICIES:
        try:
            other = trace(inputs, policy)
        except Exception:  # a model may fail on answers that it never gets
            continue
        answers = set(other.assumptions)
        changed = [place for place, one in enumerate(graph.assumptions) if one not in answers]
        if changed and changed[-1] >= before:
            others.append((told, other))
            places.append(next(place for place in changed if place >= before))
    if others:
        why = "data decide, unless an argument of the model bounds it (--arg)"
        yield Guess(min(places), why, tuple(others))


def _first(tried: Iterable[tuple[str, CallInputs]], trace: Trace) -> tuple[tuple[str, Graph], ...]:
    """The first of them on which the model runs."""
    for label, inputs in tried:
        try:
            return ((label, trace(inputs, "likely")),)
        except Exception:
            continue
    return ()
