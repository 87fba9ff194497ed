"""Reads reports that an earlier run wrote as JSON or JSON Lines, and makes a Report of one again."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from tclint.config.settings import Settings, settings_in
from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Effect, Finding, Fix, GpuEffect, Location, Related
from tclint.core.text import printable
from tclint.engine.check import rank
from tclint.engine.report import Entry, EntryError, Metrics, PlannedFix, Report
from tclint.engine.same_findings import joined
from tclint.graph.ops import Assumption, Site
from tclint.report.formats.jsonlines import LISTS, document_of
from tclint.source.syntax.discovery import Skipped

SUFFIXES = (".json", ".jsonl")
_KNOWN_MAJOR = 1


def load_report(path: str | Path) -> dict[str, Any]:
    """The document of one report.

    Raises:
        UsageError: the file cannot be read, or is no report of a version that this tclint knows.
    """
    name = printable(str(path))
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"There is no report {name!r}; write one with --output json=FILE.") from None
    except OSError as error:
        raise UsageError(f"Cannot read the report {name!r}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name!r} is not a tclint report: it is not UTF-8 text.") from error
    try:
        document = _parse(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name!r} is not a tclint report: {printable(str(error))}.") from error
    document.setdefault("models_trained", [])  # reports of earlier versions have none
    _check(document, name)
    return document


def _parse(text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise
        value = document_of([_record(line) for line in lines])
    if not isinstance(value, dict):
        raise ValueError("it holds no object")
    if value.get("type") == "run":
        return document_of([value])
    return value


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a line of it holds no object")
    return record


def _check(document: dict[str, Any], name: str) -> None:
    version = document.get("schema_version")
    match = re.fullmatch(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    if match is None or not isinstance(document.get("tool"), dict):
        raise UsageError(f"{name!r} is not a tclint report: write one with --output json=FILE.")
    if int(match[1]) != _KNOWN_MAJOR:
        raise UsageError(
            f"{name!r} has the schema version {version}, which this tclint does not read; "
            "write it again with this version."
        )
    for part in LISTS:
        items = document.get(part)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise UsageError(
                f"{name!r} is not a complete tclint report: its {part!r} are missing or damaged."
            )
    for part, needed in _NEEDED.items():
        for item in document[part]:
            missing = needed - set(item)
            if missing:
                raise UsageError(
                    f"{name!r} is not a complete tclint report: {part!r} lack {', '.join(sorted(missing))}."
                )
            wrong = [key for key, kinds in _KINDS.items() if key in item and not isinstance(item[key], kinds)]
            if wrong:
                raise UsageError(
                    f"{name!r} is not a tclint report: {wrong[0]!r} in {part!r} is not of the type "
                    "it should be."
                )


_NEEDED: dict[str, frozenset[str]] = {
    "findings": frozenset(
        {"code", "name", "level", "message", "location", "effect", "fingerprint", "target"}
    ),
    "metrics": frozenset({"name", "unit", "value", "target", "gpu", "precision", "mode", "rule", "level"}),
    "entries": frozenset({"target", "inputs"}),
}
"""What readers of a report rely on; the rest of the schema they do without."""

_TEXT = (str, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("code", "name", "level", "message", "fingerprint", "target", "gpu", "precision"), _TEXT),
    **dict.fromkeys(("mode", "rule", "model", "unit"), _TEXT),
    "value": (int, float, type(None)),
    "location": (dict,),
    "effect": (dict,),
}


Json = Mapping[str, Any]
Made = TypeVar("Made")


def report_of(document: Json, name: str) -> Report:
    """The report of a document that `tclint.report.saved.load_report` read from the file `name`.

    It has no graphs, so no charts of operators. Findings that were counted and not listed are there as many
    times as they were counted, with their rule alone.

    Raises:
        UsageError: the document lacks something.
    """
    try:
        return _report(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{printable(name)!r} is not a complete tclint report: {printable(str(error))} is missing "
            "or damaged."
        ) from error


@dataclass(frozen=True, slots=True)
class _SavedFinding(Finding):
    saved_fingerprint: str = ""

    @property
    def fingerprint(self) -> str:
        """As it was saved: what it was made of is not in the report."""
        return self.saved_fingerprint


def _report(document: Json) -> Report:
    settings = _settings(Settings(), document["settings"])
    summary = document.get("summary", {})
    reasons = {
        (row["target"], row["gpu"]): row["unavailable"]
        for row in document["metrics"]
        if row["name"] == "largest_batch"
    }
    counted = list(document.get("statistics", ()))
    return Report(
        settings=settings,
        entries=tuple(_entry(entry, settings, reasons) for entry in document["entries"]),
        # Of several runs that were put together, several may have found the same.
        findings=tuple(rank(joined([_finding(finding) for finding in document["findings"]]))),
        below_min_gain=tuple(_counted(counted, "below_min_gain")),
        suppressed=tuple(_counted(counted, "suppressed")),
        baselined=tuple(_counted([{"baselined": summary.get("baselined", 0)}], "baselined")),
        skipped=tuple(
            Skipped(item["path"], item["reason"], item.get("is_part", False)) for item in document["skipped"]
        ),
        errors=tuple(EntryError(error["target"], error["message"]) for error in document["errors"]),
        source_files=summary.get("source_files", 0),
        digests=_digests(document["findings"]),
        models_trained={item["script"]: tuple(item["targets"]) for item in document["models_trained"]},
        made_with={"tool": document["tool"], "provenance": document["provenance"]},
    )


def _digests(findings: Sequence[Json]) -> dict[str, bytes]:
    """Those of the files that findings are in; several runs put together may have read different ones."""
    found: dict[str, set[str]] = {}
    for finding in findings:
        digest = finding.get("source_sha256")
        if isinstance(digest, str):
            found.setdefault(os.path.abspath(finding["location"]["path"]), set()).add(digest)
    return {path: bytes.fromhex(digests.pop()) for path, digests in found.items() if len(digests) == 1}


def _settings(base: Settings, values: Json) -> Settings:
    """Settings with those of a report, where null stands for what is not given."""
    given: dict[str, Any] = {}
    for item in settings_in("report"):
        if item.field in values:
            value = values[item.field]
            given[item.field] = tuple(value) if isinstance(value, list) else value
            if value is None:
                given[item.field] = item.default
    return replace(base, **given)


def _counted(rows: Sequence[Json], what: str) -> Iterator[Finding]:
    for row in rows:
        finding = Finding(row.get("code", ""), row.get("name", ""), "info", "low", "", Location("", 1))
        yield from [finding] * row[what]


def _made(kind: type[Made], values: Json, **own: Any) -> Made:
    """A data class of the values that it has fields for, lists as tuples, and of some that were made."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    known = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name in names
    }
    return kind(**{**known, **own})


