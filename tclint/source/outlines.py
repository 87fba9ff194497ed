"""What Python's own parser shows of a file, for rules whose triggers are common and findings rare.

It costs a tenth of a libcst tree and the tables made of it. An outline only ever says that a rule can find
nothing in a file; what it lets pass, the tables decide.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias, TypeVar

from tclint.rule import SourceRule

_PRODUCTS = ("matmul", "bmm", "einsum")
_MASKS = ("mask", "causal")
_LEAVES = frozenset(
    {*(str, bytes, bool, int, float, complex, type(None), type(...)), ast.Load, ast.Store, ast.Del}
)
_SIZES = ("in_features", "out_features")
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
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
        return frozenset(_names(self.nodes))

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether an identifier, in lower case, holds a match."""
        return any(pattern.search(name.lower()) for name in self.names)

    def of(self, kind: type[_Node]) -> Iterator[_Node]:
        """The nodes of a kind, in no particular order."""
        return (node for node in self.nodes if isinstance(node, kind))


def asked(rules: Sequence[SourceRule]) -> bool:
    """Whether outlines decide on the file: no rule wants its tables in any case."""
    return bool(rules) and all(type(rule).outline is not SourceRule.outline for rule in rules)


def plausible(rules: Sequence[SourceRule], data: bytes) -> list[SourceRule]:
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


def shares_inputs(outline: Outline) -> bool:
    """Whether some function calls two linear layers of `self`, whose sizes the file may tell, with the same
    variable."""
    layers = _sized_layers(outline)
    calls = [
        (node.lineno, node.func.attr, node.args[0].id)
        for node in outline.of(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in layers
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name)
    ]
    for function in outline.functions if calls else ():
        read_by: dict[str, str] = {}
        for line, layer, given in calls:
            if _holds(function, line) and read_by.setdefault(given, layer) != layer:
                return True
    return False


