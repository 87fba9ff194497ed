"""The source line that a finding speaks of, with a mark under the place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tclint.core.finding import Location
from tclint.core.text import columns, printable
from tclint.engine.report import Report
from tclint.source.syntax.parse import NotPython, as_utf8

TAB_COLUMNS = 4
MAX_FILE_BYTES = 8 * 2**20
"""A larger file is data, not code that somebody reads: no excerpt."""

_ELLIPSIS = "..."


@dataclass
class SourceLines:
    """Lines of the files that findings are in; each file is read once, and may be gone by now."""

    _files: dict[str, list[str]] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """By absolute path, what stands for files on the disk (Report.contents)."""
    digests: dict[str, bytes] = field(default_factory=dict)
    """By absolute path: SHA-256 of the files when findings were made (Report.digests)."""
    saved_in: str | None = None
    """The findings are those of a saved report, which names whatever files it likes: only files below this
    folder are read, and only those that the report was made from are shown."""

    @classmethod
    def of(cls, report: Report) -> SourceLines:
        """Those that a report speaks of."""
        saved_in = os.path.join(os.path.realpath(os.curdir), "") if report.made_with else None
        return cls({}, report.contents, dict(report.digests), saved_in)

    def line(self, path: str, number: int) -> str | None:
        """Line `number` (from 1) without its end, or None where it cannot be had."""
        if path not in self._files:
            self._files[path] = _lines(self.source(path))
        lines = self._files[path]
        return lines[number - 1] if 0 < number <= len(lines) else None

    def source(self, path: str) -> bytes | None:
        """A file's bytes, in UTF-8 where it can be read, or None where it is gone, no file, too large to be
        code, binary, or not what the findings of a saved report were made from."""
        data = self._read(path)
        if data is None:
            return None
        with contextlib.suppress(NotPython):
            data = as_utf8(data)
        return data if len(data) <= MAX_FILE_BYTES and b"\0" not in data else None

    def digest(self, path: str) -> str | None:
        """SHA-256 of a file when its findings were made, in hexadecimal digits."""
        absolute = os.path.abspath(path)
        if absolute not in self.digests and self.saved_in is None:
            data = self._read(path)
            self.digests[absolute] = hashlib.sha256(data).digest() if data is not None else b""
        return self.digests.get(absolute, b"").hex() or None

    def _read(self, path: str) -> bytes | None:
        try:
            absolute = os.path.abspath(path)
            if absolute in self.contents:
                return self.contents[absolute]
            if self.saved_in is not None and not os.path.realpath(path).startswith(self.saved_in):
                return None
            if not os.path.isfile(path):  # to open a named pipe is to wait for whoever writes into it
                return None
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        if self.saved_in is not None and hashlib.sha256(data).digest() != self.digests.get(absolute):
            return None
        return data


def _lines(data: bytes | None) -> list[str]:
    if data is None:
        return []
    # Only what Python counts as a line end: str.splitlines would also split at a form feed.
    return re.split(r"\r\n|\r|\n", data.decode("utf-8-sig", "replace"))


def excerpt(location: Location, lines: SourceLines, width: int) -> list[str]:
    """Two terminal lines of at most `width` columns: the source line and carets under the place.

    Empty where the line cannot be read or is blank. Without a column, the caret stands under the
    line's first character.
    """
    source = lines.line(location.path, location.line)
    if source is None or not source.strip():
        return []
    first, last = _span(location, source)
    number = str(location.line)
    gutter = f"{number} | "
    cells = _cells(source)
    shown, caret_at, caret_columns = _window(cells, first, last, width - len(gutter))
    blank = " " * len(number) + " | "
    return [gutter + shown.rstrip(), blank + " " * caret_at + "^" * caret_columns]


def marked(location: Location, source: str) -> tuple[str, str, str]:
    """A source line as it can be shown: what is before the place, the place, and what is after it."""
    first, last = _span(location, source)
    cells = _cells(source)
    return "".join(cells[:first]), "".join(cells[first : last + 1]), "".join(cells[last + 1 :])


def _span(location: Location, source: str) -> tuple[int, int]:
    """First and last character to mark, as indices into the line."""
    blanks = len(source) - len(source.lstrip())
    if location.column == 1 and location.end_column is None:
        return blanks, blanks
    first = min(max(location.column - 1, 0), len(source) - 1)
    if location.end_line is not None and location.end_line > location.line:
        return first, len(source.rstrip()) - 1 if first < len(source.rstrip()) else first
    last = first if location.end_column is None else min(location.end_column - 2, len(source) - 1)
    return first, max(first, last)


def _cells(source: str) -> list[str]:
    """What the terminal shows for every character of the line."""
    if source.isascii() and source.isprintable():
        return list(source)
    cells = []
    at = 0
    for character in source:
        cell = " " * (TAB_COLUMNS - at % TAB_COLUMNS) if character == "\t" else printable(character)
        cells.append(cell)
        at += columns(cell)
    return cells


def _window(cells: list[str], first: int, last: int, width: int) -> tuple[str, int, int]:
    """The part of the line around the mark that fits: its text, and the mark's column and length."""
    width = max(width, 2 * len(_ELLIPSIS) + 10)
    sizes = [columns(cell) for cell in cells]
    start, before = 0, 0
    if sum(sizes) > width:
        # Room for context on the left, and for at least the mark's beginning on the right.
        lead = width // 3
        start, left = first, 0
        while start > 0 and left + sizes[start - 1] <= lead:
            start -= 1
            left += sizes[start]
        before = len(_ELLIPSIS) if start else 0
    end, used = start, before
    while end < len(cells) and used + sizes[end] <= width:
        used += sizes[end]
        end += 1
    after = ""
    if end < len(cells):
        while end > start and used + len(_ELLIPSIS) > width:
            end -= 1
            used -= sizes[end]
        after = _ELLIPSIS
    caret_at = before + sum(sizes[start:first])
    caret_columns = max(1, min(sum(sizes[first : last + 1]), width - caret_at))
    return _ELLIPSIS[:before] + "".join(cells[start:end]) + after, caret_at, caret_columns
