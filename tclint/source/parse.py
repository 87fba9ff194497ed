"""From bytes to tables, and from sites to positions. The only module besides walk.py that knows libcst."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tclint.source.tables import Tables

if TYPE_CHECKING:
    import libcst as cst

_PYTHON_2 = re.compile(
    r"^\s*(?:print\s+[^\s(=,.:\[]|print\s*>>|exec\s+['\"\w]|raise\s+\w+\s*,|except\s+[\w.()]+(?:\s*,\s*\w+)+\s*:)"
    r"|<>|\bur['\"]|\b0[0-7]+[lL]?\b(?!\.)",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"\{%-?\s*\w|\{\{\s*[\w.]+[^{}\n]*\}\}|<%|\$\{\{|@@\w+@@")


class NotPython(Exception):
    """The text cannot be parsed; the message is the reason shown to the user."""


class Span(NamedTuple):
    """Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass
class Parsed:
    """One file's tables; the tree is kept only to find positions, and only while the file is looked at."""

    text: str
    tables: Tables
    _module: cst.Module = field(repr=False)
    _nodes: list[cst.CSTNode] = field(repr=False)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Position of every site. Costs about as much as parsing did: only files with a finding ask."""
        from libcst.metadata import MetadataWrapper, PositionProvider

        # The parser makes no node twice, so the wrapper need not copy the tree.
        wrapper = MetadataWrapper(self._module, unsafe_skip_copy=True)
        positions = wrapper.resolve(PositionProvider)
        spans = []
        for node in self._nodes:
            position = positions[node]
            start, end = position.start, position.end
            spans.append(Span(start.line, start.column + 1, end.line, end.column + 1))
        return tuple(spans)

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines as Python counts them."""
        return re.split(r"\r\n|\r|\n", self.text)


def decode(data: bytes) -> str:
    """The text of a Python file.

    Raises:
        NotPython: it is not UTF-8, or binary.
    """
    if b"\0" in data:
        raise NotPython("it is a binary file, not Python")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotPython(f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def parse(text: str) -> Parsed:
    """Parse once and walk once.

    Raises:
        NotPython: the text is no Python 3 that libcst can read.
    """
    import libcst as cst

    from tclint.source.walk import walk

    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise NotPython(_why(text, error.raw_line, error.message)) from None
    except RecursionError:
        raise NotPython("its code is nested too deeply") from None
    except Exception as error:
        # libcst's parser is native: what it reports besides syntax errors has no common base.
        raise NotPython(f"it cannot be parsed ({type(error).__name__}: {_first_line(error)})") from None
    try:
        tables, nodes = walk(module)
    except RecursionError:
        raise NotPython("its code is nested too deeply") from None
    return Parsed(text, tables, module, nodes)


def _why(text: str, line: int, message: str) -> str:
    if _TEMPLATE.search(text):
        return f"it looks like a template, not Python (line {line})"
    if _PYTHON_2.search(text):
        return f"it looks like Python 2 (line {line})"
    reason = message.strip().split("\n", 1)[0].rstrip(".")
    return f"syntax error on line {line}: {reason}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n", 1) or [""])[0]
