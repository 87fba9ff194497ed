"""From bytes to tables, and from sites to positions; only the walk and positions know libcst besides."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from tclint.source.syntax.positions import Span, spans_of
from tclint.source.syntax.tables import Tables

_PYTHON_2 = re.compile(
    r"^\s*(?:print\s+[^\s(=,.:\[]|print\s*>>|exec\s+['\"\w]|raise\s+\w+\s*,|except\s+[\w.()]+(?:\s*,\s*\w+)+\s*:)"
    r"|<>|\bur['\"]|\b0[0-7]+[lL]?\b(?!\.)",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"\{%-?\s*\w|\{\{\s*[\w.]+[^{}\n]*\}\}|<%|\$\{\{|@@\w+@@")


_BRACKET = re.compile(r"[()\[\]{}]")
_DEEP = 100
"""Python itself allows 200 brackets around each other."""
_LARGE_CHARACTERS = 100_000
_LONG_LINE_CHARACTERS = 2_000
_STACK_BYTES = 256 * 2**20
"""Address space only; pages are used as the depth needs them. 20,000 levels fit."""
_TOO_DEEP = "its code is nested too deeply"

Result = TypeVar("Result")


class NotPython(Exception):
    """The text cannot be parsed; the message is the reason shown to the user."""


@dataclass
class Parsed:
    """One file's tables, and how to find positions: a tree is kept only while the file is looked at."""

    text: str
    tables: Tables
    _find_spans: Callable[[], tuple[Span, ...]] = field(repr=False)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Position of every site. Only files with a finding ask."""
        return self._find_spans()

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

    from tclint.source.syntax.walk import walk

    try:
        if _may_be_deep(text):
            _refuse_depth(text)
            module = _with_stack(lambda: cst.parse_module(text))
        else:
            module = cst.parse_module(text)
    except NotPython:
        raise
    except cst.ParserSyntaxError as error:
        raise NotPython(_why(text, error.raw_line, error.message)) from None
    except RecursionError:
        raise NotPython(_TOO_DEEP) from None
    except Exception as error:
        # libcst's parser is native: what it reports besides syntax errors has no common base.
        raise NotPython(f"it cannot be parsed ({type(error).__name__}: {_first_line(error)})") from None
    try:
        tables, nodes = walk(module)
    except RecursionError:
        raise NotPython(_TOO_DEEP) from None
    return Parsed(text, tables, lambda: spans_of(module, nodes))


def _may_be_deep(text: str) -> bool:
    """Whether the text could nest so deeply that libcst's native parser overflows its stack, which would
    end the process: that takes thousands of levels, so ordinary files are told by their size."""
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
    """Python's own parser knows its limits. It is not asked about anything else: the file may be written
    for another version of Python."""
    try:
        ast.parse(text)
    except (RecursionError, MemoryError):
        raise NotPython(_TOO_DEEP) from None
    except (SyntaxError, ValueError) as error:
        if "too many" in str(error):
            raise NotPython(_TOO_DEEP) from None


def _with_stack(work: Callable[[], Result]) -> Result:
    """Run something in a thread with a large stack and return what it returns, or raise what it raises."""
    result: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # handed to the caller
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


def _why(text: str, line: int, message: str) -> str:
    if _TEMPLATE.search(text):
        return f"it looks like a template, not Python (line {line})"
    if _PYTHON_2.search(text):
        return f"it looks like Python 2 (line {line})"
    reason = message.strip().split("\n", 1)[0].rstrip(".")
    return f"syntax error on line {line}: {reason}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().split("\n", 1) or [""])[0]
