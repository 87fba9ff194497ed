"""GitHub Actions: findings as annotations (workflow commands), the most important first.

Escaping follows the runner's own rules (github.com/actions/toolkit, packages/core/src/command.ts):
percent signs first, then line ends, then in properties colons and commas. Limits: 10 annotations per
level and step; columns only within one line (GitHub REST API, check run annotations).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tclint.core.finding import LEVEL_ORDER, Finding, Level, Location
from tclint.core.text import printable
from tclint.core.units import plural
from tclint.engine.report import Report
from tclint.report.paths import RepositoryPaths
from tclint.report.words import counts_text, finding_text, models_text

ANNOTATIONS_PER_LEVEL = 10
"""What GitHub shows of one level per step; it drops the rest without a word."""

COMMANDS: dict[Level, str] = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report) -> str:
    """Workflow commands, one per line, and a line that says what was left out."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    paths = RepositoryPaths()
    shown: Counter[str] = Counter()
    for error in report.errors:
        shown["error"] += 1
        if shown["error"] <= ANNOTATIONS_PER_LEVEL:
            prefix = "" if error.target in error.message else f"{error.target}: "
            yield command("error", {"title": "tclint"}, prefix + error.message)
    for finding in report.findings:
        shown[finding.level] += 1
        if shown[finding.level] <= ANNOTATIONS_PER_LEVEL:
            yield _annotation(finding, paths)
    # Plain lines hold numbers only: a name at the start of one could be read as a command.
    for level in LEVEL_ORDER:
        left_out = shown[level] - ANNOTATIONS_PER_LEVEL
        if left_out > 0:
            are = "is" if left_out == 1 else "are"
            yield (
                f"tclint: {plural(left_out, f'more {COMMANDS[level]}')} {are} not shown as "
                f"annotations: GitHub shows {ANNOTATIONS_PER_LEVEL} of a level per step. "
                "The job summary lists them."
            )
    yield f"tclint: {counts_text(report)}"


def _annotation(finding: Finding, paths: RepositoryPaths) -> str:
    title = f"{finding.code} {finding.name}"
    if finding.location.module_path:
        title += f" in {finding.location.module_path}"
    if finding.targets:
        title += f" of {models_text(finding)}"
    path = paths.relative(finding.location.path)
    if path is None:
        # GitHub can show no line of a file that is not in the repository.
        text = f"{finding.location.path}:{finding.location.line}: {finding_text(finding)}"
        return command(COMMANDS[finding.level], {"title": title}, text)
    properties = {"file": path, **_range(finding.location), "title": title}
    return command(COMMANDS[finding.level], properties, finding_text(finding))


def _range(location: Location) -> dict[str, str]:
    line = max(location.line, 1)
    end_line = max(location.end_line or line, line)
    properties = {"line": str(line), "endLine": str(end_line)}
    if end_line == line:
        column = max(location.column, 1)
        properties["col"] = str(column)
        if location.end_column is not None and location.end_column > column:
            properties["endColumn"] = str(location.end_column)
    return properties


def command(name: str, properties: dict[str, str], message: str) -> str:
    """One workflow command; what could steer a terminal is shown as its escape, line ends are kept."""
    listed = ",".join(f"{key}={escape_property(printable(value))}" for key, value in properties.items())
    text = "\n".join(printable(line) for line in message.split("\n"))
    return f"::{name} {listed}::{escape_data(text)}"


def escape_data(text: str) -> str:
    """The message of a workflow command; percent signs first, else they would be escaped twice."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a property, which a colon or a comma would end."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
