"""Models that are made with sizes of data which only running their project tells: words, classes, features.

One size is taken, and the model is traced at others, too, so that a report can say how much depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tclint.core.text import listed
from tclint.graph.ops import Assumption, Graph, Guess, Site
from tclint.tracing import TraceResult
from tclint.tracing.worker.program.seen import SIZE

_SIZES = (128, 16, 1024)
"""Of features, classes and the like: what is taken, and others that are as plausible. They are multiples of
16, so that nothing is said of their alignment."""
_WORDS = (32_768, 1024, 131_072)
"""The same, of what a table of embeddings has a row for."""
_MAY_BE = (SIZE, f"({SIZE},)")
"""What an argument of which nothing is known may be: a size, or a shape with one dim."""
_MOST_UNCLEAR = 2


def with_guessed_sizes(
    sizes: Mapping[str, str],
    unclear: Sequence[str],
    site: Site,
    trace: Callable[[dict[str, str]], TraceResult],
) -> TraceResult | None:
    """The trace of a model with a size for some arguments; None where it does not run with one.

    Args:
        sizes: the arguments that are or hold sizes, with `SIZE` for each.
        unclear: arguments of which nothing is known: those that are sizes, or shapes of one, change a weight.
        site: of the call that gives them.
        trace: makes and traces the model with values for them, as `--arg` takes them.
    """
    for texts in product(_MAY_BE, repeat=len(unclear)) if len(unclear) <= _MOST_UNCLEAR else ():
        tried = {**sizes, **dict(zip(unclear, texts, strict=True))}
        found = _with(tried, unclear, site, trace)
        if found is not None:
            return found
    return None


def _with(
    sizes: Mapping[str, str],
    unclear: Sequence[str],
    site: Site,
    trace: Callable[[dict[str, str]], TraceResult],
) -> TraceResult | None:
    def at(size: int, other: int | None = None, but: str = "") -> TraceResult:
        """With one size for all of them, or another one for one of them."""
        taken = {name: other if name == but else size for name in sizes}
        return trace({name: text.replace(SIZE, str(taken[name])) for name, text in sizes.items()})

    (chosen, *others), result = _SIZES, at(_SIZES[0])
    if result.graph is not None and _rows(result.graph) != _rows(at(_SIZES[1]).graph):
        (chosen, *others), result = _WORDS, at(_WORDS[0])
    graph = result.graph
    if graph is None:
        return None
    for name in unclear:
        changed = at(chosen, others[-1], name).graph
        if changed is None or _weights(changed) == _weights(graph):
            return None  # it is a switch, a rate or the like
    made = [(f"at {size:,}", other) for size in others if (other := at(size).graph) is not None]
    if any(len(other.ops) != len(graph.ops) for _, other in made):
        return None  # it is a number of layers, or decides which there are
    named = [name for argument, text in sizes.items() for name in _named(argument, text)]
    shown = listed([text.replace(SIZE, str(chosen)) for text in named], len(named))
    what = f"{shown}, a guess, as only the program's data tell; --arg NAME=VALUE sets others"
    guess = Guess(len(graph.assumptions), "the data decide", tuple(made))
    guessed = replace(
        graph, assumptions=(*graph.assumptions, Assumption(what, site)), guesses=(*graph.guesses, guess)
    )
    return replace(result, graph=guessed)


_FIELD = re.compile(rf"(\w+)(?:=|\": )[\[(]?{SIZE}")


def _named(argument: str, text: str) -> list[str]:
    """An argument's sizes with their names: its own, and those of the fields and items that are sizes."""
    fields = [f"{argument}.{name} = {SIZE}" for name in _FIELD.findall(text)]
    return fields or [f"{argument} = {text if text in _MAY_BE else SIZE}"]


def _weights(graph: Graph) -> list[tuple[int, ...]]:
    return sorted(spec.shape for op in graph.ops for spec in op.inputs if spec.parameter is not None)


def _rows(graph: Graph | None) -> list[int]:
    """How many rows each table of embeddings has: a size of data may be counted with padding or a mask."""
    tables = [op.inputs[0] for op in graph.ops if op.kind == "embedding" and op.inputs] if graph else []
    return [table.shape[0] for table in tables if table.parameter is not None and table.shape]
