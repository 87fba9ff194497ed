"""Removes statements and moves them out of blocks, keeping comments that libcst's own removal would lose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import libcst as cst

from tclint.edits.program import find_all

_DIRECTIVE = re.compile(r"#\s*(?:noqa\b|(?:tclint|type|pylint|pyright|mypy|fmt|isort|ruff|pragma):)", re.I)
"""Comments that are directives to a checker about their line."""

_Simple = TypeVar("_Simple", cst.SimpleStatementLine, cst.SimpleStatementSuite)


class Gone(cst.Pass):
    """A placeholder for a removed statement until its block has taken over the comments."""


class GoneWithComment(Gone):
    """The same, but the comment after the statement is removed too."""


def has_comment(node: cst.CSTNode) -> bool:
    return bool(find_all(node, cst.Comment))


def _comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """The comments in a node in the order of the text, which the fields of nodes do not follow."""
    found: list[cst.Comment] = []

    class Collector(cst.CSTVisitor):
        def visit_Comment(self, node: cst.Comment) -> None:
            found.append(node)

    node.visit(Collector())
    return found


def comment_lines(comments: Iterable[cst.CSTNode | None]) -> list[cst.EmptyLine]:
    """The comments on lines of their own, without those that are removed with their statement."""
    return [
        cst.EmptyLine(comment=comment)
        for comment in comments
        if isinstance(comment, cst.Comment) and not _DIRECTIVE.match(comment.value)
    ]


class KeepsComments(cst.CSTTransformer):
    """Removes the statements that a subclass replaces by Gone, and keeps their comments."""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        gone = [
            (old, new)
            for old, new in zip(original_node.body, updated_node.body, strict=False)
            if isinstance(new, Gone)
        ]
        if not gone:
            return updated_node
        kept = [
            *updated_node.leading_lines,
            *comment_lines(
                comment
                for old, new in gone
                if not isinstance(new, GoneWithComment)
                for comment in _comments_in(old)
            ),
        ]
        if len(gone) < len(updated_node.body):
            return _without_gone(updated_node).with_changes(leading_lines=kept)
        if not any(isinstance(new, GoneWithComment) for _, new in gone):
            kept += comment_lines([updated_node.trailing_whitespace.comment])
        return updated_node.with_changes(body=[Gone()], leading_lines=kept)

    def leave_SimpleStatementSuite(
        self,
        original_node: cst.SimpleStatementSuite,  # noqa: ARG002
        updated_node: cst.SimpleStatementSuite,
    ) -> cst.SimpleStatementSuite:
        return _without_gone(updated_node)

    def leave_IndentedBlock(
        self,
        original_node: cst.IndentedBlock,  # noqa: ARG002
        updated_node: cst.IndentedBlock,
    ) -> cst.IndentedBlock:
        body, kept = _folded(updated_node.body)
        if not body and kept:
            body, kept = [cst.SimpleStatementLine([cst.Pass()], leading_lines=kept)], []
        return updated_node.with_changes(body=body, footer=[*kept, *updated_node.footer])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:  # noqa: ARG002
        body, kept = _folded(updated_node.body)
        return updated_node.with_changes(body=body, footer=[*kept, *updated_node.footer])


def _without_gone(line: _Simple) -> _Simple:
    left = [item for item in line.body if not isinstance(item, Gone)]
    if left and isinstance(line.body[-1], Gone):
        left[-1] = left[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return line.with_changes(body=left)


def _folded(body: Sequence[Any]) -> tuple[list[Any], list[cst.EmptyLine]]:
    """The lines of a block without the removed ones, and the comments of removed lines at its end."""
    left: list[Any] = []
    above: list[cst.EmptyLine] = []
    for line in body:
        if isinstance(line, cst.SimpleStatementLine) and all(isinstance(item, Gone) for item in line.body):
            above += line.leading_lines
        else:
            left.append(line.with_changes(leading_lines=[*above, *line.leading_lines]) if above else line)
            above = []
    return left, above


def dedented(with_: cst.With, first: int) -> cst.FlattenSentinel[cst.BaseStatement]:
    """A with block followed by its statements from `first` on; only these if the block would be empty."""
    if isinstance(with_.body, cst.SimpleStatementSuite):
        suite = with_.body
        left, moved = _split(cst.SimpleStatementLine(suite.body, (), suite.trailing_whitespace), first)
        body: cst.BaseSuite = cst.SimpleStatementSuite(left.body if left is not None else ())
        lines: list[Any] = [moved]
    else:
        block = cst.ensure_type(with_.body, cst.IndentedBlock)
        kept: list[Any] = []
        lines = []
        for line in block.body:
            if isinstance(line, cst.SimpleStatementLine) and 0 < first < len(line.body):
                left, moved = _split(line, first)
                kept, lines, first = [*kept, left], [moved], 0
            elif first > 0:
                kept.append(line)
                first -= len(line.body) if isinstance(line, cst.SimpleStatementLine) else 1
            else:
                lines.append(line)
        body = block.with_changes(body=kept, footer=())
        lines.append(cst.SimpleStatementLine([Gone()], block.footer))
    if body.body:
        return cst.FlattenSentinel([with_.with_changes(body=body), *lines])
    above = [*with_.leading_lines, *lines[0].leading_lines]
    return cst.FlattenSentinel([lines[0].with_changes(leading_lines=above), *lines[1:]])


def _split(
    line: cst.SimpleStatementLine, first: int
) -> tuple[cst.SimpleStatementLine | None, cst.SimpleStatementLine]:
    """The statements of a line before one, and those from it on with the comment after them."""
    if first == 0:
        return None, line
    *others, last = line.body[:first]
    left = [*others, last.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]
    return (
        line.with_changes(body=left, trailing_whitespace=cst.TrailingWhitespace()),
        line.with_changes(body=line.body[first:], leading_lines=()),
    )
