"""A text as an editor holds it: positions in its units, and what becomes of lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lsprotocol import types
from pygls.workspace import PositionCodec

from tclint.core.finding import Edit, Finding, Location
from tclint.source.syntax.encoding import encoded_like

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Text:
    """A text, and how its editor counts columns: in UTF-16 unless both sides agreed on another."""

    source: str
    codec: PositionCodec

    @cached_property
    def lines(self) -> list[str]:
        """Without their ends; only what ends a line in Python and in the protocol alike does."""
        return _LINE_END.split(self.source)

    @cached_property
    def data(self) -> bytes:
        """The bytes that the file would have: in the encoding that its first lines name."""
        data = self.source.encode("utf-8", "surrogatepass")
        try:
            return encoded_like(self.source, data)
        except (SyntaxError, UnicodeError):
            return data

    def range_of(self, location: Location) -> types.Range:
        """The place; to the end of its line where it has no end, without leading blanks where no column."""
        line = location.line
        text = self._line(line)
        if location.end_line is None or location.end_column is None:
            column = location.column if location.column > 1 else len(text) - len(text.lstrip()) + 1
            end = (line, max(len(text.rstrip()) + 1, column))
        else:
            column, end = location.column, (location.end_line, location.end_column)
        return types.Range(self.position(line, column), self.position(*end))

    def text_edit(self, edit: Edit) -> types.TextEdit:
        return types.TextEdit(
            types.Range(self.position(*edit.start), self.position(*edit.end)), edit.replacement
        )

    def position(self, line: int, column: int) -> types.Position:
        """The editor's position of a line and a column, both counted in characters from 1."""
        before = self._line(line)[: column - 1]
        return types.Position(max(line - 1, 0), self.codec.client_num_units(before))

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""


def unchanged_lines(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """Where each line of a text, from 1, stands in what became of it; lines that were changed are missing."""
    if list(before) == list(after):
        return {number: number for number in range(1, len(before) + 1)}
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return {
        block.a + offset + 1: block.b + offset + 1
        for block in matcher.get_matching_blocks()
        for offset in range(block.size)
    }


def moved(findings: Sequence[Finding], before: Sequence[str], after: Sequence[str]) -> list[Finding]:
    """The findings of one text at their places in what became of it, those on changed lines left out."""
    lines = unchanged_lines(before, after)
    kept = []
    for finding in findings:
        location = finding.location
        line = lines.get(location.line)
        end = lines.get(location.end_line) if location.end_line is not None else line
        if line is not None and end is not None:
            end_line = None if location.end_line is None else end
            kept.append(replace(finding, location=replace(location, line=line, end_line=end_line)))
    return kept
