"""Cuts padded outputs back to their old size where a method of the layer's class calls the layer.

The size is written as the expression that the layer got before the padding, never as a number that would be
right for only one instance of the class.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tclint.core.finding import Edit
from tclint.edits.sizes.syntax import (
    Function,
    assigned_in,
    constant,
    end_of,
    function_at,
    functions,
    last_name,
    locals_of,
    parsed,
    start_of,
    stored_in,
)


@dataclass(frozen=True, slots=True)
class Head:
    """A layer whose outputs are padded."""

    name: str
    """The attribute that holds it."""
    path: str
    """The file that constructs and calls it."""
    construct_line: int
    call_line: int
    axis: int
    """The axis of the outputs: -1 for the last one, else counted from the front."""
    size: str
    """The argument that gave its number of outputs."""

    def place(self, *lines: int) -> str:
        """Lines of its file as messages name them: 'net.py:12, 30'."""
        return f"{os.path.basename(self.path)}:{', '.join(map(str, lines))}"


class NoCut(Exception):
    """Raised if outputs cannot be cut back, with the reason as the end of 'it cannot be cut back: ...'; the
    reason is '' if an edit does not concern the outputs."""


def head_name(module_path: str) -> str:
    """The attribute by which a method calls a layer; for a layer in a sequence that of the sequence."""
    parts = [part for part in module_path.split(".") if not part.isdigit()]
    return parts[-1] if parts else ""


def cut_back(head: Head, text: str, *, contiguous: bool) -> tuple[Edit, ...]:
    """The edits that cut a layer's outputs back at every call in its class.

    Args:
        head: the layer.
        text: the text of its file.
        contiguous: whether callers may need contiguous tensors.

    Raises:
        NoCut: there are no calls, or no name for the size that all of them can read.
    """
    called, made = function_at(text, head.call_line), function_at(text, head.construct_line)
    if called is None or called[1] is None or not any(_own_calls(called[0], head.name)):
        raise NoCut(f"{head.place(head.call_line)} does not call it as self.{head.name}")
    owner = called[1]
    assigned = sorted({it.lineno for it in _assignments(owner, head.name)})
    if len(assigned) > 1:
        raise NoCut(f"{head.name} is assigned at {head.place(*assigned)}")
    size, added = _kept_size(head, text, owner, made)
    index = f"[..., :{size}]" if head.axis < 0 else f"[{':, ' * head.axis}:{size}]"
    index += ".contiguous()" if contiguous else ""
    edits = list(added)
    for call in _own_calls(owner, head.name):
        end = end_of(text, call)
        edits.append(Edit(head.path, end, end, index))
    return tuple(edits)


def _kept_size(
    head: Head, text: str, owner: ast.ClassDef, made: tuple[Function, ast.ClassDef | None] | None
) -> tuple[str, tuple[Edit, ...]]:
    """An expression for the size in every method of a class, and the edits that it needs."""
    node = ast.parse(f"({head.size})", mode="eval").body
    if constant(node) is not None:
        return head.size, ()
    root = _root(node)
    is_own = root == "self" and made is not None and made[1] is owner
    if is_own and len(_assignments(owner, head.size.split(".")[1])) <= 1:
        return head.size, ()
    if (
        isinstance(node, ast.Name)
        and _is_global(root, text)
        and not any(root in locals_of(one) for one in _own_functions(owner))
    ):
        return head.size, ()
    if made is None or made[1] is not owner or not made[0].args.args:
        raise NoCut(f"another class calls what {head.place(head.construct_line)} constructs")
    function = made[0]
    read = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    for earlier in () if read & assigned_in(function) else function.body:
        known = _kept_by(earlier, node)
        if known is not None and len(_assignments(owner, known.split(".")[1])) == 1:
            return known, ()
    line = head.construct_line
    nowhere = NoCut(f"no line that keeps {head.size} can be put before {head.place(line)}")
    statement = next((it for it in function.body if it.lineno <= line <= (it.end_lineno or 0)), None)
    if (
        statement is None
        or function.args.args[0].arg != "self"
        or read & set(stored_in(statement))
        or any(last_name(item) == "super" for item in ast.walk(statement))
    ):
        raise nowhere
    start = start_of(text, statement)
    indent = text.split("\n")[start[0] - 1][: start[1] - 1]
    attribute = f"unpadded_{last_name(node) or f'{head.name}_outputs'}"
    if indent.strip() or attribute in text:
        raise nowhere
    added = Edit(head.path, start, start, f"self.{attribute} = {head.size}\n{indent}")
    return f"self.{attribute}", (added,)


def _kept_by(statement: ast.stmt, size: ast.expr) -> str | None:
    """The attribute through which a statement keeps a size: with `self.config = config`, `config.classes` is
    `self.config.classes`; None if it does not keep it."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    [target] = statement.targets
    if not isinstance(target, ast.Attribute) or last_name(target.value) != "self":
        return None
    value, behind = ast.dump(statement.value), ""
    node: ast.expr | None = size
    while node is not None:
        if ast.dump(node) == value:
            return f"self.{target.attr}{behind}"
        behind = f".{last_name(node)}{behind}"
        node = node.value if isinstance(node, ast.Attribute) else None
    return None


def _is_own(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


def _own_calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call) and _is_own(item, name))


def _assignments(owner: ast.ClassDef, name: str) -> list[ast.Attribute]:
    return [
        item
        for item in ast.walk(owner)
        if isinstance(item, ast.Attribute)
        and item.attr == name
        and isinstance(item.ctx, ast.Store)
        and last_name(item.value) == "self"
    ]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_global(name: str, text: str) -> bool:
    """Whether a module binds a name exactly once and none of its functions rebinds it."""
    tree = parsed(text)
    bound = [
        item
        for statement in tree.body
        for item in _bound_by(statement)
        if item == name and not isinstance(statement, ast.FunctionDef | ast.ClassDef)
    ]
    changed = any(isinstance(item, ast.Global) and name in item.names for item in ast.walk(tree))
    return len(bound) == 1 and not changed


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((item.asname or item.name).partition(".")[0] for item in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (item.id for part in targets for item in ast.walk(part) if isinstance(item, ast.Name))
    else:
        yield from stored_in(statement)


def _own_functions(owner: ast.ClassDef) -> Iterator[Function]:
    return (function for function, _ in functions(owner))
