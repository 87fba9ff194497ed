"""Where the nodes of a libcst tree are.

libcst's PositionProvider makes an object for the range of every node and keeps the text that it writes
meanwhile; counting alone takes two fifths of its time (timm's levit, csatv2, swin_transformer_v2_cr and tnt:
32 to 83 ms of CPU against 79 to 222, best of three).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import libcst as cst

_NEWLINE = re.compile(r"\r\n?|\n")

_Range: TypeAlias = tuple[int, int, int, int]


class Span(NamedTuple):
    """Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


def spans_of(module: cst.Module, nodes: Sequence[cst.CSTNode]) -> tuple[Span, ...]:
    """The position of every node, without the whitespace around it."""
    try:
        state = _State(module)
        module._codegen(state)  # type: ignore[arg-type]
        found = [state.ranges[id(node)] for node in nodes]
    except (AttributeError, TypeError, KeyError):  # a libcst that writes trees in another way
        found = _by_provider(module, nodes)
    return tuple(Span(line, column + 1, last, end + 1) for line, column, last, end in found)


def _by_provider(module: cst.Module, nodes: Sequence[cst.CSTNode]) -> list[_Range]:
    from libcst.metadata import MetadataWrapper, PositionProvider

    # The parser makes no node twice, so the wrapper need not copy the tree.
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    ranges = [positions[node] for node in nodes]
    return [(at.start.line, at.start.column, at.end.line, at.end.column) for at in ranges]


class _State:
    """Counts lines and columns while a tree writes itself, as libcst's CodegenState is told to; the text
    itself is not kept."""

    def __init__(self, module: cst.Module) -> None:
        self.default_indent = module.default_indent
        self.default_newline = module.default_newline
        self.provider = None
        self.tokens = [""]  # looked at to tell an empty module
        self.indent_tokens: list[str] = []
        self.line, self.column = 1, 0
        self.ranges: dict[int, _Range] = {}
        self._starts: list[tuple[int, int]] = []

    def increase_indent(self, value: str) -> None:
        self.indent_tokens.append(value)

    def decrease_indent(self) -> None:
        self.indent_tokens.pop()

    def add_indent_tokens(self) -> None:
        self.column += sum(map(len, self.indent_tokens))

    def add_token(self, value: str) -> None:
        if "\n" in value or "\r" in value:
            lines = _NEWLINE.split(value)
            self.line += len(lines) - 1
            self.column = len(lines[-1])
        else:
            self.column += len(value)

    def pop_trailing_newline(self) -> None:
        """Nothing comes after it."""

    def before_codegen(self, node: cst.CSTNode) -> None:  # noqa: ARG002
        self._starts.append((self.line, self.column))

    def after_codegen(self, node: cst.CSTNode) -> None:
        line, column = self._starts.pop()
        # What the node itself said, if it did, leaves the whitespace out.
        self.ranges.setdefault(id(node), (line, column, self.line, self.column))

    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Syntactic:
        return _Syntactic(self, node, start_node, end_node)


class _Syntactic:
    __slots__ = ("end_node", "node", "start", "start_node", "state")

    def __init__(
        self, state: _State, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None
    ) -> None:
        self.state, self.node, self.start_node, self.end_node = state, node, start_node, end_node

    def __enter__(self) -> None:
        self.start = (self.state.line, self.state.column)

    def __exit__(self, *_: object) -> None:
        state = self.state
        start, end = self.start, (state.line, state.column)
        if self.start_node is not None:
            start = state.ranges[id(self.start_node)][:2]
        if self.end_node is not None:
            end = state.ranges[id(self.end_node)][2:]
        state.ranges[id(self.node)] = (*start, *end)
