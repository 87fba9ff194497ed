"""The base class of codemods: it looks at one finding and records which nodes of its file change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import libcst as cst

from tclint.core.finding import Finding, Location
from tclint.edits.program import Line, Node, Program, Statement, is_name, names_in
from tclint.edits.statements import Gone, GoneWithComment, KeepsComments, dedented, has_comment

if TYPE_CHECKING:
    from libcst.codemod import CodemodContext


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument passed by that keyword."""
    return next((item for item in call.args if item.keyword is not None and item.keyword.value == name), None)


def positional(call: cst.Call) -> list[cst.Arg]:
    """The arguments without a keyword, including `*arguments`."""
    return [item for item in call.args if item.keyword is None and item.star != "**"]


def has_stars(call: cst.Call) -> bool:
    """Whether the call unpacks arguments with `*` or `**`."""
    return any(item.star for item in call.args)


def is_false(argument: cst.Arg | None) -> bool:
    return argument is not None and is_name(argument.value, "False")


def append_argument(call: cst.Call, code: str) -> cst.Call:
    """Add an argument behind the last one."""
    new = _argument(code)
    if not call.args:
        return call.with_changes(args=[new])
    *others, last = _in_parentheses(call).args
    before = others[-1].comma if others else None
    opening = before.whitespace_after if isinstance(before, cst.Comma) else call.whitespace_before_args
    trailing = last.comma if isinstance(last.comma, cst.Comma) else None
    closing = trailing.whitespace_after if trailing is not None else last.whitespace_after_arg
    between, closing = _item_whitespace(opening, closing)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between), whitespace_after_arg=_NOTHING)
    if trailing is not None and isinstance(closing, cst.ParenthesizedWhitespace):
        new = new.with_changes(comma=trailing.with_changes(whitespace_after=closing))
    else:
        new = new.with_changes(whitespace_after_arg=closing)
    return call.with_changes(args=[*others, last, new])


def prepend_argument(call: cst.Call, code: str) -> cst.Call:
    """Add an argument before the first one."""
    new = _argument(code)
    if call.args:
        between, _ = _item_whitespace(call.whitespace_before_args, _NOTHING)
        new = new.with_changes(comma=cst.Comma(whitespace_after=between))
    return call.with_changes(args=[new, *_in_parentheses(call).args])


def remove_argument(call: cst.Call, argument: cst.Arg) -> cst.Call:
    """Take one argument out with its comma."""
    left = [item for item in call.args if item is not argument]
    if not left:
        return call.with_changes(args=[], whitespace_before_args=_NOTHING)
    if argument is call.args[-1]:
        left[-1] = left[-1].with_changes(
            comma=argument.comma, whitespace_after_arg=argument.whitespace_after_arg
        )
    return call.with_changes(args=left)


def append_item(display: cst.Dict, code: str) -> cst.Dict:
    """Add an item behind the last one of a dict display that has some."""
    new = cst.ensure_type(cst.parse_expression(f"{{{code}}}"), cst.Dict).elements[0]
    *others, last = display.elements
    before = others[-1].comma if others else None
    opening = before.whitespace_after if isinstance(before, cst.Comma) else display.lbrace.whitespace_after
    between, closing = _item_whitespace(opening, display.rbrace.whitespace_before)
    if isinstance(last.comma, cst.Comma) and isinstance(closing, cst.ParenthesizedWhitespace):
        new = new.with_changes(comma=last.comma)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between))
    rbrace = display.rbrace.with_changes(whitespace_before=closing)
    return display.with_changes(elements=[*others, last, new], rbrace=rbrace)


_NOTHING = cst.SimpleWhitespace("")


def _argument(code: str) -> cst.Arg:
    return cst.ensure_type(cst.parse_expression(f"f({code})"), cst.Call).args[0]


def _in_parentheses(call: cst.Call) -> cst.Call:
    """The call with parentheses around a generator that is its only argument, as a second argument
    requires."""
    match call.args:
        case [cst.Arg(value=cst.GeneratorExp(lpar=[]) as bare) as argument]:
            alone = bare.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            return call.with_changes(args=[argument.with_changes(value=alone)])
    return call


