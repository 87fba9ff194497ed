"""Models that are made with sizes of data which only running their project tells: words, classes, features.

One size is taken, and the model is traced at others, too, so that a report can say how much depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from tclint.core.text import listed
from tclint.engine.script.argument_text import SIZE
from tclint.graph.ops import Assumption, Graph, Guess, Site
from tclint.tracing import TraceResult

_SIZES = (128, 16, 1024)
"""Of features, classes and the like: what is taken, and others that are as plausible. They are multiples of
16, so that nothing is said of their alignment."""
_WORDS = (32_768, 1024, 131_072)
"""The same, of what a table of embeddings has a row for."""


def with_guessed_sizes(
    sizes: Mapping[str, str], site: Site, trace: Callable[[dict[str, str]], TraceResult]
) -> TraceResult | None:
    """The trace of a model with a size for some arguments; None where it does not run with one.

    Args:
        sizes: the arguments that are or hold sizes, with `SIZE` for each.
        site: of the call that gives them.
        trace: makes and traces the model with values for them, as `--arg` takes them.
    """

    def at(size: int) -> TraceResult:
        return trace({name: text.replace(SIZE, str(size)) for name, text in sizes.items()})

    (chosen, *others), result = _SIZES, at(_SIZES[0])
    if result.graph is not None and _has_rows(result.graph, chosen):
        (chosen, *others), result = _WORDS, at(_WORDS[0])
    graph = result.graph
    if graph is None:
        return None
    made = [(f"at {size:,}", other) for size in others if (other := at(size).graph) is not None]
    if any(len(other.ops) != len(graph.ops) for _, other in made):
        return None  # it is a number of layers, or decides which there are
    names = [name for argument, text in sizes.items() for name in _names(argument, text)]
    shown = listed([f"{name} = {chosen}" for name in names], len(names))
    what = f"{shown}, a guess, as only running the program tells; --arg NAME=VALUE sets others"
    guess = Guess(len(graph.assumptions), "the data decide", tuple(made))
    guessed = replace(
        graph, assumptions=(*graph.assumptions, Assumption(what, site)), guesses=(*graph.guesses, guess)
    )
    return replace(result, graph=guessed)


_FIELD = re.compile(rf"(\w+)(?:=|\": )[\[(]?{SIZE}")


def _names(argument: str, text: str) -> list[str]:
    """What an argument's sizes are called: its own name, and those of the fields and items that are sizes."""
    fields = [f"{argument}.{name}" for name in _FIELD.findall(text)]
    return fields or [argument]


def _has_rows(graph: Graph, size: int) -> bool:
    """Whether a table of embeddings has that many rows."""
    tables = (op.inputs[0] for op in graph.ops if op.kind == "embedding" and op.inputs)
    return any(table.parameter is not None and table.shape[:1] == (size,) for table in tables)
