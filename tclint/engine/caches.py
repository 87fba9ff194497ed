"""What runs keep of models: nothing is traced, priced or checked again until a file it rests on changes.

A record of traces is gzipped JSON: of declared models in `.tclint_cache/` beside the configuration file, of
others in the user's cache folder. It holds the traced graphs, and everything that tracing depends on: the
trace settings, the versions of what traced, and a hash of every file that the model imported or opened.
Pricing and rules are not part of it; they run afresh, without torch. A record of a report is in the user's
cache folder and holds it without its graph; its name depends on all settings.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tclint.config.settings import Settings, settings_in
from tclint.core.errors import UsageError
from tclint.core.files import forget_oldest, read_record, write_bytes_atomically, write_record
from tclint.core.saved import from_json, to_json
from tclint.core.search_path import MARKS_OR_README
from tclint.core.text import digest
from tclint.engine.check import Progress
from tclint.engine.provenance import is_hashed, tool_hash
from tclint.engine.report import Report
from tclint.engine.rules.registry import known_rules
from tclint.graph.ops import Graph
from tclint.source.syntax.cache import private_folder
from tclint.tracing import TraceResult, trace_targets


@dataclass(frozen=True, slots=True)
class Traced:
    """A cache for `check` that holds the traces of one target."""

    results: Sequence[TraceResult]

    def trace(
        self,
        targets: Sequence[str],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[TraceResult]:
        """As `tclint.tracing.trace_targets`."""
        del settings, own, on_progress
        assert {result.target for result in self.results} <= set(targets)
        yield from self.results


FOLDER = ".tclint_cache"
_SCHEMA = 3
_KEPT = 64
"""The most records in the folder of a project; the oldest are removed first."""
_KEPT_OF_USER = 256
"""The most records in the folder of a user."""
_HASHED_BYTES = 64 * 2**20
"""Larger files (weights, data) are represented by their size and time of change."""


class TraceCache:
    """Returns stored traces of models, and traces the models that it does not have."""

    def __init__(
        self, root: str, say: Callable[[str], None] = lambda _: None, *, folder: Path | None = None
    ) -> None:
        """Args:
        root: the folder of the configuration file.
        say: called with a line about every target: why it is traced, or that it is not.
        folder: the folder of the records; None: one in `root`.
        """
        self._folder = folder or Path(root) / FOLDER
        self._kept = _KEPT if folder is None else _KEPT_OF_USER
        self._say = say

    @classmethod
    def of_user(cls, say: Callable[[str], None] = lambda _: None) -> TraceCache | None:
        """The user's cache, for models that no project declares; None if no folder is safe to use."""
        folder = private_folder("models")
        return None if folder is None else cls("", say, folder=folder)

    def trace(
        self,
        targets: Sequence[str],
        settings: Settings,
        own: Mapping[str, Settings] | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> Iterator[TraceResult]:
        """As `tclint.tracing.trace_targets`, which it calls for the targets that are not up to date."""
        own = own or {}
        known: dict[str, list[TraceResult]] = {}
        for target in targets:
            found = self._load(target, own.get(target, settings))
            if isinstance(found, str):
                self._say(f"cache: {target} is traced: {found}")
            else:
                self._say(f"cache: {target} is unchanged")
                known[target] = found
        missing = [target for target in targets if target not in known]
        started_ns = time.time_ns()
        traced: dict[str, list[TraceResult]] = {target: [] for target in missing}
        # All results are read before the first is passed on, since a target may have several.
        for result in trace_targets(missing, settings, own=own, on_progress=on_progress) if missing else ():
            traced[result.target].append(result)
        for target in missing:
            self._store(target, own.get(target, settings), traced[target], started_ns)
        for target in targets:
            yield from known.get(target) or traced[target]

    def known(self, target: str, settings: Settings) -> list[TraceResult] | None:
        """The stored results of a target; None if it has to be traced."""
        found = self._load(target, settings)
        return None if isinstance(found, str) else found

    def _load(self, target: str, settings: Settings) -> list[TraceResult] | str:
        """The stored results, or the reason why there are none."""
        file = self._file(target, settings)
        started = time.perf_counter()
        try:
            record = read_record(file)
        except FileNotFoundError:
            others = self._folder.glob(f"{digest(target)}-*.json.gz")
            return "it was not traced with these settings yet" if any(others) else "it was not traced yet"
        except (OSError, EOFError, ValueError, zlib.error):
            return "its record is damaged"
        try:
            reason = difference(record, environment())
            if reason:
                return reason
            return [
                TraceResult(
                    target,
                    Graph.from_json(run["graph"]),
                    seconds={"read": (time.perf_counter() - started) / len(record["runs"])},
                    captured_output=str(run["captured_output"]),
                    input_set=str(run["input_set"]),
                )
                for run in record["runs"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, ZeroDivisionError):
            return "its record is damaged"

    def _store(self, target: str, settings: Settings, results: list[TraceResult], started_ns: int) -> None:
        """Store the results of a trace, unless the model failed or its files have changed meanwhile."""
        if not results or any(result.graph is None for result in results):
            return
        graphs = [result.graph for result in results if result.graph is not None]
        rests_on = files_of(target, graphs, started_ns)
        if rests_on is None:
            return
        record = {
            **environment(),
            **rests_on,
            "runs": [
                {
                    "graph": result.graph.to_json(),
                    "input_set": result.input_set,
                    "captured_output": result.captured_output,
                }
                for result in results
                if result.graph is not None
            ],
        }
        try:
            self._folder.mkdir(exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                write_bytes_atomically(str(ignore), b"*\n")
            _write(self._file(target, settings), record, self._kept)
        except (OSError, UsageError) as error:
            self._say(f"cache: nothing is kept: {error}")

    def _file(self, target: str, settings: Settings) -> Path:
        options = [os.getcwd(), *(item.json_value(settings) for item in settings_in("trace"))]
        return self._folder / f"{digest(target)}-{digest(json.dumps(options))}.json.gz"


def _write(file: Path, record: dict[str, Any], kept: int) -> None:
    """Write a record, and remove the oldest of its folder beyond so many."""
    write_record(file, record, level=5)
    forget_oldest(file.parent, kept)


def files_of(
    target: str, graphs: Sequence[Graph], started_ns: int, more: Collection[str] = ()
) -> dict[str, Any] | None:
    """The state of the files that graphs depend on, for `difference`; None if the files are unknown or have
    changed since the trace began.

    Args:
        more: paths of other files that matter; missing ones are ignored.
    """
    paths = sorted({str(path) for graph in graphs for path in graph.metadata.get("source_files", ())})
    try:
        # A model of an installed package depends on that package alone.
        if (not paths and ".py:" in target) or any(os.stat(path).st_mtime_ns >= started_ns for path in paths):
            return None
        others = {os.path.abspath(path) for path in more if os.path.isfile(path)}
        files = {path: _content_hash(path) for path in sorted({*paths, *others})}
    except OSError:
        return None
    are_inferred = any(graph.metadata.get("inputs_from") == "inferred" for graph in graphs)
    absent = {name for graph in graphs for name in graph.metadata.get("absent", ())}
    return {"files": files, "folders": _listed(paths) if are_inferred else {}, "absent": sorted(absent)}


def difference(record: dict[str, Any], now: dict[str, Any]) -> str:
    """The change since the record was made, or ''; `now` is `environment()`."""
    for name, value in now.items():
        if record[name] != value:
            return _REASONS[name]
    for path, known in record["files"].items():
        shown = os.path.relpath(path)
        try:
            if _content_hash(path) != known:
                return f"{shown} changed"
        except OSError:
            return f"{shown} is gone"
    for folder, names in record["folders"].items():
        if _names(folder) != names:
            return f"the scripts in {os.path.relpath(folder)} are others"
    return next((f"{name} is there now" for name in record["absent"] if find_spec(name) is not None), "")


_LEVELS = 2
"""Folders above a model's file in which scripts may state the sizes of its inputs."""


def _listed(paths: Sequence[str]) -> dict[str, list[str]]:
    """Folder -> the names in it on which inferred inputs may depend beside the files that were read."""
    folders: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        for _ in range(_LEVELS + 1):
            folders.add(folder)
            folder = os.path.dirname(folder)
    return {folder: _names(folder) for folder in sorted(folders)}


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".py") or name in MARKS_OR_README)
    except OSError:
        return []


_REASONS = {
    "schema": "new tclint",
    "tclint": "new tclint",
    "torch": "another torch",
    "python": "another Python",
    "packages": "the installed packages changed",
}


def environment() -> dict[str, Any]:
    """The versions and settings that a trace depends on; nothing is imported to find them."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    # The names of the metadata folders contain the versions; reading each folder would take seconds.
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    installed: list[str] = []
    for folder in sorted(folders):
        with contextlib.suppress(OSError):
            installed += sorted(name for name in os.listdir(folder) if name.endswith(("-info", ".pth")))
    return {
        "schema": _SCHEMA,
        "tclint": tool_hash(),
        "torch": torch,
        "python": f"{sys.version} {sys.prefix}",
        "packages": digest("\n".join(installed)),
    }


def _content_hash(path: str) -> str:
    size = os.stat(path).st_size
    if size > _HASHED_BYTES:
        return f"{size} bytes at {os.stat(path).st_mtime_ns}"
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


_KEPT_REPORTS = 8192
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
            record = None if file is None else read_record(file)
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
        if not all(map(is_hashed, known_rules())):
            return
        shown = (*report.findings, *report.below_min_gain, *report.suppressed)
        # Comments in these files silence findings, even if no graph depends on the files.
        rests_on = files_of(target, graphs, started_ns, {finding.location.path for finding in shown})
        if rests_on is None:
            return
        record: dict[str, Any] = {**self._environment, **rests_on}
        entries = tuple(replace(entry, graph=None) for entry in report.entries)
        try:
            record["report"] = to_json(replace(report, entries=entries, digests={}))
            _write(file, record, _KEPT_REPORTS)
        except (OSError, UsageError, TypeError, ValueError):
            return
