"""Turns bytes into tables and node ids into positions; besides it only the walk and positions use libcst."""

from __future__ import annotations

import ast
import re
import symtable
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeVar

from tclint.source.syntax.encoding import encoding_of
from tclint.source.syntax.positions import Span, spans_of
from tclint.source.syntax.tables import Tables

if TYPE_CHECKING:
    import libcst as cst

_PYTHON_2 = re.compile(
    r"^\s*(?:print\s+[^\s(=,.:\[]|print\s*>>|exec\s+['\"\w]|raise\s+\w+\s*,|except\s+[\w.()]+(?:\s*,\s*\w+)+\s*:)"
    r"|<>|\bur['\"]|\b0[0-7]+[lL]?\b(?!\.)",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"\{%-?\s*\w|\{\{\s*[\w.]+[^{}\n]*\}\}|<%|\$\{\{|@@\w+@@")


_BRACKET = re.compile(r"[()\[\]{}]")
_DEEP = 100
"""Nesting of brackets from which on the depth is checked; Python itself allows 200."""
_DEEPEST_WALK = 1_200
"""Levels of syntax, of which a sum has one per term; walking them takes up to five frames each."""
_LARGE_CHARACTERS = 100_000
_LONG_LINE_CHARACTERS = 2_000
_STACK_BYTES = 256 * 2**20
"""Address space only; pages are used as the depth needs them. 20,000 levels fit."""
_TOO_DEEP = "its code is nested too deeply"
_KEPT_TREES = 8
"""Trees of the files that were parsed last: their positions are found without parsing again."""

Result = TypeVar("Result")