# ---------------------------------------------------------------- models


def _entry(entry: Json, settings: Settings, reasons: Mapping[tuple[str, str], str]) -> Entry:
    from tclint.graph.lowering.work import Gap

    plan = tuple(
        _made(PlannedFix, fix, location=_made(Location, fix["location"])) for fix in entry.get("plan", ())
    )
    return _made(
        Entry,
        entry,
        metrics={
            gpu: _metrics(gpu, metrics, reasons.get((entry["target"], gpu)))
            for gpu, metrics in entry["metrics"].items()
        },
        inputs=tuple((each["name"], each["dtype"], tuple(each["shape"])) for each in entry["inputs"]),
        assumptions=tuple(
            Assumption(
                each["what"],
                Site(each["path"], each["line"]) if each["path"] else None,
                each["count"],
                each.get("doubtful", False),
            )
            for each in entry["assumptions"]
        ),
        not_analysed=tuple(
            # Which operators they are is not in a report, but how many.
            Gap(each["name"], each["reason"], (-1,) * each["count"], each["flops"], each["flops_percent"])
            for each in entry["not_analysed"]
        ),
        comparisons=tuple(map(_comparison, entry["comparisons"])),
        plan=plan,
        fixes_made=entry.get("fixes_made", len(plan)),
        graph_hash=entry["graph_hash"] or "",
        torch_version=entry["torch"] or "",
        input_set=entry.get("input_set") or "",
        is_worst_case=bool(entry.get("is_worst_case")),
        settings=_settings(settings, entry.get("settings", {})),
        seconds={},
    )


_UNKNOWN = (
    "step_time_us", "forward_time_us", "backward_time_us", "optimizer_time_us", "readiness_percent",
    "tensor_core_time_percent", "uncertainty_percent",
)  # fmt: skip
"""Numbers that are null in JSON where they are not finite."""


def _metrics(gpu: str, metrics: Json, no_batch: str | None) -> Metrics:
    from tclint.analysis.what_if.comparisons import BatchLimits
    from tclint.cost.rows import Memory

    own: dict[str, Any] = {name: math.nan for name in _UNKNOWN if metrics[name] is None}
    if metrics["amdahl_ceiling"] is None:
        own["amdahl_ceiling"] = math.nan if metrics["step_time_us"] is None else math.inf
    if metrics.get("memory") is not None:
        own["memory"] = _made(Memory, metrics["memory"])
        largest, checkpointed = metrics.get("largest_batch"), metrics.get("largest_batch_checkpointed")
        own["batch_limits"] = BatchLimits(metrics.get("batch"), largest, checkpointed, no_batch)
    return _made(Metrics, metrics, gpu=gpu, **own)


def _comparison(comparison: Json) -> Any:
    from tclint.analysis.what_if.comparisons import ComparedStep, Comparison

    rows = tuple(_made(ComparedStep, row) for row in comparison["rows"])
    return _made(Comparison, comparison, rows=rows)


# ---------------------------------------------------------------- findings

_PRICED = ("cost_us", "gain_us", "gain_percent", "uncertainty_percent")
"""Numbers that are null in JSON where they are not finite."""


def _finding(finding: Json) -> Finding:
    fix = finding["fix"]
    edits = tuple(
        Edit(edit["path"], tuple(edit["start"]), tuple(edit["end"]), edit["replacement"])
        for edit in (fix or {}).get("edits", ())
    )
    related = (
        _made(Related, each, location=_made(Location, each["location"])) for each in finding["related"]
    )
    return _made(
        _SavedFinding,
        finding,
        location=_made(Location, finding["location"]),
        related=tuple(related),
        effect=_effect(finding["effect"]),
        fix=None if fix is None else Fix(fix["advice"], fix["safety"], edits),
        also_targets=tuple(finding.get("targets", ())[1:]),
        saved_fingerprint=finding["fingerprint"],
    )


def _effect(effect: Json) -> Effect:
    if "unknown" in effect:
        return Effect(unknown=effect["unknown"])
    return Effect(
        {
            gpu: _made(GpuEffect, each, **{name: math.nan for name in _PRICED if each[name] is None})
            for gpu, each in effect.items()
        }
    )
