"""The file through which a worker hands back what became of a target: one run for every set of inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.graph.ops import Graph

EXIT_BROKEN = 70
"""Exit code of a worker that could not even write its result."""

# Bound now: user code, which runs before results are written, may replace them.
_open, _rename, _dumps, _getpid = open, os.replace, json.dumps, os.getpid


@dataclass(frozen=True)
class TraceResult:
    """What became of one target on one set of inputs: a graph or an error, never both."""

    target: str
    graph: Graph | None = None
    error: TargetError | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of 'torch' (its import, once for all targets), 'import' (of the target's file), 'build' and
    'trace' in the worker, and of 'read', the graph's way back."""
    captured_output: str = ""
    """What the target's code printed, its first 64 KiB."""
    input_set: str = ""
    """Which of the target's sets of inputs; empty: it has only one."""
    arguments: tuple[str, ...] = ()
    """Those that it was made with beside the settings' own: its project's, as `--arg` takes them."""

    inputs: tuple[str, ...] = ()
    """Inputs with which a program of its project calls it, as `--input` takes them."""

    def made_so(self, settings: Settings) -> Settings:
        """The settings of the target, with the arguments that it was made with and its program's inputs."""
        arguments, inputs = (*settings.arguments, *self.arguments), settings.inputs or self.inputs
        return replace(settings, arguments=arguments, inputs=inputs)

    @property
    def entry(self) -> str:
        """The name of the entry: the target, with the set of inputs where there are several."""
        return f"{self.target} [{self.input_set}]" if self.input_set else self.target


def write_runs(path: str, runs: Sequence[TraceResult], owner: int) -> None:
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
            "error": run.error
            and {
                "message": str(run.error),
                "details": run.error.details,
                "needed": run.error.needed,
                "has_run": run.error.has_run,
            },
            "input_set": run.input_set,
            "seconds": run.seconds,
        }
        for run in runs
    ]
    lines = [_dumps(headers), *("" if run.graph is None else run.graph.to_json() for run in runs)]
    with _open(path + ".part", "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    _rename(path + ".part", path)


def read_runs(path: str, target: str, output: str) -> list[TraceResult]:
    """What `write_runs` wrote of a target, with what the target's code printed.

    Raises:
        ValueError: something else wrote to the file.
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        first, *graphs = file.read().split("\n")
    try:
        return [
            TraceResult(
                target,
                Graph.from_json(graph) if graph else None,
                header["error"] and TargetError(**header["error"], captured_output=output),
                header["seconds"],
                output,
                header["input_set"],
            )
            for header, graph in zip(json.loads(first), graphs, strict=True)
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} holds no runs: {error}") from error
