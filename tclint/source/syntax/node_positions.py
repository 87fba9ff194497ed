"""Where each node of a libcst tree stands, from writing the tree out once."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import libcst as cst
from libcst._nodes.internal import CodegenState

At: TypeAlias = tuple[int, int]
"""A line, from 1, and a column in characters, from 0."""

_NEWLINE = re.compile(r"\r\n?|\n")


def positions_of(module: cst.Module) -> dict[cst.CSTNode, tuple[At, At]]:
    """Node -> its start and its exclusive end, without the whitespace and the parentheses around it.

    They are those of libcst's PositionProvider, which takes four times as long: `MetadataWrapper.resolve`
    visits all nodes once more for nobody, and a position is two objects with a dictionary's checks each.
    """
    state = _Positions(module.default_indent, module.default_newline)
    module._codegen(state)
    return state.found


class _Positions(CodegenState):
    """Counts lines and columns of what the nodes write."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(indent, newline)
        self.at: At = (1, 0)
        self.found: dict[cst.CSTNode, tuple[At, At]] = {}
        self._starts: list[At] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        line, column = self.at
        if "\n" in value or "\r" in value:
            *newlines, last = _NEWLINE.split(value)
            self.at = line + len(newlines), len(last)
        else:
            self.at = line, column + len(value)

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def before_codegen(self, node: cst.CSTNode) -> None:  # noqa: ARG002
        self._starts.append(self.at)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.found.setdefault(node, (self._starts.pop(), self.at))

    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Any:
        """A context in which libcst writes a node without what surrounds it."""
        return _Recorded(self, node, start_node, end_node)


class _Recorded:
    """Takes the position of a node at the end of its text."""

    __slots__ = ("_at", "_first", "_last", "_node", "_state")

    def __init__(
        self, state: _Positions, node: cst.CSTNode, first: cst.CSTNode | None, last: cst.CSTNode | None
    ) -> None:
        self._state, self._node, self._first, self._last = state, node, first, last

    def __enter__(self) -> None:
        self._at = self._state.at

    def __exit__(self, *_: object) -> None:
        found = self._state.found
        start = found[self._first][0] if self._first is not None else self._at
        found[self._node] = (start, found[self._last][1] if self._last is not None else self._state.at)
