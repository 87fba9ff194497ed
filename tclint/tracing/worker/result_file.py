"""The file through which a worker hands back what became of a target: one run for every set of inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tclint.graph.ops import Graph

EXIT_BROKEN = 70
"""Exit code of a worker that could not even write its result."""

# Bound now: user code, which runs before results are written, may replace them.
_open, _replace, _dumps, _getpid = open, os.replace, json.dumps, os.getpid


@dataclass(frozen=True)
class Run:
    """One trace of a built model: a graph or an error, never both."""

    graph: Graph | None = None
    error: str = ""
    details: str = ""
    """The traceback."""
    input_set: str = ""
    """Which of the target's sets of inputs; empty: the only one."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of 'import', 'build' and 'trace'."""
    needed: Sequence[str] = ()
    """The arguments that the target's callable lacks."""
    has_run: bool = False
    """Whether the model was built, and its forward then failed."""


def write_runs(path: str, runs: Sequence[Run], owner: int) -> None:
    """Write all of them, or nothing if that fails midway: a line of facts, then a line for each graph.

    Args:
        path: the file.
        runs: what became of the target.
        owner: the process that the result is asked of. Where the target forked itself and let the copy return
            too, the copy comes here as well, and must not write over what the original is writing.
    """
    if _getpid() != owner:
        return
    headers = [
        {
            "error": run.error,
            "details": run.details,
            "input_set": run.input_set,
            "seconds": run.seconds,
            "needed": run.needed,
            "has_run": run.has_run,
        }
        for run in runs
    ]
    lines = [_dumps(headers), *("" if run.graph is None else run.graph.to_json() for run in runs)]
    with _open(path + ".part", "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    _replace(path + ".part", path)


def read_runs(path: str) -> list[Run]:
    """What `write_runs` wrote.

    Raises:
        ValueError: something else wrote to the file.
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        first, *graphs = file.read().split("\n")
    try:
        return [
            Run(Graph.from_json(graph) if graph else None, **header)
            for header, graph in zip(json.loads(first), graphs, strict=True)
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} holds no runs: {error}") from error