def _sized_layers(outline: Outline) -> set[str]:
    """Names of linear layers, less those whose sizes are parameters that nothing in the file passes."""
    aliases = {"Linear"}
    for imported in outline.of(ast.ImportFrom):
        aliases.update(name.asname or name.name for name in imported.names if name.name == "Linear")
    assignments = [
        (node, node.targets if isinstance(node, ast.Assign) else [node.target])
        for node in outline.nodes
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    for node, targets in assignments:
        if node.value is not None and _last(node.value) in aliases:
            aliases.update(map(_last, targets))
    used = {_last(node) for node in outline.nodes if isinstance(node, ast.Name | ast.Attribute)}
    classes = list(outline.of(ast.ClassDef))
    class_names = {node.name for node in classes}
    layers: set[str] = set()
    for node, targets in assignments:
        made = node.value
        if not isinstance(made, ast.Call) or _last(made.func) not in aliases:
            continue
        unknown: set[str] = set()
        inside = [function for function in outline.functions if _holds(function, node.lineno)]
        if inside:
            function = max(inside, key=lambda item: item.lineno)
            owners = [owner for owner in classes if function in owner.body]
            made_as = owners[0].name if owners and function.name == "__init__" else function.name
            if made_as not in used:
                unknown = _without_default(function.args, class_names)
        sizes = [*made.args[:2], *(item.value for item in made.keywords if item.arg in _SIZES)]
        if not any(unknown & set(_variables(size)) for size in sizes):
            layers.update(map(_last, targets))
    return layers


def _holds(function: _Function, line: int) -> bool:
    return function.lineno <= line <= (function.end_lineno or line)


def _without_default(arguments: ast.arguments, classes: set[str]) -> set[str]:
    """Parameters that only a caller can tell; a class of the file, as annotation, may tell its fields."""
    positional = [*arguments.posonlyargs, *arguments.args]
    found = positional[: len(positional) - len(arguments.defaults)]
    found += [
        item for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not value
    ]
    return {
        item.arg
        for item in found
        if item.arg != "self" and not (item.annotation and classes & set(_variables(item.annotation)))
    }


def _variables(value: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(value) if isinstance(node, ast.Name))


def writes_attention(outline: Outline) -> bool:
    """Whether some function takes the softmax of a product, to whose result nothing happened that rules the
    fused kernels out: nothing but a mask is added to it, and it is not kept or returned."""
    lines = [node.lineno for node in outline.of(ast.Call) if _is_softmax(node)]
    return any(
        _Products(function).open
        for function in outline.functions
        if any(_holds(function, line) for line in lines)
    )


class _Products:
    """Which products of a function become weights, by the names that hold them."""

    def __init__(self, function: _Function) -> None:
        self._held: dict[str, frozenset[int]] = {}
        self._weights: set[int] = set()
        self._lost: set[int] = set()
        self._number = 0
        self._statements(function.body)
        self.open = self._weights - self._lost

    def _statements(self, body: Iterable[ast.AST]) -> None:
        for statement in body:
            if isinstance(statement, _BLOCKS):
                continue
            match statement:
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, self._read(value))
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign([target], self._read(value))
                case ast.AugAssign(target=target, op=operator, value=value):
                    self._combined(operator, self._read(target), self._read(value), value)
                case ast.Return(value=ast.Tuple(elts=elements)):
                    for element in elements:
                        self._lost |= self._read(element)
                case ast.expr():
                    self._read(statement)
                case _:
                    self._statements(ast.iter_child_nodes(statement))

    def _assign(self, targets: Sequence[ast.expr], held: frozenset[int]) -> None:
        for target in targets:
            if isinstance(target, ast.Name):
                self._held[target.id] = held
            elif isinstance(target, ast.Attribute):
                self._lost |= held

    def _read(self, value: ast.expr) -> frozenset[int]:
        """The products whose scores or weights the value is, or may hold."""
        match value:
            case ast.Name(id=name):
                return self._held.get(name, frozenset())
            case ast.BinOp(left=left, op=operator, right=right):
                first, second = self._read(left), self._read(right)
                if isinstance(operator, ast.MatMult):
                    return self._product(first | second)
                return self._combined(operator, first, second, right if first else left)
            case ast.Call():
                held = self._parts(value)
                if _called(value) in _PRODUCTS:
                    return self._product(held)
                if _is_softmax(value):
                    self._weights |= held
                return held
            case _:
                return self._parts(value)

    def _parts(self, value: ast.AST) -> frozenset[int]:
        held: frozenset[int] = frozenset()
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.expr):
                held |= self._read(part)
            elif isinstance(part, ast.keyword):
                held |= self._read(part.value)
        return held

    def _product(self, held: frozenset[int]) -> frozenset[int]:
        """A new one, or the one that ends others."""
        if held:
            return frozenset()
        self._number += 1
        return frozenset((self._number,))

    def _combined(
        self, operator: ast.operator, first: frozenset[int], second: frozenset[int], other: ast.expr
    ) -> frozenset[int]:
        held = first | second
        if isinstance(operator, ast.Add | ast.Sub):
            said = " ".join(_names(ast.walk(other))).lower()
            added = isinstance(operator, ast.Add) and any(word in said for word in _MASKS)
            if (first and second) or not added or "bias" in said:
                self._lost |= held
        return held


def _all_nodes(tree: ast.Module) -> list[ast.AST]:
    """What ast.walk gives, but for loads and stores, in a third of its time."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows meanwhile
        for value in map(vars(node).get, node._fields):
            kind = type(value)
            if kind is list:
                nodes.extend(item for item in value if type(item) not in _LEAVES)  # type: ignore[union-attr]
            elif kind not in _LEAVES:
                nodes.append(value)  # type: ignore[arg-type]
    return nodes


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def _called(call: ast.Call) -> str:
    """The last name of what is called; of the layer where that is made in place."""
    return _last(call.func.func if isinstance(call.func, ast.Call) else call.func)


def _is_softmax(call: ast.Call) -> bool:
    return _called(call).lower().endswith(("softmax", "attend"))


def _last(value: ast.AST) -> str:
    """'Linear' of `nn.Linear`; empty for what has no name."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
