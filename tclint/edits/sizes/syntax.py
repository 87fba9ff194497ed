"""Helpers on Python syntax for edits of sizes: positions in characters, calls on a line, names in code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

Position: TypeAlias = "tuple[int, int]"
"""Line and column from 1, in characters."""

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow, ast.LShift)


# `UnrunCode` holds the trees of a project's files anyway, and asks for each of them again and again.
@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.Module:
    """The syntax tree of a file, empty if Python cannot read it. The tree is shared and must not be
    changed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def start_of(text: str, node: ast.expr | ast.stmt) -> Position:
    return _position(text, node.lineno, node.col_offset)


def end_of(text: str, node: ast.expr | ast.stmt) -> Position:
    """The end of a node, exclusive."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _position(text, node.end_lineno, node.end_col_offset)


def text_between(text: str, start: Position, end: Position) -> str:
    """The part of a text from one position up to another one."""
    lines = text.split("\n")[start[0] - 1 : end[0]]
    lines[-1] = lines[-1][: end[1] - 1]
    lines[0] = lines[0][start[1] - 1 :]
    return "\n".join(lines)


def _position(text: str, line: int, offset_bytes: int) -> Position:
    return line, len(_encoded(text)[line - 1][:offset_bytes].decode()) + 1


@lru_cache(maxsize=64)
def _encoded(text: str) -> list[bytes]:
    return [line.encode() for line in text.split("\n")]


def calls_on(text: str, line: int) -> list[ast.Call]:
    """The calls that start on a line, else the smallest call around it."""
    around = [
        node
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    starting = [node for node in around if node.lineno == line]
    return starting or sorted(around, key=lambda node: (node.end_lineno or 0) - node.lineno)[:1]


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name: `c` for `a.b.c`; '' for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    """The variables, attributes and keys that an expression reads."""
    found = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            found.add(item.id)
        elif isinstance(item, ast.Attribute):
            found.add(item.attr)
        elif isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value.isidentifier():
            found.add(item.value)
    return found


def constant(node: ast.expr) -> int | None:
    """The integer value of an expression that consists only of numbers; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        left, right = constant(node.left), constant(node.right)
        if left is None or right is None or not (0 <= right <= 64 or isinstance(node.op, ast.Add | ast.Mult)):
            return None
        operators = {
            ast.Add: left + right,
            ast.Sub: left - right,
            ast.Mult: left * right,
            ast.FloorDiv: left // right if right else None,
            ast.Pow: left**right if abs(left) <= 64 else None,
            ast.LShift: left << right if 0 <= right <= 64 else None,
        }
        return operators[type(node.op)]
    return None


Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


def functions(tree: ast.AST) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Every function of a file, and the class whose method it is."""
    pending: list[tuple[ast.AST, ast.ClassDef | None]] = [(tree, None)]
    while pending:
        node, owner = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, owner
                pending.append((child, None))
            else:
                pending.append((child, child if isinstance(child, ast.ClassDef) else owner))


def function_at(text: str, line: int) -> tuple[Function, ast.ClassDef | None] | None:
    """The innermost function around a line, and its class."""
    around = [
        (function, owner)
        for function, owner in functions(parsed(text))
        if function.lineno <= line <= (function.end_lineno or 0)
    ]
    return max(around, key=lambda item: item[0].lineno, default=None)


def locals_of(function: Function) -> set[str]:
    """The names that a function binds: its parameters and the names that it assigns."""
    given = function.args
    parameters = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return {item.arg for item in parameters if item is not None} | assigned_in(function)


def assigned_in(function: Function) -> set[str]:
    return {name for statement in function.body for name in stored_in(statement)}


def stored_in(node: ast.AST) -> Iterator[str]:
    return (
        item.id
        for item in ast.walk(node)
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store | ast.Del)
    )
