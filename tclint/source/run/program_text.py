"""Mistakes in the program of a project's own table, of which the rules would only be silent."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator, Mapping

from tclint.core.errors import closest
from tclint.core.units import plural

MARKS = (
    "@accumulation", "@adapters", "@autocast", "@chosen", "@clips unfused", "@compiled", "@device", "@dtype",
    "@exchange", "@length", "@managed", "@masters", "@normalizes", "@packed", "@packing", "@precision",
    "@quantized", "@said", "@scaler", "@settings", "@sharded", "@spelling", "@steps itself", "@stored",
    "@toggled", "@training", "@unscale",
)  # fmt: skip
"""What `mark` notes; library/README.md says what each is for."""

SUMMARY: Mapping[str, tuple[int, float]] = {
    "allowed": (2, 2), "composed": (2, 2), "filled": (2, 2), "given": (0, 0), "instantiated": (2, 2),
    "launched": (3, 3), "literal": (1, 1), "loaded": (2, 2), "mark": (1, 3), "merged": (1, math.inf),
    "opened": (2, 3), "outside": (1, 3), "passed": (4, 4),
}  # fmt: skip
"""The functions of `tclint.summary` -> the least and the most arguments."""

_SUMMARY = "tclint.summary"
_EVERYWHERE = frozenset([*dir(builtins), "__name__", "__file__", "__class__"])


def mistakes(text: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong there) of a program that is valid Python."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # of a newer Python than the one that runs
        return
    imported = {
        alias.asname or alias.name: (alias.name, node.lineno)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == _SUMMARY
        for alias in node.names
    }
    for name, line in imported.values():
        if name not in SUMMARY:
            yield line, f"{_SUMMARY} has no {name!r}.{closest(name, tuple(SUMMARY))}"
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            name = imported[node.func.id][0]
            yield from ((node.lineno, problem) for problem in _of_call(name, node) if name in SUMMARY)
    bound = {name for node in nodes for name in _bound_by(node)}
    for node in nodes if "*" not in bound else ():
        if isinstance(node, ast.Name) and node.id not in bound and node.id not in _EVERYWHERE:
            yield node.lineno, f"nothing defines {node.id!r}.{closest(node.id, tuple(sorted(bound)))}"


def _of_call(name: str, call: ast.Call) -> Iterator[str]:
    """The problems of a call of one of the functions."""
    least, most = SUMMARY[name]
    if call.keywords:
        yield f"{name} takes its arguments by position alone."
    elif not any(isinstance(item, ast.Starred) for item in call.args):
        if not least <= len(call.args) <= most or (name == "mark" and len(call.args) == 2):
            wanted = "a thing, the name of a field and a value" if name == "mark" else _several(least, most)
            yield f"{name} takes {wanted}."
        elif name == "mark" and len(call.args) == 3:
            field = call.args[1]
            known = field.value if isinstance(field, ast.Constant) else None
            if known not in MARKS:
                yield f"mark has no field {ast.unparse(field)}.{closest(str(known), MARKS)}"


def _several(least: int, most: float) -> str:
    if most == math.inf:
        return f"{least} or more arguments"
    return plural(least, "argument") if least == most else f"{least} to {most} arguments"


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, in whatever scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest
