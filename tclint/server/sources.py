"""The source pass on what an editor holds: findings of one text, and all its safe fixes made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tclint.config.settings import Settings
from tclint.core.errors import TclintError
from tclint.core.finding import Edit, Finding
from tclint.core.rule import UNREADABLE_CODE
from tclint.edits.texts import edits_between
from tclint.engine.check import check
from tclint.engine.fixes.sources import fix
from tclint.engine.report import Report
from tclint.server.text import Text, moved
from tclint.source.syntax.discovery import SUFFIXES, Failed
from tclint.source.syntax.parse import decode

SettingsOf = Callable[[str], Settings]
"""The settings that hold for a file.

Raises:
    UsageError: its configuration file is wrong.
"""


@dataclass(frozen=True)
class Linted:
    """One version of a document, read."""

    path: str
    """Absolute."""
    text: Text
    version: int | None
    settings: Settings
    findings: tuple[Finding, ...] = ()
    report: Report | None = None
    problem: str = ""
    """Why there are no findings, in a sentence for the user."""


def lint(path: str, text: Text, version: int | None, settings_of: SettingsOf, *, keep: bool) -> Linted:
    """Read one document under the settings of its own nearest configuration file.

    Args:
        path: absolute, of a file that need not exist.
        keep: whether what was parsed is kept for later runs: of saved text.
    """
    linted = Linted(path, text, version, Settings())
    try:
        settings = settings_of(path)
        linted = replace(linted, settings=settings)
        if settings.excludes(path):
            return linted
        name = named(path)
        report = check(name, _for_text(settings, keep), contents={name: text.data})
    except TclintError as error:
        return replace(linted, problem=str(error))
    problems = [error.message for error in report.errors]
    problems += [item.sentence for item in report.skipped if isinstance(item, Failed)]
    return replace(linted, findings=report.findings, report=report, problem=next(iter(problems), ""))


def with_earlier(linted: Linted, earlier: Linted) -> Linted:
    """A text that cannot be parsed, as while a line is typed, with what was found before on its other lines.

    The findings kept have no edits, whose positions belong to the earlier text.
    """
    if all(finding.code != UNREADABLE_CODE for finding in linted.findings):
        return linted
    old = [finding for finding in earlier.findings if finding.code != UNREADABLE_CODE]
    kept = (
        replace(finding, fix=replace(finding.fix, edits=()) if finding.fix is not None else None)
        for finding in moved(old, earlier.text.lines, linted.text.lines)
    )
    return replace(linted, findings=(*linted.findings, *kept))


def fix_all(linted: Linted) -> tuple[Edit, ...]:
    """The edits that make all safe fixes of a document, those included that others make way for."""
    if linted.report is None:
        return ()
    name = named(linted.path)
    settings = _for_text(linted.settings, False)

    def relint(contents: Mapping[str, bytes]) -> Report:
        return check(name, settings, contents=contents)

    outcome = fix(linted.report, relint, unsafe=False, contents={name: linted.text.data})
    after = next((file.after for file in outcome.files if file.path == name), None)
    return () if after is None else edits_between(name, linted.text.source, decode(after))


def named(path: str) -> str:
    """The path under which a document is linted: scripts have no ending, and new ones no name yet."""
    return path if path.endswith(SUFFIXES) else f"{os.path.abspath(path)}.py"


def _for_text(settings: Settings, keep: bool) -> Settings:
    # Every key typed would be an entry of the cache.
    return settings if keep else replace(settings, cache=False)
