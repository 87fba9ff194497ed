"""One parsed file with libcst's metadata: the positions of nodes and the nodes around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache, cached_property
from typing import TypeAlias, TypeGuard, TypeVar, cast

import libcst as cst
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    PositionProvider,
    QualifiedNameSource,
    ScopeProvider,
)

from tclint.core.finding import Location
from tclint.edits.texts import lines_of
from tclint.source.syntax.expressions import dotted_name
from tclint.source.syntax.parse import parse_tree

Node = TypeVar("Node", bound=cst.CSTNode)
Statement: TypeAlias = cst.BaseSmallStatement | cst.BaseCompoundStatement
Line: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement
"""An item of a block."""

SCOPES = (cst.FunctionDef, cst.Lambda, cst.ClassDef)
LOOPS = (cst.For, cst.While)


class Program:
    """A file's text, its tree and the metadata that all its codemods share."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        # No node occurs twice in a parsed tree, so the wrapper need not copy the tree.
        self.wrapper = MetadataWrapper(parse_tree(text), unsafe_skip_copy=True)
        self.module = self.wrapper.module
        self._of_kind: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}
        self._indices: dict[cst.CSTNode | None, dict[cst.CSTNode, int]] = {}

    # -- where nodes are

    def start(self, node: cst.CSTNode) -> tuple[int, int]:
        """The line, from 1, and column, from 0, of a node without the parentheses around it."""
        at = self.wrapper.resolve(PositionProvider)[node].start
        return at.line, at.column

    def contains(self, node: cst.CSTNode, position: tuple[int, int]) -> bool:
        """Whether a position is in the text of a node."""
        end = self.wrapper.resolve(PositionProvider)[node].end
        return self.start(node) <= position < (end.line, end.column)

    def line_number(self, node: cst.CSTNode) -> int:
        return self.start(node)[0]

    @cached_property
    def _by_position(self) -> dict[tuple[int, int], list[tuple[cst.CSTNode, tuple[int, int]]]]:
        """Start -> the nodes that begin there with their ends, inner ones first."""
        found: dict[tuple[int, int], list[tuple[cst.CSTNode, tuple[int, int]]]] = {}
        for node, span in self.wrapper.resolve(PositionProvider).items():
            end = (span.end.line, span.end.column)
            found.setdefault((span.start.line, span.start.column), []).append((node, end))
        return found

    def find(self, location: Location, kind: type[Node]) -> Node | None:
        """The node of a kind exactly at a location; the outermost one if the location has no end."""
        return next((node for node in self._at(location) if isinstance(node, kind)), None)

    def statement_at(self, location: Location) -> Statement | None:
        """The statement at a location, or with a call there."""
        at = (node for node in self._at(location) if isinstance(node, cst.BaseSmallStatement | cst.Call))
        node = next(at, None)
        return self.statement(node) if node is not None else None

    def node_at(self, location: Location) -> cst.CSTNode | None:
        """The outermost expression or statement exactly at a location; a small statement, not its line."""
        return next(
            (node for node in self._at(location) if not isinstance(node, cst.SimpleStatementLine)), None
        )

    def _at(self, location: Location) -> Iterator[cst.CSTNode]:
        """The nodes exactly at a location, outer ones first; of any length if the location has no end."""
        end = None
        if location.path != self.path:
            return iter(())
        if location.end_line is not None and location.end_column is not None:
            end = (location.end_line, location.end_column - 1)
        at = self._by_position.get((location.line, location.column - 1), ())
        return (node for node, its_end in reversed(at) if end in (None, its_end))

    # -- what stands around them

    @cached_property
    def _parents(self) -> dict[int, cst.CSTNode]:
        """Id of a node -> its parent, for every node but the module; faster than libcst's provider."""
        return {id(part): node for node in self._nodes for part in _parts(node)}

    @cached_property
    def _nodes(self) -> list[cst.CSTNode]:
        return _below(self.module)

    def every(self, kind: type[Node], root: cst.CSTNode | None = None) -> list[Node]:
        """The nodes of a kind at and below one, in the file without one; those of different statements in
        the order of the text."""
        if root is not None and root is not self.module:
            return find_all(root, kind)
        if kind not in self._of_kind:
            self._of_kind[kind] = [node for node in self._nodes if isinstance(node, kind)]
        return cast("list[Node]", self._of_kind[kind])

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(id(node))

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around it, innermost first."""
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def statement(self, node: cst.CSTNode) -> Statement | None:
        """The innermost statement that is or contains a node; a small statement itself, not its line."""
        for outer in (node, *self.ancestors(node)):
            if isinstance(outer, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return outer
        return None

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """The innermost function, lambda or class around a node, else the module."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, SCOPES)), self.module)

    def enclosing(self, statement: Statement) -> cst.CSTNode | None:
        """The compound statement, clause or module whose block contains a statement."""
        outer = self.parent(statement)
        if isinstance(outer, cst.SimpleStatementLine):
            outer = self.parent(outer)
        return outer if isinstance(outer, cst.Module | None) else self.parent(outer)

    def block(self, statement: Statement) -> list[Statement]:
        """The statements of the block that contains a statement."""
        outer = self.parent(statement)
        if isinstance(outer, cst.SimpleStatementLine):
            outer = self.parent(outer)
        return statements_of(outer) if isinstance(outer, cst.BaseSuite | cst.Module) else [statement]

    def before(self, statement: Statement) -> list[Statement]:
        """The statements of its block before one."""
        block = self.block(statement)
        return block[: index_of(block, statement)]

    def behind(self, statement: Statement) -> list[Statement]:
        """The statements of its block after one."""
        block = self.block(statement)
        return block[index_of(block, statement) + 1 :]

    def own_line(self, statement: Statement) -> Line | None:
        """The line of a small statement that is alone on it, or a compound statement itself; else None."""
        if isinstance(statement, cst.BaseCompoundStatement):
            return statement
        line = self.parent(statement)
        return line if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None

    def line(self, node: cst.CSTNode) -> Line | None:
        """The innermost statement in a block that is or contains a node; None for blocks themselves."""
        for outer in (node, *self.ancestors(node)):
            if isinstance(outer, cst.SimpleStatementLine | cst.BaseCompoundStatement) and isinstance(
                self.parent(outer), cst.IndentedBlock | cst.Module
            ):
                return outer
        return None

    def index(self, line: Line) -> int:
        """The index of a statement in its block."""
        block = self.parent(line)
        if block not in self._indices:
            self._indices[block] = {statement: index for index, statement in enumerate(_body(block))}
        return self._indices[block][line]

    def body(self, line: Line) -> Sequence[Line]:
        """The statements of the block that one is in."""
        return _body(self.parent(line))

    def lines_beside(self, line: Line) -> Sequence[Line]:
        """The statements next to one in its block."""
        index = self.index(line)
        return self.body(line)[max(index - 1, 0) : index + 2]

    def first_line(self, line: Line) -> int:
        """The line, from 0, where the comments above a statement begin."""
        decorators = getattr(line, "decorators", ())
        at = self.start(decorators[0] if decorators else line)[0]
        return at - 1 - len(line.leading_lines)

    # -- what the text is like

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines with their ends; the last one has none."""
        return lines_of(self.text)

    @cached_property
    def can_be_written(self) -> bool:
        """Whether the tree reproduces the text exactly; libcst loses form feeds right before a statement."""
        return self.module.code == self.text

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, including the parentheses around it."""
        return self.module.code_for_node(node)

    @cached_property
    def quote(self) -> str:
        """The quotation mark that most of the text's strings use."""
        marks = [string.quote[0] for string in self.every(cst.SimpleString)]
        return "'" if marks.count("'") > marks.count('"') else '"'

    @cached_property
    def torch(self) -> str | None:
        """The module's name for torch; None if it does not import torch at its top level."""
        for alias in self.every(cst.ImportAlias):
            statement = self.parent(alias)
            if isinstance(statement, cst.Import) and self.enclosing(statement) is self.module:
                if alias.evaluated_name == "torch":
                    return alias.evaluated_alias or "torch"
                if alias.evaluated_name.startswith("torch.") and alias.asname is None:
                    return "torch"
        return None

    def name_of(self, module: str) -> str | None:
        """The name for one of torch's modules, such as `F` or `torch.nn.functional`, at the top level."""
        for alias in self.every(cst.ImportAlias):
            statement = self.parent(alias)
            assert isinstance(statement, cst.Import | cst.ImportFrom)
            if isinstance(statement, cst.Import) and alias.asname is None:
                continue  # it binds only the first part of the name
            if self.enclosing(statement) is self.module and imported_name(statement, alias) == module:
                return alias.evaluated_alias or alias.evaluated_name
        return f"{self.torch}{module.removeprefix('torch')}" if self.torch else None

    def qualified(self, node: cst.CSTNode) -> str:
        """The full name of an imported name: 'torch.nn.functional.nll_loss' for `F.nll_loss`; '' for others,
        or if it is ambiguous."""
        scope = self.wrapper.resolve(ScopeProvider).get(node)
        # libcst also takes `torch.sigmoid(x).squeeze` for a name.
        names = scope.get_qualified_names_for(node) if scope is not None and dotted_name(node) else set()
        if len(names) != 1:
            return ""
        (found,) = names
        return found.name if found.source is QualifiedNameSource.IMPORT else ""

    def is_used_outside(self, name: str, nodes: Iterable[cst.CSTNode]) -> bool:
        """Whether code outside the nodes refers to a name that the module body binds."""
        scope = self.wrapper.resolve(ScopeProvider)[self.module]
        inner = set(nodes)
        return scope is not None and any(
            access.node not in inner and inner.isdisjoint(self.ancestors(access.node))
            for assignment in scope[name]
            for access in assignment.references
        )

    @property
    def names(self) -> set[str]:
        """The identifiers in the file."""
        return {node.value for node in self.every(cst.Name)}

    @cached_property
    def imported_from_modules(self) -> frozenset[str]:
        """The names that `from module import name` binds anywhere in the file."""
        aliases = (
            alias
            for statement in self.every(cst.ImportFrom)
            if not isinstance(statement.names, cst.ImportStar)
            for alias in statement.names
        )
        return frozenset(alias.evaluated_alias or alias.evaluated_name for alias in aliases)

    def loads(self, root: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
        """The places at and below a node that read a dotted name."""
        return self._mentions(root, name, ExpressionContext.LOAD)

    def stores(self, root: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
        """The places at and below a node that bind a dotted name."""
        return self._mentions(root, name, ExpressionContext.STORE)

    def stored_in(self, root: cst.CSTNode) -> list[str]:
        """The dotted names bound at and below a node, one for every place."""
        contexts = self.wrapper.resolve(ExpressionContextProvider)
        return [
            dotted_name(node)
            for node in (*self.every(cst.Name, root), *self.every(cst.Attribute, root))
            if contexts.get(node) is ExpressionContext.STORE
        ]

    def _mentions(self, root: cst.CSTNode, name: str, context: ExpressionContext) -> list[cst.BaseExpression]:
        contexts = self.wrapper.resolve(ExpressionContextProvider)
        return [
            node
            for node in self.every(cst.Attribute if "." in name else cst.Name, root)
            if dotted_name(node) == name
            if contexts.get(node) is context and not self._is_keyword(node)
        ]

    def is_in_import(self, node: cst.CSTNode) -> bool:
        return any(isinstance(outer, cst.Import | cst.ImportFrom) for outer in self.ancestors(node))

    def _is_keyword(self, node: cst.CSTNode) -> bool:
        outer = self.parent(node)
        return isinstance(outer, cst.Arg) and outer.keyword is node

    def assigned(self, name: str) -> list[cst.Assign]:
        """Every assignment in the file to a dotted name."""
        return [
            made
            for made in self.every(cst.Assign)
            if any(dotted_name(to.target) == name for to in made.targets)
        ]


def _body(block: cst.CSTNode | None) -> Sequence[Line]:
    return block.body if isinstance(block, cst.IndentedBlock | cst.Module) else ()  # type: ignore[return-value]


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _parts(node: cst.CSTNode) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(part for part in value if isinstance(part, cst.CSTNode))
    return found


def _below(root: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes at and below one; the statements in the order of the text."""
    found: list[cst.CSTNode] = []
    waiting = [root]
    while waiting:
        found.append(node := waiting.pop())
        waiting.extend(reversed(_parts(node)))
    return found


def find_all(root: cst.CSTNode, kind: type[Node]) -> list[Node]:
    """The nodes of a kind at and below one, those of different statements in the order of the text.

    libcst's own search takes far longer: its visitors make every node anew.
    """
    return [node for node in _below(root) if isinstance(node, kind)]


def names_in(root: cst.CSTNode) -> set[str]:
    """The identifiers at and below a node."""
    return {node.value for node in find_all(root, cst.Name)}


def imported_name(statement: cst.Import | cst.ImportFrom, alias: cst.ImportAlias) -> str:
    """The full name of an import: 'torch.cuda.amp.autocast' for `from torch.cuda.amp import autocast`."""
    if isinstance(statement, cst.Import):
        return alias.evaluated_name
    return f"{dotted_name(statement.module) if statement.module else ''}.{alias.evaluated_name}"


def is_name(node: object, *names: str) -> TypeGuard[cst.Name]:
    return isinstance(node, cst.Name) and node.value in names


def is_attribute(node: object, *names: str) -> TypeGuard[cst.Attribute]:
    """Whether a node is `something.name` with one of the names."""
    return isinstance(node, cst.Attribute) and node.attr.value in names


def is_constant(node: object) -> bool:
    return isinstance(node, cst.BaseNumber | cst.SimpleString) or is_name(node, "True", "False", "None")


def statements_of(block: cst.BaseSuite | cst.Module) -> list[Statement]:
    """The statements of a block; those that share a line count one by one."""
    found: list[Statement] = []
    for item in block.body:
        if isinstance(item, cst.SimpleStatementLine):
            found.extend(item.body)
        elif isinstance(item, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            found.append(item)
    return found


def index_of(block: list[Statement], statement: cst.CSTNode) -> int:
    return next(index for index, item in enumerate(block) if item is statement)
