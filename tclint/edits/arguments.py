"""Changes of a call's arguments and a dict's items, in the layout that they have."""

from __future__ import annotations

import ast
import tokenize

from tclint.edits.document import Change, Document, Token

_BLANK = " \t\f"


def parenthesis(document: Document, call: ast.Call) -> int | None:
    """Offset of the parenthesis that opens a call's arguments."""
    depth = 0
    # From the end backwards: the called expression may have parentheses of its own.
    for token in reversed(document.tokens_in(document.end(call.func), document.end(call))):
        if token.kind != tokenize.OP:
            continue
        if token.string in ")]}":
            depth += 1
        elif token.string in "([{":
            depth -= 1
            if depth == 0 and token.string == "(":
                return token.start
    return None


def arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """Positional and keyword arguments in the order of the text."""
    return sorted([*call.args, *call.keywords], key=_position)


def _position(node: ast.expr | ast.keyword) -> tuple[int, int]:
    return node.lineno, node.col_offset


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The argument passed by that keyword."""
    return next((item for item in call.keywords if item.arg == name), None)


def append_argument(document: Document, call: ast.Call, code: str) -> list[Change] | None:
    """Add an argument behind the last one; None where the call's layout does not allow it."""
    opening = parenthesis(document, call)
    if opening is None:
        return None
    given = arguments(call)
    if given and isinstance(given[0], ast.GeneratorExp) and document.start(given[0]) == opening:
        return None  # it would need parentheses of its own
    return _appended(
        document, opening, document.end(call) - 1, [document.start(item) for item in given], code
    )


def append_item(document: Document, display: ast.Dict, code: str) -> list[Change] | None:
    """Add an item behind the last one of a dict display."""
    starts = [document.start(key or value) for key, value in zip(display.keys, display.values, strict=True)]
    return _appended(document, document.start(display), document.end(display) - 1, starts, code)


def _appended(document: Document, opening: int, closing: int, starts: list[int], code: str) -> list[Change]:
    """Add code before a closing bracket, behind items that start at these offsets."""
    if not starts:
        return [Change(opening + 1, opening + 1, code)]
    tokens = document.tokens_in(opening + 1, closing)
    significant = [token for token in tokens if token.kind != tokenize.COMMENT]
    last = significant[-1]
    trailing_comma = last.string == "," and last.kind == tokenize.OP
    own_line = _indentation_of_own_line(document, starts[-1])
    last_line = document.line_of(last.end)
    if trailing_comma and document.line_of(closing) == last_line:
        return [Change(last.end, last.end, f" {code}")]
    if own_line is None or document.line_of(opening) == document.line_of(starts[-1]):
        if trailing_comma:
            return [Change(last.end, last.end, f" {code},")]
        return [Change(last.end, last.end, f", {code}")]
    comma = [] if trailing_comma else [Change(last.end, last.end, ",")]
    if not trailing_comma and document.line_of(closing) == last_line:
        return [Change(last.end, last.end, f",{document.newline}{own_line}{code}")]
    # Behind a comment that belongs to the last argument.
    at = document.line_end(last_line)
    end = "," if trailing_comma else ""
    return [*comma, Change(at, at, f"{document.newline}{own_line}{code}{end}")]


def prepend_argument(document: Document, call: ast.Call, code: str) -> list[Change] | None:
    """Add an argument before the first one."""
    opening = parenthesis(document, call)
    if opening is None:
        return None
    given = arguments(call)
    if not given:
        return [Change(opening + 1, opening + 1, code)]
    if isinstance(given[0], ast.GeneratorExp) and document.start(given[0]) == opening:
        return None  # it would need parentheses of its own
    first = document.tokens_in(opening + 1, document.end(call))[0]
    if first.kind == tokenize.COMMENT:
        return None
    own_line = _indentation_of_own_line(document, first.start)
    if own_line is not None:
        at = document.line_start(document.line_of(first.start))
        return [Change(at, at, f"{own_line}{code},{document.newline}")]
    return [Change(first.start, first.start, f"{code}, ")]


def remove_argument(
    document: Document, call: ast.Call, argument: ast.expr | ast.keyword
) -> list[Change] | None:
    """Take one argument out with its comma; None where a comment would go with it."""
    opening = parenthesis(document, call)
    if opening is None:
        return None
    closing = document.end(call) - 1
    given = arguments(call)
    at = next(index for index, item in enumerate(given) if item is argument)
    if len(given) == 1:
        start, end = opening + 1, closing
    elif at + 1 < len(given):
        start = _first_token(document, document.start(argument), opening).start
        end = _first_token(document, document.start(given[at + 1]), opening).start
    else:
        comma = _comma_before(document, opening, document.start(argument))
        if comma is None:
            return None
        tokens = document.tokens_in(document.end(argument), closing)
        behind = [token for token in tokens if token.string == ")"]
        start, end = comma.start, (behind[-1].end if behind else document.end(argument))
    if document.has_comment(start, end):
        return None
    return [Change(start, end, "")]


def _first_token(document: Document, start: int, opening: int) -> Token:
    """The token that an argument begins with, parentheses around it included."""
    tokens = document.tokens_in(opening + 1, start + 1)
    first = tokens[-1]
    for token in reversed(tokens[:-1]):
        if token.string != "(":
            break
        first = token
    return first


def _comma_before(document: Document, opening: int, start: int) -> Token | None:
    for token in reversed(document.tokens_in(opening + 1, start)):
        if token.kind == tokenize.OP and token.string == ",":
            return token
        if token.string != "(":
            return None
    return None


def _indentation_of_own_line(document: Document, start: int) -> str | None:
    """What stands before something that is first on its line; None where it is not."""
    before = document.text[document.line_start(document.line_of(start)) : start]
    return before if not before.strip(_BLANK) else None
