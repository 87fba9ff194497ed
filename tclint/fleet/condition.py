"""`--where`: which points of a grid count, as arithmetic on their arguments and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tclint.core.errors import UsageError, closest

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Condition:
    """A condition on numbers by name: 'width % heads == 0 and width <= 64 * heads'.

    Raises:
        UsageError: the text is more than names, numbers, arithmetic, comparisons, and, or, not.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            self._check(self._tree)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._refused("cannot be read") from None

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether it is true of these values.

        Raises:
            UsageError: a name is missing or stands for no number, or it divides by zero.
        """
        try:
            return bool(self._value(self._tree, values))
        except ZeroDivisionError:
            shown = ", ".join(f"{name}={value}" for name, value in values.items())
            raise self._refused(f"divides by zero at {shown}") from None

    def _check(self, tree: ast.expr) -> None:
        """Refuse what is not evaluated, before anything is."""
        if isinstance(tree, ast.BoolOp):
            parts = tree.values
        elif isinstance(tree, ast.UnaryOp) and type(tree.op) in _SIGNS:
            parts = [tree.operand]
        elif isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
            parts = [tree.left, tree.right]
        elif isinstance(tree, ast.Compare) and all(type(sign) in _COMPARISONS for sign in tree.ops):
            parts = [tree.left, *tree.comparators]
        elif _name(tree) or (isinstance(tree, ast.Constant) and _is_number(tree.value)):
            return
        else:
            raise self._refused(f"has {ast.unparse(tree)!r}, which is not evaluated")
        for part in parts:
            self._check(part)

    def _value(self, tree: ast.expr, values: Mapping[str, object]) -> Any:
        if isinstance(tree, ast.BoolOp):
            parts = (self._value(part, values) for part in tree.values)
            return all(parts) if isinstance(tree.op, ast.And) else any(parts)
        if isinstance(tree, ast.UnaryOp):
            return _SIGNS[type(tree.op)](self._value(tree.operand, values))
        if isinstance(tree, ast.BinOp):
            left, right = self._value(tree.left, values), self._value(tree.right, values)
            return _ARITHMETIC[type(tree.op)](left, right)
        if isinstance(tree, ast.Compare):
            left = self._value(tree.left, values)
            for sign, part in zip(tree.ops, tree.comparators, strict=True):
                right = self._value(part, values)
                if not _COMPARISONS[type(sign)](left, right):
                    return False
                left = right
            return True
        name = _name(tree)
        if name:
            return self._named(name, values)
        assert isinstance(tree, ast.Constant)
        return tree.value

    def _named(self, name: str, values: Mapping[str, object]) -> object:
        if name not in values:
            near = closest(name, list(values)) or f" The arguments are {', '.join(values)}."
            raise self._refused(f"names {name!r}, which is no argument of this sweep", near)
        if not _is_number(values[name]):
            raise self._refused(f"uses {name!r}, which is no number")
        return values[name]

    def _refused(self, why: str, hint: str = "") -> UsageError:
        hint = hint or " Write numbers and arguments with + - * / // %, comparisons, and, or, not."
        return UsageError(f"--where {self._text!r} {why}.{hint}")


def _name(tree: ast.expr) -> str:
    """The argument that 'width' or 'config.n_layer' names, '' for what is no name."""
    if isinstance(tree, ast.Attribute):
        before = _name(tree.value)
        return f"{before}.{tree.attr}" if before else ""
    return tree.id if isinstance(tree, ast.Name) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
