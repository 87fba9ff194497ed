"""Results of many targets as JSON Lines: written as they come, gone on with after a stop, put together."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tclint.config.settings import FailOn, Settings
from tclint.core.errors import UsageError
from tclint.core.finding import LEVEL_ORDER
from tclint.core.rule import CRASH_CODE
from tclint.engine.report import Report
from tclint.report.formats.json import clean, to_dict
from tclint.report.formats.jsonlines import HEADER, LISTS, records
from tclint.report.saved import load_report

Json = Mapping[str, Any]

_RUN = b'{"type": "run"'
"""What the header begins with."""

_DONE = ("entry", "error")
"""Records that end what a target has: those before them belong to it."""
_SAME = ("schema_version", "settings")
"""Fields of the header that must be equal in files that become one report."""


def header(settings: Settings) -> str:
    """The line that a file of results begins with."""
    run = next(records(to_dict(Report(settings=settings))))
    return _line(run)


def lines_of(target: str, name: str, report: Report, of_run: Settings) -> str:
    """The records of one target, filed under a name; its entries and errors last."""

    def named(entry: str | None) -> str | None:
        # What follows is a set of inputs: 'model.py:GPT [long]'.
        return name + entry[len(target) :] if entry is not None and entry.startswith(target) else entry

    found = []
    for record in records(to_dict(report, of_run)):
        if record["type"] in ("run", "summary"):
            continue
        if "target" in record:
            record["target"] = named(record["target"])
        if record["type"] == "finding":
            record["targets"] = [named(entry) for entry in record["targets"]]
        found.append(record)
    found.sort(key=lambda record: record["type"] in _DONE)
    return "".join(map(_line, found))


def _line(record: Json) -> str:
    return json.dumps(clean(record), allow_nan=False) + "\n"


# ---------------------------------------------------------------- resuming


_KEPT = ("type", "target", "name", "value", "code", "level")
"""Fields of a record that resuming needs: whole records of thousands of targets take a GiB."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a results file already holds."""

    names: frozenset[str] = frozenset()
    """The names of the targets."""
    exit_code: int = 0
    """The exit code of a run with the same findings."""


def resume(path: str, settings: Settings) -> Known:
    """Read what a results file holds, and remove what was cut off after its last target. Creates the file.

    Raises:
        UsageError: the file cannot be used, or was written under other settings.
    """
    first = header(settings)
    try:
        data = Path(path).read_bytes() if os.path.exists(path) else b""
        lines = data.split(b"\n")[:-1]  # what follows the last end of a line was cut off
        if not lines and _RUN.startswith(data[: len(_RUN)]):
            Path(path).write_text(first, encoding="utf-8")
            return Known()
        _check_header(path, json.loads(lines[0]), json.loads(first))
        found = [
            {name: record[name] for name in _KEPT if name in record} for record in map(json.loads, lines)
        ]
        done = _done(found)
        kept = sum(len(line) + 1 for line in lines[: done[-1] + 1])
        if kept < len(data):
            os.truncate(path, kept)
    except OSError as error:
        raise UsageError(f"Cannot resume {path!r}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, IndexError):
        raise UsageError(f"{path!r} holds no results of 'tclint fleet'; give another file.") from None
    names = (found[at]["target"] for at in done if found[at]["type"] in _DONE)
    whole = found[: done[-1] + 1]
    findings = [record for record in whole if record["type"] == "finding"]
    has_errors = any(record["type"] == "error" for record in whole)
    return Known(
        frozenset(before for name in names for before in _without_sets(name)),
        _exit_code(findings, has_errors, settings.fail_on),
    )


def _done(found: Sequence[Json]) -> list[int]:
    """Positions of the header and of what ends targets, without a last target that is incomplete."""
    done = [0, *(at for at, record in enumerate(found) if record["type"] in _DONE)]
    starts = [at for at, following in itertools.pairwise([*done, len(found)]) if following > at + 1]
    if not starts:
        return done
    last = found[starts[-1] + 1 :]
    errors = sum(record["type"] == "error" for record in last)
    ended = {None, *(record["target"] for record in last if record["type"] in _DONE)}
    for record in last:
        if record["type"] == "metric" and (
            record["target"] not in ended or (record["name"] == "target_errors" and record["value"] > errors)
        ):
            return [at for at in done if at <= starts[-1]]
    return done


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Keep other runs from appending to a file, where the system has locks. Creates the file.

    Raises:
        UsageError: another run appends to it, or it cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe or a device may never end
        raise UsageError(f"Cannot resume {path!r}: it is not a regular file.")
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"Cannot resume {path!r}: {error.strerror or error}.") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another run is writing to {path!r}; give each run a file of its own, and merge them with "
                "'tclint merge'."
            ) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        yield


