"""What Python's own parser shows of a file, for rules whose triggers are common and findings rare.

It costs about a tenth of a libcst tree and the tables made of it (timm's levit, csatv2,
swin_transformer_v2_cr and tnt: 6 to 22 ms of CPU against 80 to 205, best of three). An outline only ever says
that a rule can find nothing in a file; what it lets pass, the tables decide.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar

_LEAVES = frozenset(
    {*(str, bytes, bool, int, float, complex, type(None), type(...)), ast.Load, ast.Store, ast.Del}
)


Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)


class Outline:
    """The syntax tree of one file; its nodes are listed once for all who ask."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = _all_nodes(tree)
        self.functions = [
            node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @cached_property
    def names(self) -> frozenset[str]:
        """Identifiers that the file reads, binds or takes as parameters."""
        return frozenset(names_in(self.nodes))

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether an identifier, in lower case, holds a match."""
        return any(pattern.search(name.lower()) for name in self.names)

    def of(self, kind: type[_Node]) -> Iterator[_Node]:
        """The nodes of a kind, in no particular order."""
        return (node for node in self.nodes if isinstance(node, kind))

    def discards(self, keyword: str) -> bool:
        """Whether a call with that keyword argument is a statement by itself."""
        statements = (node.value for node in self.of(ast.Expr))
        return any(
            given.arg == keyword
            for call in statements
            if isinstance(call, ast.Call)
            for given in call.keywords
        )


class AsksOutline(Protocol):
    """What is needed of a rule here: what an outline tells it."""

    @property
    def code(self) -> str: ...
    def outline(self, outline: Outline, /) -> bool: ...


_Rule = TypeVar("_Rule", bound=AsksOutline)


def always_plausible(_rule: object, _outline: Outline) -> bool:
    """The `outline` of rules that do not ask."""
    return True


def asked(rules: Sequence[AsksOutline]) -> bool:
    """Whether outlines decide on the file: no rule wants its tables in any case."""
    return bool(rules) and all(type(rule).outline is not always_plausible for rule in rules)


def plausible(rules: Sequence[_Rule], data: bytes) -> list[_Rule]:
    """The rules that can find something in a file, which is only looked at if no rule wants it anyway."""
    if not asked(rules):
        return list(rules)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's, about its escapes
            outline = Outline(ast.parse(data))
        return [rule for rule in rules if rule.outline(outline)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return list(rules)  # of another version of Python, or none: who reads it next says so


def _all_nodes(tree: ast.Module) -> list[ast.AST]:
    """What ast.walk gives, but for loads and stores, without a generator for every node."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows meanwhile
        for value in map(vars(node).get, node._fields):
            kind = type(value)
            if kind is list:
                nodes.extend(item for item in value if type(item) not in _LEAVES)  # type: ignore[union-attr]
            elif kind not in _LEAVES:
                nodes.append(value)  # type: ignore[arg-type]
    return nodes


def holds(function: Definition, line: int) -> bool:
    """Whether a line is one of a function's."""
    return function.lineno <= line <= (function.end_lineno or line)


def names_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Identifiers that the nodes read, bind or take as parameters."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def last_name(value: ast.AST) -> str:
    """'Linear' of `nn.Linear`; empty for what has no name."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
