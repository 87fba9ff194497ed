"""`--where`: which points of a grid count, as arithmetic on their arguments and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tclint.core.errors import UsageError, closest

_EVALUATED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.Constant,
)  # fmt: skip


class Condition(ast.NodeTransformer):
    """A condition on numbers by name: 'width % heads == 0 and width <= 64 * heads'.

    Raises:
        UsageError: the text is more than names, numbers, arithmetic, comparisons, and, or, not.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: dict[str, None] = {}
        try:
            tree = ast.parse(text.strip(), mode="eval")
            tree.body = self.visit(tree.body)
            self._code = compile(tree, "--where", "eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._refused("cannot be read") from None

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether it is true of these values.

        Raises:
            UsageError: a name is missing or stands for no number, or it divides by zero.
        """
        for name in self._names:
            if name not in values:
                near = closest(name, list(values)) or f" The arguments are {', '.join(values)}."
                raise self._refused(f"names {name!r}, which is no argument of this sweep", near)
            if not isinstance(values[name], int | float):
                raise self._refused(f"uses {name!r}, which is no number")
        try:
            return bool(eval(self._code, {"__builtins__": {}}, dict(values)))
        except ZeroDivisionError:
            shown = ", ".join(f"{name}={value}" for name, value in values.items())
            raise self._refused(f"divides by zero at {shown}") from None

    def visit(self, node: ast.AST) -> Any:
        """The tree with 'config.n_layer' as one name; what may not be evaluated is refused."""
        name = _name(node)
        if name:
            self._names[name] = None
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        parts = [node, *getattr(node, "ops", ()), getattr(node, "op", node)]
        is_number = not isinstance(node, ast.Constant) or isinstance(node.value, int | float)
        if not is_number or not all(isinstance(part, _EVALUATED) for part in parts):
            raise self._refused(f"has {ast.unparse(node)!r}, which is not evaluated")
        return self.generic_visit(node)

    def _refused(self, why: str, hint: str = "") -> UsageError:
        hint = hint or " Write numbers and arguments with + - * / // %, comparisons, and, or, not."
        return UsageError(f"--where {self._text!r} {why}.{hint}")


def _name(tree: ast.AST) -> str:
    """The argument that 'width' or 'config.n_layer' names, '' for what is no name."""
    if isinstance(tree, ast.Attribute):
        before = _name(tree.value)
        return f"{before}.{tree.attr}" if before else ""
    return tree.id if isinstance(tree, ast.Name) else ""
