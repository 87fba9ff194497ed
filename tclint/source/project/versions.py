"""Adapts findings to the releases of packages that a project allows."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from tclint.core.finding import Finding
from tclint.core.toml import packaged_toml
from tclint.source.project.requirements import Version, may_run


def of_project(finding: Finding) -> Finding | None:
    """A finding with the names that exist in the releases which its project allows.

    A finding whose fix needs something that these lack is dropped; an error stays, without its fix.
    """
    if finding.fix is None:
        return finding
    advice, _ = _spelled(finding.fix.advice, finding.location.path)
    if advice is None:
        return replace(finding, fix=None) if finding.level == "error" else None
    return (
        finding if advice == finding.fix.advice else replace(finding, fix=replace(finding.fix, advice=advice))
    )


def why_not_of_project(finding: Finding) -> str | None:
    """Why `of_project` drops a finding, as the end of 'it is silent: ...'; None where it does not."""
    if of_project(finding) is not None or finding.fix is None:
        return None
    needed = _spelled(finding.fix.advice, finding.location.path)[1]
    return f"its fix needs {needed}, and the project's requirements allow only older releases"


def without_newer_edits(finding: Finding) -> Finding:
    """A finding without edits that use something which its project's releases lack."""
    fix = finding.fix
    if fix is None or all(_spelled(edit.replacement, edit.path)[0] == edit.replacement for edit in fix.edits):
        return finding
    return replace(finding, fix=replace(fix, edits=(), safety="advice"))


def _spelled(text: str, path: str) -> tuple[str | None, str]:
    """A text with the names of the releases that a file's project allows; where they lack one, None and its
    release: 'torch 1.6'."""
    for pattern, package, since, before in _names():
        if pattern.search(text) is not None and not may_run(path, since, package):
            if before is None:
                return None, f"{package} {'.'.join(map(str, since))}"
            text = pattern.sub(before, text)
    return text, ""


@lru_cache(maxsize=1)
def _names() -> tuple[tuple[re.Pattern[str], str, Version, str | None], ...]:
    """(pattern, package, version, older spelling) of newer names: those with an older spelling first, longer
    ones before their parts."""
    table = packaged_toml("tclint.source.library", "versions.toml")
    rows = sorted(table.items(), key=lambda item: ("before" not in item[1], -len(item[0])))
    return tuple(
        (
            re.compile(rf"(?<![\w.]){re.escape(name)}" + (r"(?!\w)" if name[-1].isalnum() else "")),
            row["package"],
            tuple(map(int, row["since"].split("."))),
            row.get("before"),
        )
        for name, row in rows
    )
