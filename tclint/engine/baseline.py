"""The baseline: findings that a project accepts for now. They are not reported, and removed once fixed.

The file is JSON, one finding per line in a fixed order, so that branches merge. A fingerprint identifies a
finding (rule, path from the file's folder, and details that distinguish it from similar ones), never its
line; findings with equal fingerprints are counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tclint.config.settings import Settings, settings_in
from tclint.core.errors import UsageError
from tclint.core.files import write_atomically
from tclint.core.finding import Finding, Location
from tclint.core.rule import CRASH_CODE, NEVER_ACCEPTED
from tclint.core.text import printable
from tclint.engine.report import Report
from tclint.engine.retired import as_reported, found_by
from tclint.engine.same_findings import each_target

DEFAULT_FILE = "tclint-baseline.json"
_VERSION = 1


class Known(NamedTuple):
    """The identity of accepted findings; also a line of the file and its sort key."""

    path: str
    """The path from the baseline's folder, in POSIX form."""
    code: str
    name: str
    fingerprint: str
    target: str
    """The path of a traced model, from the baseline's folder; '' for findings of source rules."""


@dataclass(frozen=True)
class Baseline:
    """The accepted findings of one file with their counts."""

    file: str
    counts: Mapping[Known, int] = field(default_factory=dict)
    scenarios: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Target in this file -> the settings on which the findings of that traced model depend."""

    @classmethod
    def load(cls, file: str) -> Baseline:
        """Read a baseline.

        Raises:
            UsageError: the file is missing or not a baseline.
        """
        shown = printable(file)
        try:
            with open(file, encoding="utf-8") as stream:
                data = json.load(stream)
        except FileNotFoundError:
            raise UsageError(
                f"There is no baseline {shown!r}; 'tclint baseline write --baseline {shown} PATHS' makes it."
            ) from None
        except OSError as error:
            raise UsageError(f"Cannot read the baseline {shown!r}: {error.strerror or error}.") from error
        except ValueError as error:
            raise UsageError(f"The baseline {shown!r} is not JSON: {printable(str(error))}.") from error
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            raise UsageError(
                f"{shown!r} is not a baseline of version {_VERSION}; write it again with "
                "'tclint baseline write'."
            )
        counts: Counter[Known] = Counter()
        try:
            for item in data["findings"]:
                known = Known(
                    str(item["path"]),
                    str(item["code"]),
                    str(item["name"]),
                    str(item["fingerprint"]),
                    str(item["target"] or ""),
                )
                counts[known] += int(item["count"])
            scenarios = {str(target): dict(scenario) for target, scenario in data["scenarios"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"The baseline {shown!r} lacks something ({error}); 'tclint baseline write' writes it again."
            ) from None
        return cls(file, counts, scenarios)

    @property
    def total(self) -> int:
        """The number of accepted findings."""
        return sum(self.counts.values())

    def known(self, finding: Finding) -> Known:
        """The identity of a finding in this file: its own, unless the file has it from a retired rule."""
        path = self._path(finding.location.path)
        located = replace(finding, location=replace(finding.location, path=path))
        target = self._target(finding.target) if finding.target is not None else ""
        own, *older = (
            Known(path, was.code, was.name, was.fingerprint, target) for was in as_reported(located)
        )
        return next((known for known in older if known in self.counts), own)

    def _path(self, path: str) -> str:
        folder = os.path.dirname(os.path.abspath(self.file))
        try:
            return os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")
        except ValueError:  # another drive
            return path.replace(os.sep, "/")

    def _target(self, target: str) -> str:
        file, colon, name = target.rpartition(":")
        return f"{self._path(file)}:{name}" if colon and os.path.exists(file) else target

    def split(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Split findings into (new, known). Among findings that look alike, the first in the file are
        known."""
        left = Counter(self.counts)
        known: set[int] = set()
        for finding in sorted(findings, key=lambda item: (item.location.line, item.location.column)):
            key = self.known(finding)
            if finding.code not in NEVER_ACCEPTED and left[key] > 0:
                left[key] -= 1
                known.add(id(finding))
        new = [finding for finding in findings if id(finding) not in known]
        return new, [finding for finding in findings if id(finding) in known]

    # -- renewal

    def shrunk(self, report: Report) -> Baseline:
        """The baseline without findings that a run could have found again and did not; nothing is added.

        Entries that the run did not check stay: other files and models, rules that did not run, files that
        could not be read. Findings of a model also stay if it was linted under other settings.
        """
        if report.errors or any(finding.code == CRASH_CODE for finding in report.findings):
            return self
        # A finding below the listing limit still exists, and may gain more once another one is fixed.
        still = (*report.baselined, *each_target(report.below_min_gain))
        found = Counter(self.known(finding) for finding in still)
        looked_at = self._coverage(report, check_scenario=True)
        counts = {
            known: min(found[known], count) if looked_at(known) else count
            for known, count in self.counts.items()
        }
        return replace(self, counts={known: count for known, count in counts.items() if count})

    def renewed(self, report: Report) -> Baseline:
        """The baseline with every finding of a run accepted; entries that the run did not check stay.

        Args:
            report: the report of a run without a baseline.
        """
        looked_at = self._coverage(report, check_scenario=False)
        counts = {known: count for known, count in self.counts.items() if not looked_at(known)}
        accepted = (finding for finding in each_target(report.findings) if finding.code not in NEVER_ACCEPTED)
        left = replace(self, counts=counts)
        for known, count in Counter(left.known(finding) for finding in accepted).items():
            counts[known] = count
        targets = {known.target for known in counts}
        scenarios = {**self.scenarios, **self._scenarios(report)}
        return replace(
            self,
            counts=counts,
            scenarios={target: scenario for target, scenario in scenarios.items() if target in targets},
        )

    def _coverage(self, report: Report, *, check_scenario: bool) -> _Coverage:
        paths = {self._path(path) for path in report.paths}
        targets = {
            target
            for target, scenario in self._scenarios(report).items()
            if not check_scenario or self._same_scenario(target, scenario)
        }
        folder = os.path.dirname(os.path.abspath(self.file))
        return _Coverage(folder, frozenset(paths), frozenset(targets), report.settings)

    def _same_scenario(self, target: str, scenario: Mapping[str, Any]) -> bool:
        """Whether the findings of a target were accepted under these settings; a setting that the file does
        not have counts as its default."""
        known = self.scenarios.get(target)
        return known is not None and {**scenario_of(Settings()), **known} == scenario

    def _scenarios(self, report: Report) -> dict[str, dict[str, Any]]:
        """Target of a run -> the settings on which its findings depend."""
        return {
            self._target(entry.target): scenario_of(entry.settings or report.settings)
            for entry in report.entries
        }

    def write(self) -> None:
        """Replace the file.

        Raises:
            UsageError: the file cannot be written.
        """
        write_atomically(self.file, self.to_json())

    def to_json(self) -> str:
        """One finding per line, sorted."""
        lines = ",\n".join(_lines(self.counts))
        findings = f"[\n{lines}\n  ]" if lines else "[]"
        scenarios = ",\n".join(
            f"    {json.dumps(target)}: {json.dumps(scenario, sort_keys=True)}"
            for target, scenario in sorted(self.scenarios.items())
        )
        listed = f"{{\n{scenarios}\n  }}" if scenarios else "{}"
        return f'{{\n  "version": {_VERSION},\n  "scenarios": {listed},\n  "findings": {findings}\n}}\n'


