"""Many targets in one run, each reported as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tclint.config.settings import Settings
from tclint.engine.check import Progress, check
from tclint.engine.report import Report
from tclint.fleet.targets import Task
from tclint.tracing import TraceResult, trace_runs


def check_tasks(
    tasks: Sequence[Task], jobs: int, on_progress: Callable[[str], None] | None
) -> Iterator[tuple[Task, Report]]:
    """Lint targets as `check` does each of them, as they come; several are traced at once.

    A target that fails, hangs or crashes has a report with its error.

    Raises:
        UsageError: a task's settings are wrong; nothing was linted.
    """
    # A run on nothing refuses what is wrong, and says what the settings come to.
    settings = {given: check((), given).settings for given in {task.settings for task in tasks}}
    runs = [(task.target, settings[task.settings]) for task in tasks]
    for index, results in trace_runs(runs, jobs=jobs, on_progress=on_progress):
        task = tasks[index]
        yield task, check([task.target], task.settings, on_progress, cache=_Traced(results))


@dataclass(frozen=True, slots=True)
class _Traced:
    """Traces that are there already."""

    results: list[TraceResult]

    def trace(
        self,
        targets: Sequence[str],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[TraceResult]:
        del settings, own, on_progress
        assert {result.target for result in self.results} <= set(targets)
        yield from self.results
