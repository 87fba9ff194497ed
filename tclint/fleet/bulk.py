"""Many targets in one run, each reported as soon as it is done, here or on a cluster."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

from tclint.config.settings import Settings
from tclint.engine.caches import ReportCache, Traced
from tclint.engine.check import check
from tclint.engine.report import EntryError, Report
from tclint.engine.script.as_built import runs_as_built
from tclint.fleet import processes
from tclint.fleet.cluster import Lost, Workplace
from tclint.fleet.results import lines_of
from tclint.fleet.targets import Task, file_of_module
from tclint.tracing import shared_worker, trace_runs

Progress = Callable[[str], None]

MOST_AT_ONCE = 64
"""Targets of one job on a cluster: one process imports torch for them all; of a lost one all run again."""
LEAST_JOBS = 4
"""Per thread of the workers, so that none is left with the last long one."""


@dataclass(frozen=True, slots=True)
class Done:
    """What one target came to."""

    name: str
    lines: str
    """Its records, as JSON Lines."""
    errors: tuple[str, ...]
    exit_code: int


def check_tasks(
    tasks: Sequence[Task],
    jobs: int,
    on_progress: Progress | None = None,
    scheduler: str = "",
    kept: ReportCache | None = None,
) -> Iterator[Done]:
    """Lint targets as `check` does each of them, as they come; several are traced at once.

    A target that fails, hangs or crashes has a record with its error. Tasks that differ in GPUs and precision
    alone are traced once.

    Args:
        jobs: how many processes lint here; 0: one per CPU core.
        scheduler: of dask.distributed, whose workers do it instead; '' for none.
        kept: reports of earlier runs, used where nothing has changed.

    Raises:
        UsageError: a task's settings are wrong, and nothing was linted; or the cluster is of no use.
    """
    # A run on nothing refuses what is wrong, and says what the settings come to.
    settings = {given: check((), given).settings for given in {task.settings for task in tasks}}
    left: list[Task] = []
    for task in tasks:
        known = kept.load(task.target, task.settings) if kept is not None else None
        if known is None:
            left.append(task)
        else:
            yield _done(task, known)
    if scheduler:
        if left:
            yield from _on_cluster(left, scheduler, on_progress)
        return
    alike: dict[tuple[str, Settings], list[Task]] = {}
    for task in left:
        traced_as = replace(settings[task.settings], gpus=(), precision="fp16")
        alike.setdefault((task.target, traced_as), []).append(task)
    groups = [(tuple(group), settings[group[0].settings]) for group in alike.values()]
    jobs = min(jobs or os.cpu_count() or 1, len(groups))
    count = 0
    for at, found in processes.completed(_lint_group_of_many, groups, jobs) if jobs > 1 else _here(groups):
        group, _ = groups[at]
        count += len(group)
        yield from [_lost(task, found.reason) for task in group] if isinstance(found, Lost) else found
        if on_progress:
            on_progress(f"linting ({count} of {len(left)})")


def _here(groups: Sequence[tuple[tuple[Task, ...], Settings]]) -> Iterator[tuple[int, list[Done]]]:
    with shared_worker():
        for at, (group, traced_as) in enumerate(groups):
            yield at, lint_group(group, traced_as)


def _lint_group_of_many(tasks: Sequence[Task], traced_as: Settings) -> list[Done]:
    _keep_worker()
    return lint_group(tasks, traced_as)


@cache
def _keep_worker() -> None:
    """Keep one for all groups that this process lints."""
    kept = ExitStack()
    kept.enter_context(shared_worker())
    atexit.register(kept.close)


def lint_group(tasks: Sequence[Task], traced_as: Settings) -> list[Done]:
    """Lint targets that share one trace."""
    started_ns = time.time_ns()
    runs = [(tasks[0].target, traced_as)]
    [(_, results)] = runs_as_built(runs, lambda some: trace_runs(some, jobs=1))
    done = []
    for task in tasks:
        report = check([task.target], task.settings, cache=Traced(results))
        if task.settings.cache:
            ReportCache().store(task.target, task.settings, report, started_ns)
        done.append(_done(task, report))
    return done


def _done(task: Task, report: Report) -> Done:
    errors = tuple(error.message for error in report.errors)
    return Done(task.name, lines_of(task.target, task.name, report, task.of_run), errors, report.exit_code)


def _on_cluster(tasks: Sequence[Task], scheduler: str, on_progress: Progress | None) -> Iterator[Done]:
    from tclint.fleet.cluster import completed, connected, thread_count

    place = Workplace.here([file for task in tasks for file in files_of(task)])
    with connected(scheduler, place) as client:
        size = len(tasks) // (LEAST_JOBS * thread_count(client))
        size = max(1, min(MOST_AT_ONCE, size))
        chunks = [tuple(tasks[at : at + size]) for at in range(0, len(tasks), size)]
        lost: list[Task] = []
        count = 0
        for at, found in completed(client, lint_tasks, [(place, chunk) for chunk in chunks]):
            if isinstance(found, Lost):
                lost += chunks[at]
                continue
            count += len(found)
            yield from found
            if on_progress:
                on_progress(f"linting on {scheduler} ({count} of {len(tasks)})")
        # One of them ended its workers, and the others ran or waited beside it: each alone tells.
        for at, found in completed(client, lint_tasks, [(place, (task,)) for task in lost], at_once=1):
            yield from [_lost(lost[at], found.reason)] if isinstance(found, Lost) else found


def lint_tasks(place: Workplace, tasks: Sequence[Task]) -> list[Done]:
    """Lint targets in a worker of a cluster, one after the other."""
    with place.entered():
        return list(check_tasks(tasks, jobs=1))


def _lost(task: Task, reason: str) -> Done:
    message = (
        f"{task.name} was lost with every process that linted it, probably because memory ran out: {reason}"
    )
    return _done(task, Report(settings=task.settings, errors=(EntryError(task.target, message),)))


def files_of(task: Task) -> list[str]:
    """Those that a worker has to have: the target's, and what its settings name."""
    container = task.target.rpartition(":")[0] or task.target
    own = container if os.path.isfile(container) else file_of_module(container)
    named = (own or "", task.settings.calibration, *task.settings.rules)
    return [file for file in named if os.path.isfile(file)]
