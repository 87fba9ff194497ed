"""SARIF 2.1.0 as GitHub code scanning takes it: a run per model and one for sources.

Required properties and limits: GitHub Docs, 'SARIF support for code scanning'. Columns count characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tclint.core.errors import TclintError
from tclint.core.finding import Confidence, Finding, Fix, Level, Location
from tclint.core.markup import shortened
from tclint.core.rule import Rule
from tclint.core.saved import picked
from tclint.core.text import printable
from tclint.engine.provenance import git_state, tool
from tclint.engine.report import Entry, EntryError, Report
from tclint.engine.rules.registry import rules_with
from tclint.report.excerpt import SourceLines
from tclint.report.formats.json import clean
from tclint.report.paths import RepositoryPaths, file_uri, line_hashes, relative_uri
from tclint.report.rule_text import rule_text
from tclint.report.words import effect_text

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"

MAX_RUNS = 20
MAX_RESULTS = 5_000
"""Per run: GitHub accepts 25,000 and keeps the first 5,000 in its own order; ours is by gain."""
MAX_LOCATIONS = 100
MAX_TAGS = 10
MESSAGE_CHARACTERS = 4_000
EVIDENCE_CHARACTERS = 4_000
DESCRIPTION_CHARACTERS = 1_024
NAME_CHARACTERS = 255
MAX_BYTES = 32 * 2**20
"""The limit for all results before compression; GitHub takes 10 MB after it, and results compress tenfold."""

ROOT = "%SRCROOT%"

LEVELS: dict[Level, str] = {"error": "error", "warning": "warning", "info": "note"}
SEVERITIES: dict[Level, str] = {"error": "error", "warning": "warning", "info": "recommendation"}
PRECISIONS: dict[Confidence, str] = {"high": "high", "medium": "medium", "low": "low"}
SOURCES = "sources"
OTHER_MODELS = "other models"


def render(report: Report) -> str:
    """One SARIF log, ending in a newline."""
    return json.dumps(clean(_Log(report).document()), indent=1, allow_nan=False) + "\n"


@dataclass
class _Log:
    report: Report
    paths: RepositoryPaths = field(default_factory=RepositoryPaths)
    lines: SourceLines = field(init=False)
    hashes: dict[str, list[str]] = field(default_factory=dict)
    size_bytes: int = 0
    """The size of the results so far, in all runs."""

    def __post_init__(self) -> None:
        self.lines = SourceLines.of(self.report)
        used = {finding.code: finding for finding in reversed(self.report.findings)}
        try:
            known = rules_with(used, self.report.settings.rules)
        except TclintError:
            # The report is older than a rule module that cannot be imported any more.
            known = rules_with(used)
        self.rules = {
            code: _descriptor(used[code], [rule for rule in known if rule.code == code])
            for code in sorted(used)
        }

    def document(self) -> dict[str, Any]:
        saved = self.report.made_with.get("provenance")
        git = git_state(Path(self.paths.folder)) if saved is None else saved["git"]
        runs = [
            self._run(category, findings, entries, errors, git)
            for category, findings, entries, errors in self._groups()
        ]
        return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": runs}

    def _groups(self) -> list[tuple[str, list[Finding], list[Entry], list[EntryError]]]:
        """What belongs to each run: every model by itself as far as there are runs, and the sources."""
        targets = list(dict.fromkeys(entry.target for entry in self.report.entries))
        failed = {error.target for error in self.report.errors if error.target not in targets}
        own = targets if len(targets) <= MAX_RUNS - 1 else targets[: MAX_RUNS - 2]
        names = [*own, *([OTHER_MODELS] if len(own) < len(targets) else []), SOURCES]
        findings: dict[str, list[Finding]] = {name: [] for name in names}
        for finding in self.report.findings:
            findings[self._group_of(finding.target, findings)].append(finding)
        entries: dict[str, list[Entry]] = {name: [] for name in names}
        for entry in self.report.entries:
            entries[self._group_of(entry.target, entries)].append(entry)
        errors = [error for error in self.report.errors if error.target in failed]
        has_sources = bool(findings[SOURCES] or self.report.source_files or errors or len(names) == 1)
        return [
            (name, findings[name], entries[name], errors if name == SOURCES else [])
            for name in names
            if name != SOURCES or has_sources
        ]

    def _folder(self) -> str:
        """'packages/a/' in the repository, as analyses of one category replace each other; '' at its root."""
        folder = self.paths.relative(".")
        return "" if folder in (None, ".") else f"{folder}/"

    @staticmethod
    def _group_of(target: str | None, groups: dict[str, Any]) -> str:
        if target is None:
            return SOURCES
        if target in groups:
            return target
        return OTHER_MODELS if OTHER_MODELS in groups else SOURCES

    def _run(
        self,
        category: str,
        findings: Sequence[Finding],
        entries: Sequence[Entry],
        errors: Sequence[EntryError],
        git: dict[str, Any],
    ) -> dict[str, Any]:
        codes = {finding.code for finding in findings[:MAX_RESULTS]}
        rules = {code: rule for code, rule in self.rules.items() if code in codes}
        rule_index = {code: index for index, code in enumerate(rules)}
        results = []
        for finding in findings[:MAX_RESULTS]:
            result = self._result(finding, rule_index[finding.code])
            self.size_bytes += len(json.dumps(clean(result)))
            if self.size_bytes > MAX_BYTES:
                break
            results.append(result)
        notices = [
            _notification("error", f"{error.target}: {error.message}" if error.target else error.message)
            for error in errors
        ]
        left_out = len(findings) - len(results)
        if left_out:
            notices.append(
                _notification("warning", f"{left_out} findings of lower rank are left out: GitHub's limits.")
            )
        run: dict[str, Any] = {
            "tool": {"driver": _driver(list(rules.values()), tool(self.report))},
            # Everything up to the last slash is GitHub's category; nothing follows it.
            "automationDetails": {"id": f"tclint/{printable(self._folder() + category)}/"},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
            "invocations": [
                {"executionSuccessful": not errors, "toolExecutionNotifications": notices}
                if notices
                else {"executionSuccessful": True}
            ],
            "results": results,
        }
        if entries:
            run["properties"] = {"entries": [_entry(entry) for entry in entries]}
        if "commit" in git:
            run["properties"] = {**run.get("properties", {}), "commit": git["commit"]}
        return run

    def _result(self, finding: Finding, rule_index: int) -> dict[str, Any]:
        sentences = [finding.message, *filter(None, [effect_text(finding)])]
        if finding.fix is not None:
            sentences.append(f"Fix: {finding.fix.advice}")
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "ruleIndex": rule_index,
            "level": LEVELS[finding.level],
            "message": {"text": _message(" ".join(sentences))},
            "locations": [self._location(finding.location, finding.targets)],
            "partialFingerprints": {
                "primaryLocationLineHash": self._line_hash(finding),
                "tclint/v1": finding.fingerprint,
            },
            "properties": {
                "confidence": finding.confidence,
                "gainPercent": finding.effect.best_gain_percent,
                "evidence": _evidence(finding),
            },
        }
        if finding.fix is not None and finding.fix.edits:
            result["fixes"] = [self._fix(finding.fix)]
        related = finding.related[:MAX_LOCATIONS]
        if related:
            result["relatedLocations"] = [
                {"id": number, **self._location(item.location), "message": {"text": _message(item.message)}}
                for number, item in enumerate(related, start=1)
            ]
        return result

    def _fix(self, fix: Fix) -> dict[str, Any]:
        changes: dict[str, list[dict[str, Any]]] = {}
        for edit in fix.edits:
            region = {
                "startLine": edit.start[0],
                "startColumn": edit.start[1],
                "endLine": edit.end[0],
                "endColumn": edit.end[1],
            }
            changes.setdefault(edit.path, []).append(
                {"deletedRegion": region, "insertedContent": {"text": edit.replacement}}
            )
        return {
            "description": {"text": _message(f"{fix.advice} ({fix.safety})")},
            "artifactChanges": [
                {"artifactLocation": self._artifact(path), "replacements": replacements}
                for path, replacements in changes.items()
            ],
        }

    def _location(self, location: Location, targets: Sequence[str] = ()) -> dict[str, Any]:
        found: dict[str, Any] = {
            "physicalLocation": {
                "artifactLocation": self._artifact(location.path),
                "region": self._region(location),
            }
        }
        names = [(location.module_path, "member")] if location.module_path else []
        names += [(target, "module") for target in targets[:MAX_LOCATIONS]]
        if names:
            found["logicalLocations"] = [
                {"fullyQualifiedName": printable(name), "kind": kind} for name, kind in names
            ]
        return found

    def _artifact(self, path: str) -> dict[str, Any]:
        relative = self.paths.relative(path)
        if relative is None:
            return {"uri": file_uri(self.paths.absolute(path))}
        return {"uri": relative_uri(relative), "uriBaseId": ROOT}

    def _region(self, location: Location) -> dict[str, int]:
        """All four numbers, which GitHub requires; the end of the line where a finding names no end."""
        line, column = max(location.line, 1), max(location.column, 1)
        end_line = max(location.end_line or line, line)
        end_column = location.end_column
        if end_column is None:
            source = self.lines.line(location.path, end_line)
            end_column = len(source.rstrip()) + 1 if source is not None else column + 1
        if end_line == line and end_column <= column:
            end_column = column + 1
        return {
            "startLine": line,
            "startColumn": column,
            "endLine": end_line,
            "endColumn": max(end_column, 1),
        }

    def _line_hash(self, finding: Finding) -> str:
        path = finding.location.path
        if path not in self.hashes:
            content = self.lines.source(path)
            self.hashes[path] = [] if content is None else line_hashes(content.decode("utf-8", "replace"))
        known = self.hashes[path]
        # A file that cannot be read now cannot be read by the upload either: nothing contradicts ours.
        return (
            known[finding.location.line - 1]
            if 0 < finding.location.line <= len(known)
            else (f"{finding.fingerprint}:1")
        )


def _message(text: str) -> str:
    """Plain text of one line; brackets would be links to related locations (SARIF 2.1.0, 3.11.6)."""
    shown = re.sub(r"([\\\[\]])", r"\\\1", shortened(printable(" ".join(text.split())), MESSAGE_CHARACTERS))
    return shown or "(no message)"


def _evidence(finding: Finding) -> dict[str, Any]:
    evidence: dict[str, Any] = clean(finding.evidence)
    if len(json.dumps(evidence)) <= EVIDENCE_CHARACTERS:
        return evidence
    return {"left_out": f"longer than {EVIDENCE_CHARACTERS} characters; the JSON report has it"}


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": _message(text)}}


def _driver(rules: list[dict[str, Any]], made_by: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "tclint",
        "fullName": "tclint: where PyTorch code wastes Tensor Cores",
        "version": made_by["version"],
        "semanticVersion": made_by["version"],
        "rules": rules,
        "properties": {"hash": made_by["hash"]},
    }


def _descriptor(finding: Finding, sides: Sequence[type[Rule]]) -> dict[str, Any]:
    """The rule of a finding."""
    rule, told = (sides[0] if sides else finding), rule_text(finding, sides)
    return {
        "id": rule.code,
        "name": shortened(printable(rule.name), NAME_CHARACTERS),
        "shortDescription": {"text": shortened(told.summary, DESCRIPTION_CHARACTERS)},
        "fullDescription": {"text": shortened(told.description, DESCRIPTION_CHARACTERS)},
        "help": {"text": told.help_text, "markdown": told.help_markdown},
        "defaultConfiguration": {"level": LEVELS[rule.level]},
        "properties": {
            "tags": ["performance", *(("tensor-cores", *told.kinds) if sides else ("tclint",))][:MAX_TAGS],
            "precision": PRECISIONS[rule.confidence],
            "problem.severity": SEVERITIES[rule.level],
        },
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        **picked(entry, "target", "model", "mode", "precision"),
        "graphHash": entry.graph_hash,
        "readinessPercent": {gpu: metrics.readiness_percent for gpu, metrics in entry.metrics.items()},
        "stepTimeUs": {gpu: metrics.step_time_us for gpu, metrics in entry.metrics.items()},
    }
