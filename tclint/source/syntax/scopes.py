"""The scope under construction while a tree is walked: blocks, events, node ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from tclint.source.syntax.tables import (
    Assignment,
    Block,
    BlockKind,
    Event,
    Expression,
    Function,
    Import,
    Parameter,
    WithItem,
)


@dataclass(slots=True)
class Scope:
    """A Function under construction."""

    index: int
    kind: Any
    name: str
    qualified_name: str
    parent: int
    node_id: int
    parameters: tuple[Parameter, ...] = ()
    decorators: tuple[Expression, ...] = ()
    bases: tuple[Expression, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    outer_names: set[str] = field(default_factory=set)
    block: int = 0

    def frozen(self) -> Function:
        return Function(
            index=self.index,
            kind=self.kind,
            name=self.name,
            qualified_name=self.qualified_name,
            parent=self.parent,
            node_id=self.node_id,
            parameters=self.parameters,
            decorators=self.decorators,
            bases=self.bases,
            blocks=tuple(self.blocks),
            events=tuple(self.events),
            imports=tuple(self.imports),
            outer_names=frozenset(self.outer_names),
        )


class Builder:
    """Keeps the stack of scopes and numbers the node ids."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.nodes: list[cst.CSTNode] = []
        self.identifiers: set[str] = set()
        self.scope: Scope = None  # type: ignore[assignment]  # set by the first _enter
        self.statements = 0

    def _node_id(self, node: cst.CSTNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _enter(self, kind: str, name: str, node: cst.CSTNode) -> Scope:
        parent = self.scope.index if self.scopes else -1
        prefix = self.scope.qualified_name if self.scopes else ""
        scope = Scope(
            index=len(self.scopes),
            kind=kind,
            name=name,
            qualified_name=f"{prefix}.{name}" if prefix else name,
            parent=parent,
            node_id=self._node_id(node),
        )
        scope.blocks.append(Block("body", -1, scope.node_id, -1))
        self.scopes.append(scope)
        self.scope = scope
        return scope

    def _leave(self, scope: Scope) -> None:
        self.scope = self.scopes[scope.parent]

    def _in_block(
        self,
        kind: BlockKind,
        node: cst.CSTNode,
        body: Callable[[], None],
        statement: int,
        *,
        condition: Expression | None = None,
        items: tuple[WithItem, ...] = (),
    ) -> None:
        scope, outer = self.scope, self.scope.block
        scope.blocks.append(Block(kind, outer, self._node_id(node), statement, condition, items))
        scope.block = len(scope.blocks) - 1
        body()
        scope.block = outer

    def _new_statement(self) -> int:
        self.statements += 1
        return self.statements

    def _assigned(
        self,
        targets: tuple[str, ...],
        value: Expression,
        node: cst.CSTNode,
        operator: str = "",
        unpacked: bool = False,
        into: Expression | None = None,
    ) -> None:
        scope = self.scope
        scope.events.append(
            Assignment(targets, value, scope.block, self._node_id(node), operator, unpacked, into)
        )
