"""Reports on one model, kept between runs: an unchanged model is neither priced nor checked again.

A record holds the report without its graph and, as in the trace cache, the hash of every file that the model
depends on and the versions of the tools that made it. Its name depends on all settings.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import forget_oldest, write_bytes_atomically
from tclint.core.saved import from_json, to_json
from tclint.core.text import digest
from tclint.engine.report import Report
from tclint.engine.rules.registry import all_rules
from tclint.engine.trace_cache import difference, environment, files_of
from tclint.source.syntax.cache import private_folder

_OWN = ("tclint", "tclint_rules")
_KEPT = 8192
"""The most records to keep; the oldest are removed first."""


class ReportCache:
    """Stores reports in the user's cache folder and returns those of earlier runs."""

    def __init__(self) -> None:
        self._folder = private_folder("reports")
        self._environment = environment()

    def check(self, target: str, settings: Settings, run: Callable[[], Report]) -> Report:
        """The stored report of `run` for a model, without its graph, if it is still valid; else a new one."""
        kept = self.load(target, settings)
        if kept is not None:
            return kept
        started_ns = time.time_ns()
        report = run()
        self.store(target, settings, report, started_ns)
        return report

    def load(self, target: str, settings: Settings) -> Report | None:
        """The report of an earlier run on the model; None if there is none or it is no longer valid."""
        file = self._file(target, settings)
        try:
            record = json.loads(gzip.decompress(file.read_bytes())) if file is not None else None
            if record is None or difference(record, self._environment):
                return None
            report = from_json(record["report"])
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, ImportError):
            return None
        return report if isinstance(report, Report) else None

    def _file(self, target: str, settings: Settings) -> Path | None:
        every = (settings, *dict(settings.nested).values())
        rests_on_more = any(own.baseline or own.rules or own.calibration for own in every)
        if self._folder is None or rests_on_more:
            return None
        key = json.dumps([os.getcwd(), to_json(settings)])
        return self._folder / f"{digest(target)}-{digest(key)}.json.gz"

    def store(self, target: str, settings: Settings, report: Report, started_ns: int) -> None:
        """Store the report of a run on a model that began at `started_ns` (nanoseconds)."""
        file = self._file(target, settings)
        graphs = [entry.graph for entry in report.entries if entry.graph is not None]
        if file is None or report.errors or not graphs or len(graphs) < len(report.entries):
            return
        if any(rule.__module__.partition(".")[0] not in _OWN for rule in all_rules()):
            return  # local rules may change at any time
        shown = (*report.findings, *report.below_min_gain, *report.suppressed)
        # Comments in these files silence findings, even if no graph depends on the files.
        rests_on = files_of(target, graphs, started_ns, {finding.location.path for finding in shown})
        if rests_on is None:
            return
        record: dict[str, Any] = {**self._environment, **rests_on}
        entries = tuple(replace(entry, graph=None) for entry in report.entries)
        try:
            record["report"] = to_json(replace(report, entries=entries, digests={}))
            data = gzip.compress(json.dumps(record).encode(), compresslevel=5, mtime=0)
            write_bytes_atomically(str(file), data)
        except (OSError, UsageError, TypeError, ValueError):
            return
        forget_oldest(file.parent, _KEPT)