class NotPython(Exception):
    """The text cannot be parsed; the message is the reason shown to the user, 'it is a binary file'."""

    def __init__(self, message: str, line: int = 0, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        """The line, from 1, where Python gives up as well; 0 if only tclint does, at a limit of its own."""
        self.column = column


@dataclass
class Parsed:
    """One file's tables and a way to find positions; the tree is kept only while the file is examined."""

    text: str
    tables: Tables
    _find_spans: Callable[[], tuple[Span, ...]] = field(repr=False)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The position of every node id, needed only for files with a finding."""
        return self._find_spans()

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines as Python counts them."""
        return re.split(r"\r\n|\r|\n", self.text)


def decode(data: bytes) -> str:
    """The text of a Python file: UTF-8, UTF-16 behind a mark, or what its first lines say.

    Raises:
        NotPython: it is written in something else, or binary.
    """
    try:
        mark, encoding = encoding_of(data)
    except SyntaxError as error:
        raise NotPython(f"{error.msg} in its first lines; save it as UTF-8", 1) from None
    if not encoding.startswith("utf-16") and b"\0" in data:
        raise NotPython("it is a binary file, not Python", *_position(data, data.index(b"\0")))
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        start = len(mark) + error.start
        reason = f"it is not {encoding.upper()} (byte {start}); save it as UTF-8"
        place = (1, 1) if encoding.startswith("utf-16") else _position(data, start)
        raise NotPython(reason, *place) from None


def as_utf8(data: bytes) -> bytes:
    """A Python file's bytes in UTF-8, for searching; a line that names an encoding is then no longer true.

    Raises:
        NotPython: as `decode`.
    """
    return data if data.isascii() else decode(data).encode("utf-8")


def _position(data: bytes, offset: int) -> tuple[int, int]:
    """The line and column of a byte, as far as the bytes before it can be decoded."""
    before = re.split(r"\r\n|\r|\n", data[:offset].decode("utf-8-sig", "replace"))
    return len(before), len(before[-1]) + 1


def what_is_broken(data: bytes) -> NotPython | None:
    """The reason why Python cannot read a file; None if it can. Readable files are not parsed into a tree."""
    try:
        text = decode(data)
        if _complaint(text) is not None:
            parse(text)
    except NotPython as error:
        return error if error.line else None
    return None


def _complaint(text: str) -> SyntaxError | None:
    """The error that this Python reports for a text, which may be written for another version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, "<text>", "exec")  # takes half the time of building a tree
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return None  # Python's own limits on depth and size
    return None


def parse(text: str) -> Parsed:
    """Parse once and walk once.

    Raises:
        NotPython: the text is not Python 3 that libcst can read.
    """
    return Parsed(text, _walked(text)[0], lambda: spans_of(*_walked(text)[1:]))


@lru_cache(maxsize=_KEPT_TREES)
def _walked(text: str) -> tuple[Tables, cst.Module, list[cst.CSTNode]]:
    """The tables, the tree and the numbered nodes. Trees are many times larger than tables, and positions are
    seldom needed later, so trees are not kept for long."""
    from tclint.source.syntax.walk import walk

    module = parse_tree(text)
    try:
        tables, nodes = walk(module)
    except RecursionError:
        raise NotPython(_TOO_DEEP) from None
    return tables, module, nodes


def parse_tree(text: str) -> cst.Module:
    """The libcst tree of a text.

    Raises:
        NotPython: as `parse`.
    """
    import libcst as cst

    try:
        if _may_be_deep(text):
            _refuse_depth(text)
            return _with_stack(lambda: cst.parse_module(text))
        return cst.parse_module(text)
    except NotPython:
        raise
    except cst.ParserSyntaxError as error:
        raise _refused(text, error) from None
    except RecursionError:
        raise NotPython(_TOO_DEEP) from None
    except Exception as error:
        # libcst's parser is native: what it reports besides syntax errors has no common base.
        raise NotPython(f"it cannot be parsed ({type(error).__name__}: {_first_line(error)})") from None


def _may_be_deep(text: str) -> bool:
    """Whether a text could nest so deeply that libcst's native parser overflows its stack and ends the
    process. That takes thousands of levels, so the size rules it out for ordinary files."""
    if len(text) > _LARGE_CHARACTERS or text.count("elif") > 5 * _DEEP:
        return True
    if any(len(line) > _LONG_LINE_CHARACTERS for line in text.splitlines()):
        return True
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "([{" else -1
        if depth > _DEEP:
            return True
    return False


def _refuse_depth(text: str) -> None:
    """Refuse a text that nests too deeply for Python's own parser, or for the walk.

    Other errors of Python's parser are ignored, since the file may be written for another version. libcst's
    time grows with the square of the depth, so it does not get texts that the walk could not follow.

    Raises:
        NotPython: the text nests too deeply.
    """
    try:
        if _depth(ast.parse(text)) > _DEEPEST_WALK:
            raise NotPython(_TOO_DEEP)
    except (RecursionError, MemoryError):
        raise NotPython(_TOO_DEEP) from None
    except (SyntaxError, ValueError) as error:
        if "too many" in str(error):
            raise NotPython(_TOO_DEEP) from None


def _depth(tree: ast.AST) -> int:
    deepest = 0
    pending = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return deepest


def _with_stack(work: Callable[[], Result]) -> Result:
    """Run something in a thread with a large stack and return what it returns, or raise what it raises."""
    result: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _refused(text: str, error: cst.ParserSyntaxError) -> NotPython:
    """The error to raise for a text that libcst refuses, in Python's own words if Python refuses it too."""
    complaint = _complaint(text)
    if complaint is None:
        return NotPython(f"its syntax is newer than tclint knows (line {error.raw_line})")
    last = text.count("\n") + 1
    line = min(max(complaint.lineno or error.raw_line, 1), last)
    column = max(complaint.offset or 1, 1)
    if _TEMPLATE.search(text):
        return NotPython(f"it looks like a template, not Python (line {line})", line, column)
    if _PYTHON_2.search(text):
        return NotPython(f"it looks like Python 2 (line {line})", line, column)
    reason = (complaint.msg or error.message).strip().split("\n", 1)[0].rstrip(".")
    return NotPython(f"syntax error on line {line}: {reason}", line, column)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n", 1) or [""])[0]
