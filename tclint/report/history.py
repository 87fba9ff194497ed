"""A folder of reports as one table: a row per report, model, GPU and precision, oldest first."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.finding import LEVEL_ORDER
from tclint.core.text import printable
from tclint.report.metrics import ENTRY_METRICS, GPU_METRICS
from tclint.report.saved import SUFFIXES, load_report

KEY_COLUMNS = (
    "report", "time", "commit", "dirty", "tclint", "tclint_hash", "torch", "target", "model", "graph_hash",
    "mode", "gpu", "precision",
)  # fmt: skip
METRIC_COLUMNS = (*ENTRY_METRICS, *GPU_METRICS)
COUNT_COLUMNS = tuple(f"{level}s" for level in LEVEL_ORDER)
"""Findings of the row's model, by level; of a row without a model, those of the sources."""

COLUMNS = (*KEY_COLUMNS, *METRIC_COLUMNS, *COUNT_COLUMNS)

_RUNS_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """The table, and the files that were no reports."""

    rows: tuple[Row, ...]
    """Values by column; a metric that was unavailable is None."""
    skipped: tuple[str, ...]
    """A sentence per file that could not be read."""


def history(folder: str | Path) -> History:
    """Read every report in a folder and the folders below it.

    A report's time is its commit's, else that of the file.

    Raises:
        UsageError: the folder does not exist or holds no report at all.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"There is no folder {printable(str(folder))!r}; name one with reports.")
    rows: list[Row] = []
    skipped: list[str] = []
    found = 0
    for file in _files(root):
        try:
            document = load_report(file)
        except UsageError as error:
            skipped.append(str(error))
            continue
        found += 1
        rows += _rows(document, file, file.relative_to(root).as_posix())
    if not found:
        detail = f" {skipped[0]}" if skipped else ""
        raise UsageError(
            f"{printable(str(folder))!r} holds no tclint report; write some with --output json=FILE.{detail}"
        )
    rows.sort(key=lambda row: (row["time"], row["report"]))
    return History(tuple(rows), tuple(skipped))


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                yield Path(folder, name)


def _rows(document: Mapping[str, Any], file: Path, name: str) -> Iterator[Row]:
    run = _run_columns(document, file, name)
    entries = {entry["target"]: entry for entry in document["entries"]}
    of_models: dict[str | None, Row] = defaultdict(dict)
    cells: dict[tuple[Any, ...], Row] = defaultdict(dict)
    for metric in document["metrics"]:
        key = tuple(metric[name] for name in ("target", "mode", "gpu", "precision"))
        if metric["gpu"] is not None and metric["name"] in METRIC_COLUMNS:
            cells[key][metric["name"]] = metric["value"]
        elif metric["gpu"] is None and metric["name"] in ENTRY_METRICS:
            of_models[metric["target"]][metric["name"]] = metric["value"]
    for (target, mode, gpu, precision), values in cells.items():
        entry = entries.get(target, {})
        # A precision that the GPU does not compute in is no row; a model that failed is.
        if not entry or any(values.get(name) is not None for name in GPU_METRICS):
            own = {"target": target, "mode": mode, "gpu": gpu, "precision": precision}
            model = {name: entry.get(name) for name in ("model", "graph_hash")}
            yield {**run, **own, **model, **_counts(document, target), **of_models[target], **values}
    if not cells or document.get("summary", {}).get("source_files"):
        yield {**run, **_counts(document, None)}


def _run_columns(document: Mapping[str, Any], file: Path, name: str) -> Row:
    provenance = document.get("provenance") or {}
    git = provenance.get("git") or {}
    return {
        **dict.fromkeys(COLUMNS),
        "report": name,
        "time": _time(git.get("commit_time"), file),
        **{name: git.get(name) for name in ("commit", "dirty")},
        "tclint": document["tool"].get("version"),
        "tclint_hash": document["tool"].get("hash"),
        "torch": provenance.get("torch"),
    }


def _time(commit_time: object, file: Path) -> str:
    """UTC, ISO 8601, so that texts sort as times do."""
    moment = None
    if isinstance(commit_time, str):
        with contextlib.suppress(ValueError):
            moment = datetime.datetime.fromisoformat(commit_time.replace("Z", "+00:00"))
    if moment is None or moment.tzinfo is None:
        moment = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _counts(document: Mapping[str, Any], target: str | None) -> Row:
    levels = Counter(finding["level"] for finding in document["findings"] if finding["target"] == target)
    return {f"{level}s": levels[level] for level in LEVEL_ORDER}


def to_csv(rows: Sequence[Row]) -> str:
    """The table as CSV (RFC 4180) with a header; unavailable values are empty.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    output = io.StringIO(newline="")
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[column]) for column in COLUMNS])
    return output.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(_RUNS_FORMULA) else text
    if isinstance(value, bool):
        return str(value).lower()
    return value
