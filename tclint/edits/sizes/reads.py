"""Nodes of syntax trees with the nodes around them, and the role of a size's name for its readers."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tclint.edits.sizes.candidates import FileLine
from tclint.edits.sizes.syntax import constant, last_name, parsed
from tclint.edits.sizes.written import Written

_PARTICULAR = re.compile(
    r"^(view|reshape|unflatten|chunk|split|load|rearrange)$|Attention|GroupNorm|Transformer|Shuffle"
)
"""Calls that accept only some sizes."""


@dataclass(frozen=True, slots=True)
class Read:
    """A node of code that the trace did not run, with the nodes around it."""

    path: str
    node: ast.AST
    around: tuple[ast.AST, ...]
    """The enclosing nodes, outermost first."""

    @property
    def place(self) -> FileLine:
        return self.path, getattr(self.node, "lineno", 0)

    @property
    def parent(self) -> ast.AST:
        return self.around[-1]

    @property
    def owner(self) -> str:
        """The name of the class around it; '' if there is none."""
        return next((node.name for node in reversed(self.around) if isinstance(node, ast.ClassDef)), "")

    @property
    def is_own(self) -> bool:
        """Whether it is an attribute of self."""
        base = getattr(self.node, "value", None)
        return isinstance(base, ast.Name) and base.id == "self"


def is_particular(read: Read) -> bool:
    """Whether an expression uses a size in a way that not every size allows."""
    for node in reversed(read.around):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div):
            return True
        if isinstance(node, ast.JoinedStr):
            return True
        if isinstance(node, ast.Compare) and any(
            constant(item) is not None for item in (node.left, *node.comparators)
        ):
            return True
        if isinstance(node, ast.Call) and _PARTICULAR.search(last_name(node.func)):
            return True
        if isinstance(node, ast.stmt):
            return False
    return False


def nodes(path: str, tree: ast.AST, skipped: Collection[int]) -> Iterator[Read]:
    """All nodes of a file, except in functions with these ids."""
    pending: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
    while pending:
        node, around = pending.pop()
        if id(node) in skipped:
            continue
        if around:
            yield Read(path, node, around)
        pending.extend((child, (*around, node)) for child in ast.iter_child_nodes(node))


def targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[str]:
    """The last parts of the names that an assignment binds."""
    found = set()
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for item in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
            found.add(last_name(item))
    return found - {""}


def kind_of(written: Written, text: str) -> str:
    """The kind of name that a number is bound to: a constant, a key or field, or a parameter of a
    function."""
    if not written.path.endswith(".py"):
        return "key"
    tree = parsed(text)
    line = written.start[0]
    for statement in tree.body:
        if not statement.lineno <= line <= (statement.end_lineno or 0):
            continue
        if isinstance(statement, ast.Assign | ast.AnnAssign) and written.name in targets(statement):
            return "constant"
        for node in ast.walk(statement):
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.Assign | ast.AnnAssign) and item.lineno == line:
                        return "key"
            elif isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
                if last_name(node.func) in ("add_argument", "option", "get", "pop", "setdefault", "getattr"):
                    return "key"
            elif isinstance(node, ast.Dict) and node.lineno <= line <= (node.end_lineno or 0):
                keys = [getattr(key, "value", None) for key in node.keys]
                if written.name in keys:
                    return "key"
    return "parameter"
