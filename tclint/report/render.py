"""Reports: one module per format, each with `render(report)`; imported when used."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TextIO

from tclint.core.errors import UsageError, closest
from tclint.core.terminal import WIDTH, report_width, wants_colour, wants_links
from tclint.engine.report import Report

FORMATS: dict[str, str] = {
    "text": "tclint.report.formats.text",
    "concise": "tclint.report.formats.concise",
    "json": "tclint.report.formats.json",
    "jsonl": "tclint.report.formats.jsonlines",
    "github": "tclint.report.formats.github",
    "markdown": "tclint.report.formats.markdown",
    "sarif": "tclint.report.formats.sarif",
    "gitlab": "tclint.report.formats.gitlab",
    "junit": "tclint.report.formats.junit",
    "openmetrics": "tclint.report.formats.openmetrics",
    "html": "tclint.report.html.page",
}
"""Module of every format by the name that `--format` and `--output` take."""

FOR_PEOPLE = ("text", "concise")
"""Formats that are read as they scroll by: a part of one is worth having."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a report for people looks; formats for machines do not change with it."""

    colour: bool = False
    links: bool = False
    """Places are links to their files (OSC 8)."""
    width: int = WIDTH
    """Columns to wrap at where words allow it."""
    statistics: bool = False
    """Counts per rule as well."""
    verbosity: int = 0
    """-1: findings and errors only; 1: everything that was counted is listed too."""

    @classmethod
    def of_stream(cls, stream: TextIO, no_color: bool = False, **others: Any) -> Style:
        """What a stream can show."""
        colour, links = wants_colour(stream, no_color), wants_links(stream, no_color)
        return cls(colour, links, report_width(stream), **others)


def check_format(name: str, known: Collection[str] = FORMATS) -> str:
    """`name`, if it is one of the known formats.

    Raises:
        UsageError: it is not; the message has the closest.
    """
    if name not in known:
        raise UsageError(
            f"There is no format {name!r}.{closest(name, tuple(known))} The formats are {', '.join(known)}."
        )
    return name


def render(report: Report, format_name: str, style: Style | None = None) -> str:
    """The report in a format, ending in a newline.

    Raises:
        UsageError: there is no such format.
    """
    module = importlib.import_module(FORMATS[check_format(format_name)])
    rendered: str = (
        module.render(report, style or Style()) if format_name in FOR_PEOPLE else module.render(report)
    )
    return rendered
