"""GitLab's code quality report: a JSON array that merge requests show, and compare with the target branch's.

GitLab Docs, 'Code Quality': description, check_name, fingerprint, severity and location are required,
fingerprints are unique, paths are relative to the repository without './'.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from tclint.core.finding import Finding, Level
from tclint.core.text import printable
from tclint.engine.report import EntryError, Report
from tclint.report.formats.json import clean
from tclint.report.paths import RepositoryPaths
from tclint.report.words import finding_text, models_text

SEVERITIES: dict[Level, str] = {"error": "critical", "warning": "major", "info": "info"}
FAILED = "tclint-failed"


def render(report: Report) -> str:
    """One array, ending in a newline; targets that failed are in it as blockers."""
    paths = RepositoryPaths()
    seen: Counter[str] = Counter()
    issues = [_failure(error) for error in report.errors]
    for finding in report.findings:
        issues.append(_issue(finding, paths, seen[finding.fingerprint]))
        seen[finding.fingerprint] += 1
    return json.dumps(clean(issues), indent=1) + "\n"


def _issue(finding: Finding, paths: RepositoryPaths, before: int) -> dict[str, Any]:
    location = finding.location
    begin = {"line": max(location.line, 1), "column": max(location.column, 1)}
    end = {
        "line": max(location.end_line or begin["line"], begin["line"]),
        "column": location.end_column or begin["column"],
    }
    models = f"In {models_text(finding)}: " if finding.targets else ""
    return {
        "description": printable(" ".join((models + finding_text(finding)).split())),
        "check_name": f"{finding.code} {finding.name}",
        "fingerprint": _hash(finding.fingerprint, str(before)) if before else finding.fingerprint,
        "severity": SEVERITIES[finding.level],
        "location": {
            "path": printable(paths.relative(location.path) or location.path or "."),
            "positions": {"begin": begin, "end": end},
        },
    }


def _failure(error: EntryError) -> dict[str, Any]:
    return {
        "description": printable(" ".join(error.message.split())),
        "check_name": FAILED,
        "fingerprint": _hash(FAILED, error.target),
        "severity": "blocker",
        "location": {
            "path": printable(error.target.rpartition(":")[0] or error.target or "."),
            "lines": {"begin": 1},
        },
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
