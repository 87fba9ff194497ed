"""Recognises arguments that the user wrote out, which is a choice that advice respects."""

from __future__ import annotations

import ast
import os
from functools import lru_cache

from tclint.graph.ops import Site


def asks_for_bias(site: Site | None) -> bool:
    """Whether all calls on a line that make convolutions or linear layers pass `bias=True`."""
    if site is None:
        return False
    try:
        changed_ns = os.stat(site.path).st_mtime_ns
    except OSError:
        return False  # the graph is from another machine, or the file is a cell of a notebook
    choices = [
        explicit for first, last, explicit in _layers(site.path, changed_ns) if first <= site.line <= last
    ]
    return bool(choices) and all(choices)


@lru_cache(maxsize=64)
def _layers(path: str, _changed_ns: int) -> tuple[tuple[int, int, bool], ...]:
    """First line, last line and whether `bias=True` is written, of each call that makes such a layer."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno, _says_true(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func).startswith(("Conv", "LazyConv", "Linear"))
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _says_true(call: ast.Call) -> bool:
    return any(
        item.arg == "bias" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in call.keywords
    )