class _Coverage:
    """Tells whether a run would have found an accepted finding again."""

    def __init__(
        self, folder: str, paths: frozenset[str], targets: frozenset[str], settings: Settings
    ) -> None:
        from tclint.engine.rules.registry import Selection

        self._folder, self._paths, self._targets = folder, paths, targets
        self._selection = Selection(settings)
        self._codes = {rule.code for rule in self._selection.rules}

    def __call__(self, known: Known) -> bool:
        path = os.path.normpath(os.path.join(self._folder, known.path))
        if not known.target and not os.path.exists(path):
            return True
        if known.target:
            if known.target not in self._targets:
                return False
        elif known.path not in self._paths:
            return False
        if known.code.startswith("TCL"):
            return True
        location = Location(path, 1)
        code = found_by(known.code)
        sample = Finding(code, known.name, "info", "high", "", location, target=known.target or None)
        return code in self._codes and self._selection.allows(sample)


def scenario_of(settings: Settings) -> dict[str, Any]:
    """The settings on which the findings of a traced model depend, as JSON values."""
    return {item.field: item.json_value(settings) for item in settings_in("baseline")}


def _lines(counts: Mapping[Known, int]) -> Iterable[str]:
    for known, count in sorted(counts.items()):
        item = {**known._asdict(), "target": known.target or None, "count": count}
        yield "    " + json.dumps(item)
