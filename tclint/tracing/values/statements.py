"""The statement at a line of a function, without a syntax tree of all that stands around it.

A tree takes half a KiB a name; of a long forward it would be more than its trace.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import os
import sys
import tokenize
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

_MAX_LINES = 20_000
_WHOLE_FILE = 1
"""The first line of what is no function."""
_NO_TOKENS = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
_CHAINED = frozenset({"elif", "else"})
_CONTINUED = _CHAINED | {"except", "finally"}


class Statement(NamedTuple):
    """A simple statement, or the head of a compound one, and where it stands."""

    tree: tuple[ast.stmt, ...]
    """Its own; the body of a head is `pass`."""
    loop: str = ""
    """'for' or 'while': that of the innermost loop in whose body it is, in the same function."""
    last: ast.stmt | None = None
    """Of an `if` or `elif`, the last statement of its body, or that one's head."""
    has_else: bool = False
    """An `elif` or `else` follows."""
    chain: str = ""
    """Source of an `if` or `elif` with all that belongs to it."""
    first_line: int = 1
    """Of the source in the file."""


def statement_at(code: CodeType, number: int) -> Statement | None:
    """What stands in a line of the code's file; None where that cannot be read."""
    # Lambdas and comprehensions stand in lines of the function around them.
    first = _WHOLE_FILE if code.co_name.startswith("<") else code.co_firstlineno
    for start in dict.fromkeys((first, _WHOLE_FILE)):  # the file, where the function's lines are no block
        try:
            return _statement_in(_lines(code.co_filename, start, _last_line(code)), start, number)
        except (OSError, SyntaxError, ValueError, RecursionError, tokenize.TokenError):
            continue
    return None


def parsed(source: str, first_line: int) -> list[ast.stmt]:
    """The statements of a block, however far indented, with their lines in the file.

    Raises:
        SyntaxError: it is none.
    """
    is_indented = source[:1] in (" ", "\t")
    tree = ast.parse(f"if True:\n{source}" if is_indented else source)
    ast.increment_lineno(tree, first_line - 1 - is_indented)
    block = tree.body[0] if is_indented else tree
    assert isinstance(block, (ast.If, ast.Module))
    return block.body


def _last_line(code: CodeType) -> int:
    """Of the instructions of the code and of the functions in it."""
    if sys.version_info >= (3, 11):
        lines = (end for _, end, _, _ in code.co_positions() if end is not None)
    else:
        lines = (line for _, _, line in code.co_lines() if line is not None)
    inner = (_last_line(value) for value in code.co_consts if isinstance(value, CodeType))
    return max(itertools.chain((code.co_firstlineno,), lines, inner))


def _lines(path: str, first_line: int, last_line: int) -> list[str]:
    if not os.path.isfile(path):  # a notebook's cell
        return _function(iter(linecache.getlines(path)), first_line, last_line)
    # A module's source can be more than all else of a trace.
    with tokenize.open(path) as stream:
        return _function(stream, first_line, last_line)


def _function(source: Iterator[str], first_line: int, last_line: int) -> list[str]:
    """The lines up to the last that has instructions, and those of its block that have none."""
    if first_line == _WHOLE_FILE:
        return list(itertools.islice(source, _MAX_LINES + 1))
    lines = list(itertools.islice(source, first_line - 1, last_line))
    outside = _indentation(lines[0]) if lines else 0
    for line in source:
        if line.strip() and not line.lstrip().startswith("#") and _indentation(line) <= outside:
            break
        lines.append(line)
    return lines


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Line(NamedTuple):
    """A logical line, which may be several of the file, counted from 1."""

    first: int
    last: int
    depth: int
    keyword: str
    """Its first word; the second of `async for`."""
    is_head: bool
    """Its block stands below."""


def _logical_lines(lines: list[str]) -> Iterator[_Line]:
    depth, first, words, word = 0, 0, 0, ""
    keyword = ""
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type == tokenize.NEWLINE:
            if words:
                yield _Line(first, token.start[0], depth, keyword, word == ":")
            words = 0
        elif token.type not in _NO_TOKENS:
            word = token.string
            if words == 0:
                first, keyword = token.start[0], word
            elif words == 1 and keyword == "async":
                keyword = word
            words += 1


def _statement_in(lines: list[str], first_line: int, number: int) -> Statement | None:
    if len(lines) > _MAX_LINES:
        return None
    found: _Line | None = None
    child: _Line | None = None
    """The last line of the body that is no further in than its first."""
    around: list[_Line] = []
    end, has_else = 0, False
    wanted = number - first_line + 1
    for line in _logical_lines(lines):
        if found is None:
            while around and around[-1].depth >= line.depth:
                around.pop()
            if line.first <= wanted <= line.last:
                found, end = line, line.last
                if line.keyword not in ("if", "elif"):
                    break
            elif line.first > wanted:
                return None
            elif line.is_head:
                around.append(line)
            continue
        if line.depth < found.depth or (line.depth == found.depth and line.keyword not in _CHAINED):
            break
        if line.depth == found.depth:
            has_else = True
        elif line.depth == found.depth + 1 and not has_else and line.keyword not in _CONTINUED:
            child = line
        end = line.last
    if found is None:
        return None
    tree = _tree(lines, found, first_line)
    if not tree:
        return None
    if found.keyword not in ("if", "elif"):
        return Statement(tree, _loop(around))
    if child is None:
        body = getattr(tree[0], "body", ())
    else:
        body = _tree(lines, child, first_line) if child.keyword != "try" else ()
    return Statement(
        tree,
        _loop(around),
        last=body[-1] if body else None,
        has_else=has_else,
        chain=_without_else("".join(lines[found.first - 1 : end]), found.keyword),
        first_line=first_line + found.first - 1,
    )


def _loop(around: list[_Line]) -> str:
    for line in reversed(around):
        if line.keyword in ("for", "while"):
            return line.keyword
        if line.keyword in ("def", "class"):
            return ""
    return ""


_NOT_READ = frozenset({"case", "except", "match"})
_NO_TEST = frozenset({"else", "finally", "try"})


def _tree(lines: list[str], line: _Line, first_line: int) -> tuple[ast.stmt, ...]:
    """Empty where a part of a statement cannot be told from its words alone."""
    source = "".join(lines[line.first - 1 : line.last])
    if line.is_head:
        if line.keyword in _NOT_READ:
            return ()
        source = f"{source}{source[: _indentation(source)]} pass\n"
    if line.keyword in _NO_TEST:
        source = source.replace(line.keyword, "if True", 1)
    if line.keyword == "@":
        source = source.replace("@", " ", 1)  # the decorator alone, as an expression
    found = parsed(_without_else(source, line.keyword), first_line + line.first - 1)
    return tuple(getattr(found[0], "body", ()) if line.keyword in _NO_TEST else found)


def _without_else(source: str, keyword: str) -> str:
    return source.replace("elif", "if", 1) if keyword == "elif" else source
