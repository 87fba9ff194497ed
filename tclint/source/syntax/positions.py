"""The positions of the nodes of a libcst tree, computed only for files with a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import libcst as cst


class Span(NamedTuple):
    """Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


def spans_of(module: cst.Module, nodes: Sequence[cst.CSTNode]) -> tuple[Span, ...]:
    """The position of every node, without the whitespace around it."""
    from tclint.source.syntax.node_positions import positions_of

    positions = positions_of(module)
    ranges = (positions[node] for node in nodes)
    return tuple(Span(line, column + 1, end_line, end + 1) for (line, column), (end_line, end) in ranges)