def _item_whitespace(
    opening: cst.BaseParenthesizableWhitespace, closing: cst.BaseParenthesizableWhitespace
) -> tuple[cst.BaseParenthesizableWhitespace, cst.BaseParenthesizableWhitespace]:
    """The whitespace before a new last item, modelled on that before the old one, and that before the
    bracket.

    If items have lines of their own, a comment after the old last item stays with it.
    """
    if not isinstance(opening, cst.ParenthesizedWhitespace):
        return cst.SimpleWhitespace(" "), closing
    between = opening.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
    if isinstance(closing, cst.ParenthesizedWhitespace):
        between = between.with_changes(first_line=closing.first_line)
        closing = closing.with_changes(first_line=cst.TrailingWhitespace())
    return between, closing


Safety = Literal["safe", "unsafe"]
Replacement = cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] | cst.RemovalSentinel

CODEMODS: dict[str, type[Codemod]] = {}
"""Rule code -> codemod; filled when the modules of tclint.edits.codemods are imported."""

_Found = TypeVar("_Found")
_Class = TypeVar("_Class", bound="type[Codemod]")


def fixes(*codes: str) -> Callable[[_Class], _Class]:
    """Register a codemod for the findings of some rules."""

    def register(codemod: _Class) -> _Class:
        for code in codes:
            assert code not in CODEMODS, code
            CODEMODS[code] = codemod
        return codemod

    return register


class NotThere(Exception):
    """No node is where the rule saw one; the finding has only its advice then."""


