"""Models in an editor: which callables are some, and what the last trace of each says.

Looking a trace up, and pricing one, runs nothing of the user's; only `trace` does, in a worker process, and
it is called on request only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tclint.config.pyproject import find_config
from tclint.config.settings import Settings
from tclint.core.errors import TclintError
from tclint.core.finding import Finding
from tclint.core.units import plural, time_text, uncertainty_text
from tclint.engine.caches import TraceCache, Traced
from tclint.engine.check import check
from tclint.engine.declared_models import settings_of as declared_settings
from tclint.engine.declared_models import target_of
from tclint.engine.model_listing.candidates import list_models
from tclint.engine.report import Report
from tclint.engine.script.as_built import trace_as_built
from tclint.server.text import moved
from tclint.tracing import TraceResult, trace_targets


@dataclass(frozen=True)
class TraceTarget:
    """A callable of a file that can be linted as a model."""

    target: str
    """As it would be typed in the working directory."""
    line: int
    settings: Settings


@dataclass(frozen=True)
class LastTrace:
    """What the last trace of a model says."""

    report: Report
    at_ns: int
    """When its files were read."""
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    """The lines, by absolute path, of the files that its findings are in."""

    @property
    def title(self) -> str:
        """'68.1 ms on a100-sxm4-80gb (+-9 %), 3 findings'."""
        entry = next(iter(self.report.entries), None)
        metrics = next(iter(entry.metrics.values()), None) if entry is not None else None
        if metrics is None:
            return next((error.message for error in self.report.errors), "it has no step time")
        time = f"{time_text(metrics.step_time_us)} on {metrics.gpu}"
        return (
            f"{time} ({uncertainty_text(metrics.uncertainty_percent)}), "
            f"{plural(len(self.report.findings), 'finding')}"
        )

    @property
    def sources(self) -> list[str]:
        """The files that it rests on."""
        graphs = (entry.graph for entry in self.report.entries)
        return [str(path) for graph in graphs if graph for path in graph.metadata.get("source_files", ())]

    def is_older_than(self, unsaved: Mapping[str, bytes]) -> bool:
        """Whether a file that it rests on has changed since, on the disk or in an editor.

        Args:
            unsaved: the bytes of open documents by absolute path.
        """
        for path in self.sources:
            try:
                if os.stat(path).st_mtime_ns > self.at_ns:
                    return True
                if path in unsaved and unsaved[path] != Path(path).read_bytes():
                    return True
            except OSError:
                return True
        return False

    def findings_in(self, path: str, lines: Sequence[str]) -> list[Finding]:
        """The findings in a file as it is now, those on lines that have changed left out."""
        found = [
            finding for finding in self.report.findings if os.path.abspath(finding.location.path) == path
        ]
        return moved(found, self.texts.get(path, ()), lines) if found else []


def targets_in(path: str, data: bytes, settings: Settings) -> list[TraceTarget]:
    """What in a file can be traced: declared models, and callables that are known to build one. Where one
    needs arguments, its project may state them."""
    candidates = list_models([path], {path: data})[0]
    found = {
        candidate.target: TraceTarget(candidate.target, candidate.line, settings)
        for candidate in candidates
        if candidate.certain
    }
    lines = {candidate.target: candidate.line for candidate in candidates}
    for model in settings.models:
        target = target_of(model)
        if target in lines:
            found[target] = TraceTarget(target, lines[target], declared_settings(model, settings))
    return sorted(found.values(), key=lambda one: one.line)


def look_up(model: TraceTarget) -> LastTrace | None:
    """What the trace cache knows of a model, priced now; None where it would have to be traced."""
    started_ns = time.time_ns()
    with contextlib.suppress(TclintError):
        settings = model.settings.in_phase()
        for cache in _caches(model) if settings.cache else ():
            known = cache.known(model.target, settings)
            if known is not None:
                return priced(model, known, started_ns)
    return None


def trace(model: TraceTarget, on_progress: Callable[[str], None]) -> tuple[list[TraceResult], int]:
    """Build and trace a model in a worker process, and when its files were read.

    Raises:
        UsageError: its settings contradict each other.
    """
    settings, started_ns = model.settings.in_phase(), time.time_ns()
    cache = next(_caches(model), None) if settings.cache else None
    run = cache.trace if cache is not None else trace_targets
    return list(trace_as_built([model.target], settings, on_progress=on_progress, trace=run)), started_ns


def priced(model: TraceTarget, results: list[TraceResult], at_ns: int) -> LastTrace:
    """The report of a model that was traced.

    Args:
        at_ns: when its files were read.

    Raises:
        UsageError: a setting names a rule or GPU that there is not.
    """
    report = check(model.target, model.settings, cache=Traced(results))
    paths = {os.path.abspath(finding.location.path) for finding in report.findings}
    return LastTrace(report, at_ns, {path: _lines(path) for path in paths})


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []


def _caches(model: TraceTarget) -> Iterator[TraceCache]:
    """Where its trace may be kept: that of the project for declared models, and the user's."""
    is_declared = any(target_of(one) == model.target for one in model.settings.models)
    config = find_config(Path(model.target.partition(":")[0]).absolute().parent) if is_declared else None
    if config is not None:
        yield TraceCache(str(config.parent))
    users = TraceCache.of_user()
    if users is not None:
        yield users
