"""Outlines of files in which attention may be written out (written_attention.py decides)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from tclint.source.syntax.outlines import Definition, Outline, holds, last_name, names_in

MASKS = ("mask", "causal")
"""In names of what may be added to scores."""
_PRODUCTS = ("matmul", "bmm", "einsum")
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def writes_attention(outline: Outline) -> bool:
    """Whether some function takes the softmax of a product, to whose result nothing happened that rules the
    fused kernels out: nothing but a mask is added to it, and it is not kept or returned."""
    lines = [node.lineno for node in outline.of(ast.Call) if _is_softmax(node)]
    return any(
        _Products(function).open
        for function in outline.functions
        if any(holds(function, line) for line in lines)
    )


class _Products:
    """Which products of a function become weights, by the names that hold them."""

    def __init__(self, function: Definition) -> None:
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
            said = " ".join(names_in(ast.walk(other))).lower()
            added = isinstance(operator, ast.Add) and any(word in said for word in MASKS)
            if (first and second) or not added or "bias" in said:
                self._lost |= held
        return held


def _called(call: ast.Call) -> str:
    """The last name of what is called; of the layer where that is made in place."""
    return last_name(call.func.func if isinstance(call.func, ast.Call) else call.func)


def _is_softmax(call: ast.Call) -> bool:
    return _called(call).lower().endswith(("softmax", "attend"))
