"""One walk over a libcst tree that fills the tables. Only this module, its bases and parse.py know libcst.

The walk dispatches on the class of a node itself instead of using libcst's visitors: those rebuild every
node on the way, which costs more than parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import libcst as cst

from tclint.source.syntax.expressions import OPERATORS, ExpressionReader, base_name, dotted_name
from tclint.source.syntax.tables import (
    Call,
    Definition,
    Discard,
    Expression,
    Import,
    Jump,
    Literal,
    Name,
    Other,
    Return,
    Tables,
    WithItem,
)


def walk(module: cst.Module) -> tuple[Tables, list[cst.CSTNode]]:
    """The tables of a module, and the node that each node id stands for."""
    walker = _Walker()
    walker.module(module)
    tables = Tables(
        functions=tuple(scope.frozen() for scope in walker.scopes),
        identifiers=frozenset(walker.identifiers),
        node_ids=len(walker.nodes),
    )
    return tables, walker.nodes


class _Walker(ExpressionReader):
    """Reads statements."""

    def module(self, node: cst.Module) -> None:
        self._enter("module", "", node)
        self._statements(node.body)

    def _statements(self, body: Sequence[cst.CSTNode]) -> None:
        handlers = self._statement_handlers
        for node in body:
            handler = handlers.get(type(node))
            if handler is not None:
                handler(self, node)

    def _suite(self, node: cst.BaseSuite) -> Callable[[], None]:
        return lambda: self._statements(node.body)

    def _simple_line(self, node: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> None:
        self._statements(node.body)

    def _if(self, node: cst.If) -> None:
        statement = self._new_statement()
        condition = self._read(node.test)
        self._in_block("if", node, self._suite(node.body), statement, condition=condition)
        orelse = node.orelse
        if isinstance(orelse, cst.If):
            chained = orelse
            self._in_block("else", orelse, lambda: self._if(chained), statement, condition=condition)
        elif isinstance(orelse, cst.Else):
            self._in_block("else", orelse, self._suite(orelse.body), statement, condition=condition)

    def _for(self, node: cst.For) -> None:
        iterated = self._read(node.iter)
        statement = self._new_statement()

        def body() -> None:
            self._bind(node.target, Other("iterate", (iterated,)), node.target)
            self._statements(node.body.body)

        self._in_block("loop", node, body, statement)
        if node.orelse is not None:
            self._in_block("loop_else", node.orelse, self._suite(node.orelse.body), statement)

    def _while(self, node: cst.While) -> None:
        statement = self._new_statement()
        condition = self._read(node.test)
        self._in_block("loop", node, self._suite(node.body), statement, condition=condition)
        if node.orelse is not None:
            self._in_block("loop_else", node.orelse, self._suite(node.orelse.body), statement)

    def _with(self, node: cst.With) -> None:
        self._with_items(node, node.items, self._new_statement())

    def _with_items(self, node: cst.With, items: Sequence[cst.WithItem], statement: int) -> None:
        """`with a, b:` means `with a: with b:`; one block per item keeps the order of entering."""
        if not items:
            self._statements(node.body.body)
            return
        item = items[0]
        value = self._read(item.item)
        target = item.asname.name if item.asname is not None else None
        name = dotted_name(target) if target is not None else ""
        node_id = self._node_id(item)

        def body() -> None:
            if target is not None:
                self._bind(target, Other("enter", (value,)), item)
            self._with_items(node, items[1:], statement)

        self._in_block("with", node, body, statement, items=(WithItem(value, name, node_id),))

    def _try(self, node: cst.Try | cst.TryStar) -> None:
        statement = self._new_statement()
        self._in_block("try", node, self._suite(node.body), statement)
        for handler in node.handlers:
            if handler.type is not None:
                self._read(handler.type)
            self._in_block("except", handler, self._suite(handler.body), statement)
        if node.orelse is not None:
            self._in_block("try_else", node.orelse, self._suite(node.orelse.body), statement)
        if node.finalbody is not None:
            self._in_block("finally", node.finalbody, self._suite(node.finalbody.body), statement)

    def _match(self, node: cst.Match) -> None:
        subject = self._read(node.subject)
        statement = self._new_statement()
        for case in node.cases:
            guard = self._read(case.guard) if case.guard is not None else None

            def body(case: cst.MatchCase = case) -> None:
                names = tuple(_captured_names(case.pattern))
                if names:
                    self._assigned(names, Other("iterate", (subject,)), case.pattern)
                self._statements(case.body.body)

            self._in_block("case", case, body, statement, condition=guard)

    def _function(self, node: cst.FunctionDef) -> None:
        decorators = tuple(self._read(decorator.decorator) for decorator in node.decorators)
        parameters = self._parameters(node.params)
        outer = self.scope
        scope = self._enter("function", node.name.value, node.name)
        scope.decorators, scope.parameters = decorators, parameters
        self.identifiers.add(node.name.value)
        outer.events.append(Definition(scope.index, outer.block))
        self._statements(node.body.body)
        self._leave(scope)

    def _class(self, node: cst.ClassDef) -> None:
        decorators = tuple(self._read(decorator.decorator) for decorator in node.decorators)
        bases = tuple(self._read(base.value) for base in node.bases)
        for keyword in node.keywords:
            self._read(keyword.value)
        outer = self.scope
        scope = self._enter("class", node.name.value, node.name)
        scope.decorators, scope.bases = decorators, bases
        self.identifiers.add(node.name.value)
        outer.events.append(Definition(scope.index, outer.block))
        self._statements(node.body.body)
        self._leave(scope)

    def _expr(self, node: cst.Expr) -> None:
        value = node.value
        # A docstring or a comment in quotes says nothing about the program.
        if not isinstance(value, cst.SimpleString | cst.ConcatenatedString):
            found = self._read(value)
            if isinstance(found, Call):
                self.scope.events.append(Discard(found.node_id, self.scope.block))

    def _assign(self, node: cst.Assign) -> None:
        value = self._read(node.value)
        for target in node.targets:
            self._bind(target.target, value, node)

    def _ann_assign(self, node: cst.AnnAssign) -> None:
        annotation = self._read(node.annotation.annotation)
        if node.value is not None:
            self._bind(node.target, self._read(node.value), node)
        elif self.scope.kind == "class":
            self._bind(node.target, Other("declared", (annotation,)), node)

    def _aug_assign(self, node: cst.AugAssign) -> None:
        value = self._read(node.value)
        operator = OPERATORS.get(type(node.operator), "?")
        target = self._read(node.target)
        if isinstance(target, Name):
            self._assigned((target.dotted,), value, node, operator)
        else:
            self._assigned((base_name(target),), value, node, operator, into=target)

    def _return(self, node: cst.Return) -> None:
        value: Expression = self._read(node.value) if node.value is not None else Literal(None)
        self.scope.events.append(Return(value, self.scope.block, self._node_id(node)))

    def _raise(self, node: cst.Raise) -> None:
        if node.exc is not None:
            self._read(node.exc)
        self._jump("raise")

    def _jump(self, kind: str) -> None:
        self.scope.events.append(Jump(kind, self.scope.block))

    def _assert(self, node: cst.Assert) -> None:
        self._read(node.test)

    def _del(self, node: cst.Del) -> None:
        self._read(node.target)

    def _global(self, node: cst.Global | cst.Nonlocal) -> None:
        self.scope.outer_names.update(item.name.value for item in node.names)

    def _import(self, node: cst.Import) -> None:
        node_id = self._node_id(node)
        for alias in node.names:
            qualified = dotted_name(alias.name)
            if alias.asname is not None:
                self._imported(dotted_name(alias.asname.name), qualified, node_id)
            else:
                # `import torch.cuda.amp` binds `torch`.
                root = qualified.split(".", 1)[0]
                self._imported(root, root, node_id)
            self.identifiers.update(qualified.split("."))

    def _import_from(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + (dotted_name(node.module) if node.module is not None else "")
        self.identifiers.update(part for part in module.split(".") if part)
        node_id = self._node_id(node)
        if isinstance(node.names, cst.ImportStar):
            self._imported("*", module, node_id)
            return
        for alias in node.names:
            name = dotted_name(alias.name)
            separator = "" if module.endswith(".") else "."
            bound = dotted_name(alias.asname.name) if alias.asname is not None else name
            self._imported(bound, f"{module}{separator}{name}", node_id)
            self.identifiers.add(name)

    def _imported(self, name: str, qualified: str, node_id: int) -> None:
        self.identifiers.add(name)
        self.scope.imports.append(Import(name, qualified, self.scope.block, node_id))

    _statement_handlers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        cst.SimpleStatementLine: _simple_line,
        cst.SimpleStatementSuite: _simple_line,
        cst.If: _if,
        cst.For: _for,
        cst.While: _while,
        cst.With: _with,
        cst.Try: _try,
        cst.TryStar: _try,
        cst.FunctionDef: _function,
        cst.ClassDef: _class,
        cst.Match: _match,
        cst.Expr: _expr,
        cst.Assign: _assign,
        cst.AnnAssign: _ann_assign,
        cst.AugAssign: _aug_assign,
        cst.Return: _return,
        cst.Import: _import,
        cst.ImportFrom: _import_from,
        cst.Raise: _raise,
        cst.Break: lambda self, _: self._jump("break"),
        cst.Continue: lambda self, _: self._jump("continue"),
        cst.Global: _global,
        cst.Nonlocal: _global,
        cst.Assert: _assert,
        cst.Del: _del,
    }
    """Functions, not bound methods: a reader in a cycle would keep the tree until it is collected."""


def _captured_names(pattern: cst.CSTNode) -> list[str]:
    names = []
    if isinstance(pattern, cst.MatchAs | cst.MatchStar) and pattern.name is not None:
        names.append(pattern.name.value)
    for child in pattern.children:
        names.extend(_captured_names(child))
    return names
