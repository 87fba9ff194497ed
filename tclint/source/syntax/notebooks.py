"""Jupyter notebooks as Python programs: the code cells as one text, and positions and edits back in the file.

The file's JSON is never rewritten as a whole: edits replace the sources of cells, and all other bytes stay.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tclint.source.syntax.parse import NotPython

SUFFIX = ".ipynb"
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_MARKER = "# tclint cell {}"
_PLACEHOLDER = "pass  # tclint line {}"
_MARKED = re.compile(r"# tclint cell (\d+)")
_HELD = re.compile(r"\s*pass  # tclint line (\d+)")
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "tclint")
"""Cell magics whose cell is Python code of the same program."""
_SHELL = re.compile(r"\s*[%!?]|.*[^\s?]\?{1,2}\s*$|(?:pip|conda|cd|ls|mkdir) +[\w~./-]+(?: |$)")
"""Magics and shell lines; IPython takes the names at the end as magics without a sign too."""
_CAPTURED = re.compile(r"(\s*[\w.,\s]+?=)\s*[%!]")
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.")


class FilePlace(NamedTuple):
    """The position in the file of a place in the program."""

    line: int
    column: int
    cell: int
    """The cell's number, from 1; text cells count as well."""
    cell_line: int
    """The line in the cell, from 1."""


@dataclass(frozen=True)
class Cell:
    """One code cell."""

    number: int
    start: int
    """The offset in the file's text at which the value of `source` begins; `end` is where it ends."""
    end: int
    lines: tuple[str, ...]
    """The lines as written."""
    program: tuple[str, ...]
    """The lines as Python: placeholders stand for magics and shell lines."""
    offsets: tuple[int, ...]
    """The offset of each line in the file's text."""
    first_line: int
    """The cell's first line in the program, from 1."""


@dataclass
class Notebook:
    """A notebook and its program."""

    raw: str
    cells: list[Cell] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        """The program, with a comment before every cell."""
        return "".join(
            line + "\n" for cell in self.cells for line in (_MARKER.format(cell.number), *cell.program)
        )

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.raw))]

    def place(self, line: int, column: int) -> FilePlace:
        """The position in the file of a line and column of the program, both from 1."""
        firsts = [cell.first_line for cell in self.cells]
        index = max(bisect_right(firsts, line) - 1, 0)
        if not self.cells:
            return FilePlace(1, 1, 1, 1)
        cell = self.cells[index]
        within = min(max(line - cell.first_line, 0), max(len(cell.offsets) - 1, 0))
        at = self._offset(cell, within, column) if cell.offsets else cell.start
        number = bisect_right(self._line_starts, at)
        return FilePlace(number, at - self._line_starts[number - 1] + 1, cell.number, within + 1)

    def _offset(self, cell: Cell, within: int, column: int) -> int:
        at = cell.offsets[within]
        for _ in range(min(column - 1, len(cell.lines[within]))):
            escape = _ESCAPE.match(self.raw, at)
            at = escape.end() if escape is not None else at + 1
        return at

    def rewritten(self, text: str) -> str | None:
        """The file's text with another program; None if the cells can no longer be told apart."""
        parts = _split(text)
        if parts is None or [number for number, _ in parts] != [cell.number for cell in self.cells]:
            return None
        pieces, at = [], 0
        for cell, (_, lines) in zip(self.cells, parts, strict=True):
            if tuple(lines) == cell.program:
                continue
            restored = _restored(cell, lines)
            if restored is None:
                return None
            pieces += [self.raw[at : cell.start], _source_like(self.raw[cell.start : cell.end], restored)]
            at = cell.end
        return "".join((*pieces, self.raw[at:]))


def is_notebook(path: str) -> bool:
    return path.endswith(SUFFIX)


def cell_of(program: list[str], line: int) -> tuple[int, int]:
    """The number of the cell that a line of a notebook's program belongs to, and the line in it."""
    for above in range(line - 1, -1, -1):
        marker = _MARKED.fullmatch(program[above].rstrip("\r\n"))
        if marker is not None:
            return int(marker.group(1)), line - 1 - above
    return 1, line


def read_notebook(data: bytes) -> Notebook:
    """The program of a notebook.

    Raises:
        NotPython: it is no notebook of format 4, or not written in Python.
    """
    try:
        raw = data.decode("utf-8")
        document = json.loads(raw)
        kernel = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        spans = list(_sources(raw)) if kernel.lower() == "python" else None
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise NotPython(f"it is no Jupyter notebook that can be read ({type(error).__name__})") from None
    if spans is None:
        raise NotPython("its language is not Python")
    notebook = Notebook(raw)
    line = 1
    for number, start, end in spans:
        lines, offsets = _lines_of(raw, start, end)
        program = tuple(_as_python(lines))
        notebook.cells.append(Cell(number, start, end, tuple(lines), program, tuple(offsets), line + 1))
        line += 1 + len(program)
    return notebook