def _without_sets(name: str) -> Iterator[str]:
    """The name, and what it is without a set of inputs behind it."""
    yield name
    while " [" in name:
        name = name.rpartition(" [")[0]
        yield name


def _check_header(path: str, found: Json, wanted: Json) -> None:
    for name in _SAME:
        if found[name] != wanted[name]:
            differ = name
            if isinstance(found[name], dict):
                keys = (key for key, value in wanted[name].items() if found[name].get(key) != value)
                differ = next(keys, name)
            raise UsageError(
                f"The results in {path!r} were made with another {differ}; run with the same options, or "
                "give another file."
            )
    if found["tool"] != wanted["tool"]:
        raise UsageError(
            f"The results in {path!r} were made with another tclint, whose predictions may differ; give "
            "another file."
        )


# ---------------------------------------------------------------- one of several


def merge(paths: Sequence[str]) -> dict[str, Any]:
    """One report of several that hold different targets, in the order of their names.

    Raises:
        UsageError: a file is no report or made under other settings than the first, or two hold one target.
    """
    documents = [load_report(path) for path in paths]
    first = documents[0]
    for path, document in zip(paths, documents, strict=True):
        _check_header(path, document, first)
    merged: dict[str, Any] = {name: first[name] for name in HEADER}
    lists: dict[str, list[Any]] = {name: [] for name in LISTS}
    owners: dict[str, str] = {}
    for path, document in zip(paths, documents, strict=True):
        for target in {item["target"] for item in (*document["entries"], *document["errors"])}:
            if target in owners:
                raise UsageError(
                    f"{owners[target]!r} and {path!r} both hold {target}; merge results of different targets."
                )
            owners[target] = path
        for name in lists:
            lists[name] += document[name]
    for name in ("entries", "metrics", "errors"):
        lists[name].sort(key=lambda item: item["target"] or "")  # they came in any order
    merged |= lists
    merged["statistics"] = _statistics(lists["statistics"])
    merged["summary"] = _summary(merged)
    return merged


def _statistics(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Counts per rule, added up; the most frequent first."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        own = {name: value for name, value in row.items() if name not in ("code", "name")}
        counts.setdefault((row["code"], row["name"]), Counter()).update(own)
    ordered = sorted(counts.items(), key=lambda item: (-item[1]["findings"], item[0]))
    return [{"code": rule[0], "name": rule[1], **found} for rule, found in ordered]


def _summary(document: Json) -> dict[str, Any]:
    findings = document["findings"]
    by_level = Counter(finding["level"] for finding in findings)
    return {
        "findings": len(findings),
        "by_level": {level: by_level[level] for level in LEVEL_ORDER},
        "below_min_gain": sum(row["below_min_gain"] for row in document["statistics"]),
        "suppressed": sum(row["suppressed"] for row in document["statistics"]),
        "baselined": 0,
        "source_files": 0,
        "exit_code": _exit_code(findings, bool(document["errors"]), document["settings"]["fail_on"]),
    }


def _exit_code(findings: Sequence[Json], has_errors: bool, fail_on: FailOn) -> int:
    """The exit code of a run with these findings, as in `check`."""
    if has_errors or any(finding["code"] == CRASH_CODE for finding in findings):
        return 2
    if fail_on == "never":
        return 0
    return int(any(LEVEL_ORDER[finding["level"]] <= LEVEL_ORDER[fail_on] for finding in findings))
