"""Changes of whole statements: put one before or after another, take one out, move a block's tail out."""

from __future__ import annotations

import ast
import re
import tokenize

from tclint.edits.document import Change, Document

_BLANK = " \t\f"
_DIRECTIVE = re.compile(r"#\s*(?:noqa\b|(?:tclint|type|pylint|pyright|mypy|fmt|isort|ruff|pragma):)", re.I)
"""Comments that speak to a checker about their line."""


def is_first_on_line(document: Document, statement: ast.stmt) -> bool:
    """Nothing but indentation stands before it, on its line and where that line is continued from."""
    start = document.start(statement)
    line = document.line_of(start)
    before = document.text[document.line_start(line) : start]
    return not before.strip(_BLANK) and not document.line(line - 1).endswith("\\")


def is_last_on_line(document: Document, statement: ast.stmt) -> bool:
    """Nothing but a comment stands behind it."""
    end = document.end(statement)
    rest = document.text[end : document.line_end(document.line_of(end))].strip(_BLANK)
    return not rest or rest.startswith("#")


def indentation(document: Document, statement: ast.stmt) -> str:
    """What stands before a statement that is first on its line."""
    start = document.start(statement)
    return document.text[document.line_start(document.line_of(start)) : start]


def insert_before(document: Document, statement: ast.stmt, code: str) -> Change:
    """Put a simple statement before another one of the same block."""
    start = document.start(statement)
    decorators = getattr(statement, "decorator_list", [])
    if not is_first_on_line(document, statement) or decorators:
        return Change(start, start, f"{code}; ")
    line = document.line_of(start)
    above = line - 1
    # A directive above a statement speaks for that statement, and stays with it.
    while above >= 1 and (not document.line(above).strip() or document.line(above).lstrip().startswith("#")):
        joined = above > 1 and document.line(above - 1).rstrip("\r\n").endswith("\\")
        if "tclint:" in document.line(above).lower() and not joined:
            line = above
        above -= 1
    at = document.line_start(line)
    return Change(at, at, f"{indentation(document, statement)}{code}{document.newline}")


def insert_after(document: Document, statement: ast.stmt, code: str) -> Change:
    """Put a simple statement behind another simple one of the same block."""
    end = document.end(statement)
    if not is_first_on_line(document, statement) or not is_last_on_line(document, statement):
        return Change(end, end, f"; {code}")
    at = document.line_end(document.line_of(end))
    return Change(at, at, f"{document.newline}{indentation(document, statement)}{code}")


def with_comment(document: Document, statement: ast.stmt) -> str:
    """A statement's text, with what stands behind it where it has a line of its own."""
    start, end = document.start(statement), document.end(statement)
    if is_first_on_line(document, statement) and is_last_on_line(document, statement):
        end = document.line_end(document.line_of(end))
    return document.text[start:end].rstrip()


def remove(document: Document, statement: ast.stmt, *, with_comments: bool = False) -> Change:
    """Take a simple statement out; `pass` takes its place where it was the only one of its block.

    Comments in it and behind it stay, on lines of their own, unless they go `with_comments`; what they say
    to a checker of that line goes with it.
    """
    start, end = document.start(statement), document.end(statement)
    block = document.block(statement)
    first_on_line, last_on_line = is_first_on_line(document, statement), is_last_on_line(document, statement)
    inside = [] if with_comments else _comments(document, start, end)
    if len(block) == 1:
        kept = "".join(f"  {comment}" for comment in inside) if last_on_line else ""
        return Change(start, end, f"pass{kept}")
    if first_on_line and last_on_line:
        first, last = document.line_of(start), document.line_of(end)
        behind = [] if with_comments else _comments(document, end, document.line_end(last))
        outer = indentation(document, statement)
        lines = "".join(f"{outer}{comment}{document.newline}" for comment in (*inside, *behind))
        return Change(document.line_start(first), document.line_start(last + 1), lines)
    position = next(index for index, item in enumerate(block) if item is statement)
    if position + 1 < len(block):
        following = document.start(block[position + 1])
        if document.line_of(following) == document.line_of(end):
            outer = indentation(document, statement) if first_on_line else ""
            above = "".join(f"{comment}{document.newline}{outer}" for comment in inside if first_on_line)
            return Change(start, following, above)
    return Change(document.end(block[position - 1]), end, "")


def _comments(document: Document, start: int, end: int) -> list[str]:
    found = (token.string for token in document.tokens_in(start, end) if token.kind == tokenize.COMMENT)
    return [comment for comment in found if not _DIRECTIVE.match(comment)]


def dedent_tail(document: Document, with_: ast.With | ast.AsyncWith, first: int) -> list[Change] | None:
    """Move the statements from `first` on out of a with block, behind it.

    Where that leaves the block empty its header goes as well. None where the layout of the text does not
    allow it: a comment in a header that would go, other statements on the lines.
    """
    moved = with_.body[first:]
    if not is_first_on_line(document, with_):
        return None
    outer = indentation(document, with_)
    header_line = document.line_of(document.start(with_))
    body_line = document.line_of(document.start(with_.body[0]))
    one_line = not is_first_on_line(document, with_.body[0])
    if one_line and any(document.line_of(document.end(item)) != body_line for item in with_.body):
        return None
    if first == 0:
        if document.has_comment(document.start(with_), document.start(with_.body[0])):
            return None
        if one_line:
            return [Change(document.start(with_), document.start(with_.body[0]), "")]
        header = Change(document.line_start(header_line), document.line_start(body_line), "")
        return [header, *_dedented(document, moved, body_line, outer)]
    previous = with_.body[first - 1]
    if one_line:
        gap = Change(document.end(previous), document.start(moved[0]), document.newline + outer)
        return [gap]
    if not is_first_on_line(document, moved[0]):
        if any(not is_first_on_line(document, item) for item in moved[1:]):
            # `a; b; c` with b and c moved: they stay on one line.
            last = document.line_of(document.end(moved[-1]))
            if last != document.line_of(document.start(moved[0])):
                return None
        elif len(moved) > 1:
            return None
        return [Change(document.end(previous), document.start(moved[0]), document.newline + outer)]
    if not is_last_on_line(document, previous) and document.line_of(document.end(previous)) == (
        document.line_of(document.start(moved[0]))
    ):
        return None
    # Comments above the first statement belong to it.
    from_line = document.line_of(document.end(previous)) + 1
    return _dedented(document, moved, from_line, outer)


def _dedented(document: Document, moved: list[ast.stmt], from_line: int, outer: str) -> list[Change]:
    inner = indentation(document, moved[0])
    if not inner.startswith(outer):
        return []
    to_line = document.line_of(document.end(moved[-1]))
    # Comments behind the last statement, as deep as it is, follow it.
    while document.line(to_line + 1).startswith(inner) and document.line(to_line + 1).lstrip().startswith(
        "#"
    ):
        to_line += 1
    changes = []
    for line in range(from_line, to_line + 1):
        text = document.line(line)
        if text.startswith(inner) and text.strip(_BLANK) and not document.inside_string(line):
            at = document.line_start(line)
            changes.append(Change(at + len(outer), at + len(inner), ""))
    return changes