# -- the JSON


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of the values of an object."""
    at = _after_blank(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _after_blank(text, _after_blank(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield key, start, end
        at = _after_blank(text, end)
        if text[at] == ",":
            at = _after_blank(text, at + 1)


def _items(text: str, at: int) -> Iterator[tuple[int, int, Any]]:
    """(start, end, value) of the items of an array."""
    at = _after_blank(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        yield at, end, value
        at = _after_blank(text, end)
        if text[at] == ",":
            at = _after_blank(text, at + 1)


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _sources(text: str) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the source of every code cell."""
    for key, start, _ in _members(text, _after_blank(text, 0)):
        if key != "cells":
            continue
        for number, (at, _, cell) in enumerate(_items(text, start), start=1):
            if cell["cell_type"] != "code":
                continue
            for name, first, end in _members(text, at):
                if name == "source":
                    yield number, first, end


def _lines_of(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """The lines of a source, and the offset of each in the file's text."""
    if text[start] == "[":
        spans = [(at, stop) for at, stop, item in _items(text, start) if isinstance(item, str)]
    else:
        spans = [(start, end)] if text[start] == '"' else []
    lines: list[str] = []
    offsets: list[int] = []
    open_line = False
    for first, stop in spans:
        at = first + 1
        while at < stop - 1:
            if not open_line:
                lines.append("")
                offsets.append(at)
                open_line = True
            escape = _ESCAPE.match(text, at)
            after = escape.end() if escape is not None else at + 1
            character = json.loads(f'"{text[at:after]}"') if escape is not None else text[at]
            if character == "\n":
                open_line = False
            else:
                lines[-1] += character
            at = after
    return lines, offsets


def _source_like(old: str, lines: list[str]) -> str:
    """The JSON of a source in the form of the old one."""
    ascii_only = old.isascii() and "\\u" in old
    last_end = "\n" if "".join(json.loads(old)).endswith("\n") else ""
    if not old.startswith("["):
        return json.dumps("\n".join(lines) + last_end, ensure_ascii=ascii_only)
    written = [
        json.dumps(line + ("\n" if number < len(lines) else last_end), ensure_ascii=ascii_only)
        for number, line in enumerate(lines, start=1)
    ]
    inner = re.match(r"\[(\s*)", old)
    last = re.search(r"(\s*)\]$", old)
    opening = inner.group(1) if inner is not None else ""
    closing = last.group(1) if last is not None else ""
    comma = "," + opening if "\n" in opening else ", " if '", "' in old else ","
    return "[" + opening + comma.join(written) + closing + "]"


# -- what is not Python


def _as_python(lines: list[str]) -> Iterator[str]:
    """The lines with placeholders for magics, shell commands and help queries."""
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is not None and lines[first].startswith("%%"):
        magic = lines[first][2:].split(maxsplit=1)
        if not magic or magic[0] not in _PYTHON_MAGICS:
            yield from (_PLACEHOLDER.format(index) for index in range(len(lines)))
            return
    if _compiles(lines):
        yield from lines
        return
    continued, blank = False, ""
    for index, line in enumerate(lines):
        captured = _CAPTURED.match(line)
        blank = blank if continued else line[: len(line) - len(line.lstrip())]
        if continued or _SHELL.match(line):
            continued = line.rstrip().endswith("\\")
            yield blank + _PLACEHOLDER.format(index)
        elif captured is not None:
            yield blank + _PLACEHOLDER.format(index)
        else:
            yield line


def _compiles(lines: list[str]) -> bool:
    import ast

    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _split(text: str) -> list[tuple[int, list[str]]] | None:
    """The cells of a program, by its markers."""
    parts: list[tuple[int, list[str]]] = []
    if not text:
        return parts
    above: list[str] = []
    for line in text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"):
        marker = _MARKED.fullmatch(line)
        if marker is not None:
            parts.append((int(marker.group(1)), []))
        elif parts:
            parts[-1][1].append(line)
        else:
            above.append(line)
    if above and not parts:
        return None
    if above:  # an import inserted above all cells belongs to the first one
        parts[0][1][:0] = above
    return parts


def _restored(cell: Cell, lines: list[str]) -> list[str] | None:
    """The lines with the originals in place of the placeholders; None if a placeholder is missing or
    doubled."""
    found: list[str] = []
    seen: list[int] = []
    for line in lines:
        held = _HELD.fullmatch(line)
        if held is None:
            found.append(line)
        else:
            seen.append(int(held.group(1)))
            found.append(cell.lines[seen[-1]])
    wanted = [int(held.group(1)) for line in cell.program if (held := _HELD.fullmatch(line)) is not None]
    return found if seen == wanted else None
