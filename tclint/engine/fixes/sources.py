"""`tclint fix`: rounds of linting and editing in memory until nothing is left to fix, then one write each."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tclint.core.finding import Finding
from tclint.core.rule import UNREADABLE_CODE
from tclint.core.units import plural
from tclint.edits.texts import apply_edits
from tclint.engine.fixes.files import FixedFile, files_text, shown
from tclint.engine.report import Report
from tclint.source.syntax.encoding import encoded_like
from tclint.source.syntax.parse import decode

_ROUNDS = 50
"""Fixes make way for other fixes; more than a few rounds are needed only where a fix is of no use."""

Relint = Callable[[Mapping[str, bytes]], Report]
"""Lints the sources again, with other bytes for some absolute paths."""


@dataclass(slots=True)
class FixOutcome:
    """What fixing came to."""

    report: Report
    """What is left, as a run after the fixes would report it."""
    files: list[FixedFile] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why a file was not written, a sentence each."""

    @property
    def fixed(self) -> int:
        return sum(file.fixed for file in self.files)

    @property
    def unsafe(self) -> int:
        """Findings left that an unsafe fix would fix."""
        return sum(finding.has_edits("unsafe") for finding in self.report.findings)

    def exit_code(self, *, diff: bool) -> int:
        """2 where a file was refused; 1 where a diff shows something; else 0."""
        return 2 if self.refused else int(diff and bool(self.files))

    def summary(self, *, unsafe_fixes: bool, diff: bool = False, named: bool = False) -> str:
        """'fixed 3 findings in 2 files, 1 needs --unsafe-fixes'; with the files' names if asked for."""
        verb = "would fix" if diff else "fixed"
        text = f"{verb} {plural(self.fixed, 'finding')}"
        if self.files:
            text += f" in {files_text(self.files) if named else plural(len(self.files), 'file')}"
        if self.unsafe and not unsafe_fixes:
            text += f", {self.unsafe} {'needs' if self.unsafe == 1 else 'need'} --unsafe-fixes"
        return text


def fix(
    report: Report, relint: Relint, *, unsafe: bool, contents: Mapping[str, bytes] | None = None
) -> FixOutcome:
    """Make the fixes of a report's source findings in memory; nothing is written.

    Args:
        report: of a run just made.
        relint: lints the same sources again; its report replaces the source findings of `report`.
        unsafe: unsafe fixes as well.
        contents: by absolute path, what was linted in place of files on the disk.
    """
    outcome = FixOutcome(report)
    originals: dict[str, bytes] = {}
    given = contents or {}
    texts: dict[str, bytes] = {}
    unreadable: set[str] = set()
    barred: set[_Key] = set()
    fixed_in: Counter[str] = Counter()
    current = report
    for _ in range(_ROUNDS):
        wanted = _wanted(current, unsafe, unreadable, barred)
        for path in [path for path in wanted if path not in originals]:
            data = given[path] if path in given else _read_as_linted(path, current, outcome)
            if data is None:
                wanted.pop(path)
                unreadable.add(path)
            else:
                originals[path] = texts[path] = data
        before = dict(texts)
        made: dict[str, list[Finding]] = {}
        for path, findings in wanted.items():
            data, fixed = _fixed(texts[path], findings)
            if fixed:
                texts[path], made[path] = data, fixed
        if not made:
            break
        changed = {path: data for path, data in texts.items() if data != originals[path]}
        following = relint({**given, **changed})
        # A fix that its rule does not take for one would be made again and again.
        useless = _useless(current, following, made)
        if useless:
            barred |= useless
            texts = before
            continue
        fixed_in.update({path: len(fixed) for path, fixed in made.items()})
        current = following
        barred.clear()  # what was of no use beside these fixes may be now: a second run would try it, too
    outcome.files = [
        FixedFile(path, originals[path], data, fixed_in[path])
        for path, data in sorted(texts.items())
        if data != originals[path]
    ]
    outcome.report = _joined(report, current)
    return outcome


class _Key(NamedTuple):
    """What stays of a finding while lines move."""

    path: str
    """Absolute."""
    fingerprint: str
    message: str


def _key(finding: Finding) -> _Key:
    path = os.path.abspath(finding.location.path)
    return _Key(path, finding.fingerprint, re.sub(r"\d+", "#", finding.message))


def _wanted(
    report: Report, unsafe: bool, unreadable: set[str], barred: set[_Key]
) -> dict[str, list[Finding]]:
    """Source findings to fix, by absolute path: errors first, whose fixes make others needless, then in the
    order of the text."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        fix = finding.fix
        if fix is None or not fix.edits or finding.target is not None:
            continue
        if fix.safety == "safe" or (unsafe and fix.safety == "unsafe"):
            path = os.path.abspath(finding.location.path)
            if path not in unreadable and _key(finding) not in barred:
                found.setdefault(path, []).append(finding)
    for findings in found.values():
        findings.sort(
            key=lambda item: (item.level != "error", item.location.line, item.location.column, item.code)
        )
    return found


def _read_as_linted(path: str, report: Report, outcome: FixOutcome) -> bytes | None:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        outcome.refused.append(f"{shown(path)} cannot be read ({error.strerror or error}); left as it is.")
        return None
    known = report.digests.get(path)
    if known is not None and known != hashlib.sha256(data).digest():
        outcome.refused.append(f"{shown(path)} changed while it was linted; left as it is, run tclint again.")
        return None
    return data


def _fixed(data: bytes, findings: Sequence[Finding]) -> tuple[bytes, list[Finding]]:
    """New bytes, and the findings that were fixed."""
    edits = [finding.fix.edits for finding in findings if finding.fix is not None]
    new, made = apply_edits(decode(data), edits)
    return encoded_like(new, data), [findings[index] for index in made]


def _useless(before: Report, after: Report, made: Mapping[str, Sequence[Finding]]) -> set[_Key]:
    """Findings that are still there after they were fixed, or whose file can be read no more."""
    was = Counter(_key(finding) for finding in before.findings)
    now = Counter(_key(finding) for finding in after.findings)
    unread = {os.path.abspath(item.path) for item in after.skipped if not item.is_part} | {
        os.path.abspath(finding.location.path)
        for finding in after.findings
        if finding.code == UNREADABLE_CODE
    }
    keys = {_key(finding) for findings in made.values() for finding in findings}
    return {key for key in keys if now[key] >= was[key] or key.path in unread}


def _joined(first: Report, last: Report) -> Report:
    """Models from the run before the fixes, sources from the one after."""
    if first is last:
        return first

    def joined(of_first: Sequence[Finding], of_last: Sequence[Finding]) -> tuple[Finding, ...]:
        traced = [finding for finding in of_first if finding.target is not None]
        return (*traced, *(finding for finding in of_last if finding.target is None))

    return replace(
        first,
        findings=joined(first.findings, last.findings),
        suppressed=joined(first.suppressed, last.suppressed),
        baselined=joined(first.baselined, last.baselined),
        skipped=last.skipped,
        paths=last.paths,
        digests=last.digests,
    )
