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
    from libcst.metadata import MetadataWrapper, PositionProvider

    # No node occurs twice in a parsed tree, so the wrapper need not copy the tree.
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    ranges = (positions[node] for node in nodes)
    return tuple(Span(at.start.line, at.start.column + 1, at.end.line, at.end.column + 1) for at in ranges)