class Codemod(KeepsComments):
    """Fixes one finding: `plan` inspects the tree and records changes, which libcst then makes.

    If nothing is recorded, the finding has only its advice. A codemod that is not sure of the place, or whose
    edit would not be what the author would write, simply returns.
    """

    safety: Safety = "unsafe"
    advice: str = ""
    """Advice that replaces the finding's, if the edit does less or more than it says."""

    def __init__(self, program: Program, finding: Finding) -> None:
        super().__init__()
        self.program, self.finding = program, finding
        self._changes: dict[cst.CSTNode, list[Callable[[cst.CSTNode], Replacement]]] = {}
        self._before: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self._after: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self._touched: set[cst.CSTNode] = set()
        """The nodes that change and those around them; no others are visited."""

    @cached_property
    def context(self) -> CodemodContext:
        """What libcst's own codemods need; few fixes use them, and they take long to import."""
        from libcst.codemod import CodemodContext

        return CodemodContext(filename=self.program.path, wrapper=self.program.wrapper)

    def plan(self) -> None:
        raise NotImplementedError

    def find(self, kind: type[Node]) -> Node | None:
        """The node of a kind at the finding's location."""
        return self.program.find(self.finding.location, kind)

    def calls(self, role: str) -> list[cst.Call]:
        """The calls in the file where the rule saw a role of the fix, in the rule's order."""
        return self._there(role, lambda place: self.program.find(place, cst.Call))

    def nodes(self, role: str) -> list[cst.CSTNode]:
        """The statements and expressions in the file where the rule saw a role of the fix."""
        return self._there(role, self.program.node_at)

    def lines(self, role: str) -> list[Line]:
        """The innermost statements in blocks of the file that are or contain those nodes."""
        return [line for node in self.nodes(role) if (line := self.program.line(node)) is not None]

    def _there(self, role: str, find: Callable[[Location], _Found | None]) -> list[_Found]:
        places = self.finding.fix.places.get(role, ()) if self.finding.fix is not None else ()
        found: list[_Found] = []
        for place in places:
            if place.path == self.program.path:
                node = find(place)
                if node is None:
                    raise NotThere
                found.append(node)
        return found

    def change_alike(self, change: Callable[[cst.Call], bool]) -> None:
        """Change the call at the finding's location and, if it can be changed, the others with the same
        problem in the file.

        Args:
            change: records the change of one call; False if it cannot be changed.
        """
        call = self.find(cst.Call)
        if call is None or not change(call):
            return
        for related in self.finding.related:
            if related.is_alike and related.location.path == self.finding.location.path:
                other = self.program.find(related.location, cst.Call)
                if other is not None:
                    change(other)

    # -- what a plan records

    def change(self, node: Node, make: Callable[[Node], Replacement]) -> None:
        """Replace a node by what `make` returns for it; `make` gets the node with the changes below it."""
        self._touch(node)
        self._changes.setdefault(node, []).append(make)  # type: ignore[arg-type]  # given that very node

    def rewrite(self, node: cst.CSTNode, new: str) -> None:
        """Replace an expression by another one."""
        self.change(node, lambda _: cst.parse_expression(new))

    def insert_before(self, statement: Statement, new: str | Line) -> None:
        """Insert a statement before another one in the same block."""
        self._insert(self._before, statement, new)

    def insert_after(self, statement: Statement, new: str | Line) -> None:
        """Insert a statement after another one in the same block."""
        self._insert(self._after, statement, new)

    def _insert(
        self, where: dict[cst.CSTNode, list[cst.CSTNode]], statement: Statement, new: str | Line
    ) -> None:
        line = self.parsed(new) if isinstance(new, str) else new
        own_line = self.program.own_line(statement)
        shared = self.program.parent(statement)
        # On a line `a; b`, a new line is possible only before the first and after the last statement.
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
        """Remove a simple statement; `pass` replaces it if it was the only one of its block.

        Comments in it and after it stay, unless `with_comments` is set.
        """
        if len(self.program.block(statement)) > 1:
            self.change(statement, lambda _: GoneWithComment() if with_comments else Gone())
        else:
            self.change(statement, lambda _: cst.Pass())

    def move(self, statement: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
        """Remove a statement and return it for insertion elsewhere, with the comment after it if it has its
        own line."""
        line = self.program.own_line(statement)
        self.remove(statement, with_comments=True)
        if isinstance(line, cst.SimpleStatementLine):
            return line.with_changes(leading_lines=())
        return cst.SimpleStatementLine([statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])

    def orphan_imports_of(self, node: cst.CSTNode) -> None:
        """Remove the imports of names that only a removed node uses; imports of modules stay."""
        if not self.program.imported_from_modules.isdisjoint(names_in(node)):
            from libcst.codemod.visitors import RemoveImportsVisitor

            RemoveImportsVisitor.remove_unused_import_by_node(self.context, node)

    def import_instead(self, module: str, new: str, old: str) -> None:
        """Import another name from a module, and no longer the old one if nothing else uses it."""
        from libcst.codemod.visitors import AddImportsVisitor, RemoveImportsVisitor

        AddImportsVisitor.add_needed_import(self.context, module, new)
        RemoveImportsVisitor.remove_unused_import(self.context, module, old)

    def dedent(self, with_: cst.With, first: int) -> bool:
        """Move the statements of a with block from `first` on to after the block.

        If that leaves the block empty, its header is removed too, unless it has a comment.
        """
        block = [with_.body.header] if isinstance(with_.body, cst.IndentedBlock) else []
        if first == 0 and any(map(has_comment, (*with_.items, *block))):
            return False
        self.change(with_, lambda with_: dedented(with_, first))
        return True

    def indent(self, lines: Sequence[Line], context: str) -> None:
        """Put successive statements of a block into a with block; comments above the first stay above it."""
        first, *others = lines
        block = cst.IndentedBlock([first.with_changes(leading_lines=()), *others])
        items = [cst.WithItem(cst.parse_expression(context))]
        self.change(first, lambda line: cst.With(items, block, leading_lines=line.leading_lines))
        for line in others:
            self.change(line, lambda _: cst.RemovalSentinel.REMOVE)

    def parsed(self, code: str) -> Line:
        """Parse a statement with the file's own indentation and line ends."""
        return cst.parse_statement(code, config=self.program.module.config_for_parsing)

    # -- how libcst makes it

    @property
    def changes_anything(self) -> bool:
        return bool(self._touched)

    @property
    def may_change_imports(self) -> bool:
        return "context" in vars(self)

    @property
    def changed(self) -> list[cst.CSTNode]:
        """The nodes for which changes were recorded."""
        return [*self._changes, *self._before, *self._after]

    def touches(self, node: cst.CSTNode | None) -> bool:
        """Whether a node or something in it changes."""
        return node in self._touched

    def made_of(self, block: cst.IndentedBlock | cst.Module) -> cst.IndentedBlock | cst.Module:
        """A block of the file's statements after the changes."""
        self._touched.add(block)
        return cst.ensure_type(block.visit(self), type(block))

    def forget(self) -> None:
        """Discard the recorded changes."""
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
    """Move the comments above a statement to above what is inserted before it, except directives for
    tclint."""
    above = list(old.leading_lines)
    directives = (
        index for index, line in enumerate(above) if line.comment and "tclint:" in line.comment.value
    )
    at = next(directives, len(above))
    return new.with_changes(leading_lines=above[:at]), old.with_changes(leading_lines=above[at:])
