"""The base class of codemods: it looks at one finding and records which nodes of its file change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import libcst as cst
from libcst.codemod import CodemodContext, ContextAwareTransformer

from tclint.core.finding import Finding
from tclint.edits.program import Line, Node, Program, Statement
from tclint.edits.statements import Gone, GoneWithComment, KeepsComments, dedented, has_comment

Safety = Literal["safe", "unsafe"]
Replacement = cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] | cst.RemovalSentinel

CODEMODS: dict[str, type[Codemod]] = {}
"""By rule code; filled when the modules of tclint.edits.codemods are imported."""

_Class = TypeVar("_Class", bound="type[Codemod]")


def fixes(*codes: str) -> Callable[[_Class], _Class]:
    """Register a codemod for the findings of some rules."""

    def register(codemod: _Class) -> _Class:
        for code in codes:
            assert code not in CODEMODS, code
            CODEMODS[code] = codemod
        return codemod

    return register


class Codemod(KeepsComments, ContextAwareTransformer):
    """Fixes one finding. `plan` looks at the tree and records changes; libcst then makes them.

    Where nothing is recorded the finding keeps its advice alone: a codemod that is not sure of the place,
    or whose edit would not be what the author would write, just returns.
    """

    safety: Safety = "unsafe"
    advice: str = ""
    """Where the edit does less or more than the finding's own advice says."""

    def __init__(self, program: Program, finding: Finding) -> None:
        super().__init__(CodemodContext(filename=program.path, wrapper=program.wrapper))
        self.program, self.finding = program, finding
        self._changes: dict[cst.CSTNode, list[Callable[[cst.CSTNode], Replacement]]] = {}
        self._before: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self._after: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self._touched: set[cst.CSTNode] = set()
        """Nodes that change, and those around them: nothing else is visited."""

    def plan(self) -> None:
        raise NotImplementedError

    def find(self, kind: type[Node]) -> Node | None:
        """The node of a kind that the finding stands at."""
        return self.program.find(self.finding.location, kind)

    # -- what a plan records

    def change(self, node: Node, make: Callable[[Node], Replacement]) -> None:
        """Put what is made of a node, with the changes below it, in its place."""
        self._touch(node)
        self._changes.setdefault(node, []).append(make)  # type: ignore[arg-type]  # given that very node

    def rewrite(self, node: cst.CSTNode, new: str) -> None:
        """Put another expression in the place of one."""
        self.change(node, lambda _: cst.parse_expression(new))

    def insert_before(self, statement: Statement, new: str | Line) -> None:
        """Put a statement before another one of the same block."""
        self._insert(self._before, statement, new)

    def insert_after(self, statement: Statement, new: str | Line) -> None:
        """Put a statement behind another one of the same block."""
        self._insert(self._after, statement, new)

    def _insert(
        self, where: dict[cst.CSTNode, list[cst.CSTNode]], statement: Statement, new: str | Line
    ) -> None:
        line = self.parsed(new) if isinstance(new, str) else new
        own_line = self.program.own_line(statement)
        shared = self.program.parent(statement)
        # `a; b`: before the first and behind the last there is a line of its own.
        end = 0 if where is self._before else -1
        if isinstance(shared, cst.SimpleStatementLine) and shared.body[end] is statement:
            own_line = shared
        place = own_line or statement
        self._touch(place)
        if own_line is not None:
            where.setdefault(place, []).append(line)
        else:
            assert isinstance(line, cst.SimpleStatementLine), "a block does not fit behind a semicolon"
            where.setdefault(place, []).extend(line.body)

    def remove(self, statement: cst.BaseSmallStatement, *, with_comments: bool = False) -> None:
        """Take a simple statement out; `pass` takes its place where it was the only one of its block.

        Comments in it and behind it stay, unless they go `with_comments`.
        """
        if len(self.program.block(statement)) > 1:
            self.change(statement, lambda _: GoneWithComment() if with_comments else Gone())
        else:
            self.change(statement, lambda _: cst.Pass())

    def move(self, statement: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
        """Take a statement out to put it elsewhere, with the comment behind it where it has its own line."""
        line = self.program.own_line(statement)
        self.remove(statement, with_comments=True)
        if isinstance(line, cst.SimpleStatementLine):
            return line.with_changes(leading_lines=())
        return cst.SimpleStatementLine([statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])

    def dedent(self, with_: cst.With, first: int) -> bool:
        """Move the statements from `first` on out of a with block, behind it.

        Where that leaves it empty its header goes as well: not where it has a comment.
        """
        block = [with_.body.header] if isinstance(with_.body, cst.IndentedBlock) else []
        if first == 0 and any(map(has_comment, (*with_.items, *block))):
            return False
        self.change(with_, lambda with_: dedented(with_, first))
        return True

    def parsed(self, code: str) -> Line:
        """A statement in the file's own indentation and line ends."""
        return cst.parse_statement(code, config=self.program.module.config_for_parsing)

    # -- how libcst makes it

    @property
    def changes_anything(self) -> bool:
        return bool(self._touched)

    def forget(self) -> None:
        """Take back what was recorded."""
        for record in (self._changes, self._before, self._after, self._touched):
            record.clear()

    def _touch(self, node: cst.CSTNode) -> None:
        self._touched.update((node, *self.program.ancestors(node)))

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node in self._touched

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        if original_node not in self._touched:
            return updated_node
        node: Replacement = super().on_leave(original_node, updated_node)
        for make in self._changes.get(original_node, ()):
            assert isinstance(node, cst.CSTNode)
            node = make(node)
        before, after = self._before.get(original_node, []), self._after.get(original_node, [])
        if not before and not after:
            return node
        around: list[Any] = [*node] if isinstance(node, cst.FlattenSentinel) else [node]
        if before and isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            before[0], around[0] = _with_comments_above(before[0], around[0])
        return cst.FlattenSentinel([*before, *around, *after])


def _with_comments_above(new: Any, old: Any) -> tuple[Any, Any]:
    """Comments above a statement go above what is put before it, but for what tclint is told about it."""
    above = list(old.leading_lines)
    directives = (
        index for index, line in enumerate(above) if line.comment and "tclint:" in line.comment.value
    )
    at = next(directives, len(above))
    return new.with_changes(leading_lines=above[:at]), old.with_changes(leading_lines=above[at:])
