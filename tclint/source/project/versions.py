"""Adapts findings to the releases of packages that a project allows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from tclint.core.finding import Finding
from tclint.core.toml import packaged_toml
from tclint.source.project.requirements import Version, may_run, refusing


def of_project(finding: Finding) -> Finding | None:
    """A finding with the names that exist in the releases which its project allows.

    A finding whose fix needs something that these lack is dropped; an error stays, without its fix.
    """
    if finding.fix is None:
        return finding
    advice, lacks = _spelled(finding.fix.advice, finding.location.path, finding.fix.needs)
    if lacks is not None:
        return replace(finding, fix=None) if finding.level == "error" else None
    return (
        finding if advice == finding.fix.advice else replace(finding, fix=replace(finding.fix, advice=advice))
    )


def why_not_of_project(finding: Finding) -> str | None:
    """Why `of_project` drops a finding, as the end of 'it is silent: ...'; None where it does not."""
    if of_project(finding) is not None or finding.fix is None:
        return None
    lacks = _spelled(finding.fix.advice, finding.location.path, finding.fix.needs)[1]
    if lacks is None:
        return None
    return f"its fix needs {lacks[0]} {_text_of(lacks[1])}, and {_written(finding.location.path, *lacks)}"


def held_back(findings: Iterable[Finding]) -> Iterator[str]:
    """Sentences on findings that `of_project` drops, one for each package and line that restricts it."""
    needed: dict[tuple[str, str], list[Version]] = {}
    for finding in findings:
        assert finding.fix is not None
        lacks = _spelled(finding.fix.advice, finding.location.path, finding.fix.needs)[1]
        assert lacks is not None
        where = _written(finding.location.path, *lacks)
        needed.setdefault((lacks[0], where), []).append(lacks[1])
    for (package, where), versions in sorted(needed.items()):
        releases = " or ".join(map(_text_of, sorted(set(versions))))
        fixes = (
            "1 finding whose fix needs"
            if len(versions) == 1
            else f"{len(versions)} findings whose fixes need"
        )
        yield f"not reported: {fixes} {package} {releases}; {where}"


def _written(path: str, package: str, version: Version) -> str:
    """Where the project of a file keeps a package from a release."""
    pin = refusing(path, version, package)
    assert pin is not None
    return f"{os.path.relpath(pin.path)}:{pin.line} asks for {package}{pin.text}"


def _text_of(version: Version) -> str:
    return ".".join(map(str, version))


def without_newer_edits(finding: Finding) -> Finding:
    """A finding without edits that use something which its project's releases lack."""
    fix = finding.fix
    if fix is None or all(
        _spelled(edit.replacement, edit.path) == (edit.replacement, None) for edit in fix.edits
    ):
        return finding
    return replace(finding, fix=replace(fix, edits=(), safety="advice"))


def _spelled(text: str, path: str, needs: str = "") -> tuple[str, tuple[str, Version] | None]:
    """A text with the names of the releases that a file's project allows; and the package and release of one
    that they lack, or of what the text needs besides its names ('torch 2.3').
    """
    if needs:
        package, _, oldest = needs.partition(" ")
        if not may_run(path, _version(oldest), package):
            return text, (package, _version(oldest))
    for pattern, package, since, before in _names():
        if pattern.search(text) is not None and not may_run(path, since, package):
            if before is None:
                return text, (package, since)
            text = pattern.sub(before, text)
    return text, None


def _version(text: str) -> Version:
    return tuple(map(int, text.split(".")))


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
            _version(row["since"]),
            row.get("before"),
        )
        for name, row in rows
    )
