"""One Python text with its syntax tree, in offsets: what codemods look at to say which characters change.

Python's own `ast` is used and not libcst: a codemod never writes a tree back, it replaces ranges of the
original text, so whatever it does not name stays as it is, byte for byte.
"""

from __future__ import annotations

import ast
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from tclint.core.finding import Location

Node = TypeVar("Node", bound=ast.AST)

_LINE_END = re.compile(r"\r\n|\r|\n")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BLOCKS = ("body", "orelse", "finalbody")


class Change(NamedTuple):
    """Replace the characters [start, end) of the text; an insertion where both are equal."""

    start: int
    end: int
    text: str


class Token(NamedTuple):
    kind: int
    """As in the `token` module."""
    string: str
    start: int
    end: int


class NotEditable(Exception):
    """The text cannot be parsed by the running Python."""


@dataclass(frozen=True)
class Lines:
    """A text by lines as Python counts them; offsets count characters from 0."""

    text: str

    @cached_property
    def _lines(self) -> list[tuple[int, int]]:
        """Start and end of every line, as Python counts lines, without its line end."""
        found = []
        start = 0
        for match in _LINE_END.finditer(self.text):
            found.append((start, match.start()))
            start = match.end()
        found.append((start, len(self.text)))
        return found

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self._lines]

    def line_of(self, offset: int) -> int:
        """The line, counted from 1, that an offset is on."""
        return bisect_right(self._starts, offset)

    def line(self, number: int) -> str:
        """A line without its end; '' beyond the text."""
        if not 1 <= number <= len(self._lines):
            return ""
        start, end = self._lines[number - 1]
        return self.text[start:end]

    def line_start(self, number: int) -> int:
        """Offset of the first character of a line; the text's end for the line after the last."""
        return self._lines[number - 1][0] if number <= len(self._lines) else len(self.text)

    def line_end(self, number: int) -> int:
        """Offset behind the last character of a line, before its line end."""
        return self._lines[number - 1][1]

    def offset(self, line: int, column: int) -> int:
        """Of a line and a column in characters, both from 1; the text's end for the line after the last."""
        return self.line_start(line) + column - 1

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column in characters of an offset, both from 1."""
        line = self.line_of(offset)
        return line, offset - self._starts[line - 1] + 1


@dataclass(frozen=True)
class Document(Lines):
    """A text and what its syntax tree says of it."""

    tree: ast.Module

    @classmethod
    def of(cls, text: str) -> Document:
        """Parse a text.

        Raises:
            NotEditable: it is no Python of the running version.
        """
        try:
            return cls(text, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotEditable(str(error)) from None

    # -- positions of nodes

    def _ast_offset(self, line: int, byte_column: int) -> int:
        start, end = self._lines[line - 1]
        text = self.text[start:end]
        if text.isascii():
            return start + byte_column
        return start + len(text.encode("utf-8", "surrogatepass")[:byte_column].decode("utf-8", "replace"))

    def start(self, node: ast.AST) -> int:
        """Offset of a node's first character, without parentheses around it; decorators are left out."""
        return self._ast_offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Offset behind a node's last character, without parentheses around it."""
        return self._ast_offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def source(self, node: ast.AST) -> str:
        """A node's text."""
        return self.text[self.start(node) : self.end(node)]

    @cached_property
    def newline(self) -> str:
        """The line end that the text uses: that of its first line."""
        match = _LINE_END.search(self.text)
        return match.group() if match else "\n"

    @cached_property
    def quote(self) -> str:
        """The quotation mark that most of the text's plain strings use."""
        marks = [token.string[0] for token in self.tokens if token.kind == tokenize.STRING]
        return "'" if marks.count("'") > marks.count('"') else '"'

    # -- nodes

    @cached_property
    def _parents(self) -> dict[int, ast.AST]:
        found: dict[int, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            # Positions inside f-strings are not exact before Python 3.12.
            if isinstance(node, ast.JoinedStr):
                continue
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.expr_context | ast.operator | ast.boolop | ast.cmpop):
                    found[id(child)] = node
                    waiting.append(child)
        return found

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that contains it; None for the module."""
        return self._parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around it, innermost first."""
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def walk(self, root: ast.AST, *, into_functions: bool = True) -> Iterator[ast.AST]:
        """The node and all below it, in the order of the text."""
        if root is self.tree and into_functions:
            return iter(self._nodes)
        return self._below(root, into_functions)

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        """Every node, in the order of the text."""
        return tuple(self._below(self.tree, into_functions=True))

    def _below(self, root: ast.AST, into_functions: bool) -> Iterator[ast.AST]:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            yield node
            if isinstance(node, ast.JoinedStr):
                continue
            children = list(ast.iter_child_nodes(node))
            if not into_functions:
                children = [child for child in children if not isinstance(child, (*_FUNCTIONS, ast.ClassDef))]
            waiting.extend(reversed(children))

    @cached_property
    def _by_position(self) -> dict[tuple[int, int], list[ast.AST]]:
        """Nodes by line and byte column, outermost first."""
        found: dict[tuple[int, int], list[ast.AST]] = {}
        for node in self.walk(self.tree):
            if isinstance(node, ast.expr | ast.stmt):
                found.setdefault((node.lineno, node.col_offset), []).append(node)
        return found

    def find(self, location: Location, kind: type[Node]) -> Node | None:
        """The node of a kind that stands exactly at a location."""
        if not 1 <= location.line <= len(self._lines):
            return None
        before = self.line(location.line)[: location.column - 1]
        column = len(before.encode("utf-8", "surrogatepass"))
        found = [
            node for node in self._by_position.get((location.line, column), ()) if isinstance(node, kind)
        ]
        if location.end_line is not None and location.end_column is not None:
            exact = [
                node
                for node in found
                if self.position(self.end(node)) == (location.end_line, location.end_column)
            ]
            return exact[0] if exact else None
        return found[0] if found else None

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that contains a node, or is it."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.stmt)), None)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The run of statements that a statement is one of."""
        parent = self.parent(statement)
        for field in (*_BLOCKS, "handlers"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and any(item is statement for item in block):
                return block
        return [statement]

    def function(self, node: ast.AST) -> ast.AST:
        """The function, lambda or class body that a node belongs to; the module outside of any."""
        return next(
            (outer for outer in self.ancestors(node) if isinstance(outer, (*_FUNCTIONS, ast.ClassDef))),
            self.tree,
        )

    # -- tokens

    @cached_property
    def tokens(self) -> list[Token]:
        """Every token that has characters, comments included; empty for what cannot be tokenized."""
        lines = iter([self.text[start:end] + "\n" for start, end in self._lines])
        found = []
        try:
            for token in tokenize.generate_tokens(lambda: next(lines, "")):
                if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                    continue
                if token.type == tokenize.ENDMARKER:
                    continue
                found.append(
                    Token(
                        token.type,
                        token.string,
                        self.offset(token.start[0], token.start[1] + 1),
                        self.offset(token.end[0], token.end[1] + 1),
                    )
                )
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return []
        return found

    @cached_property
    def _token_starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def tokens_in(self, start: int, end: int) -> list[Token]:
        """Tokens that begin in [start, end)."""
        first = bisect_right(self._token_starts, start - 1)
        last = bisect_right(self._token_starts, end - 1)
        return self.tokens[first:last]

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a comment begins in [start, end)."""
        return any(token.kind == tokenize.COMMENT for token in self.tokens_in(start, end))

    def inside_string(self, line: int) -> bool:
        """Whether a line begins inside a string that spans lines."""
        return line in self._string_lines

    @cached_property
    def _string_lines(self) -> frozenset[int]:
        found: set[int] = set()
        for node in ast.walk(self.tree):
            # An f-string's own position is exact in every version.
            if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
                found.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
        return frozenset(found)
