"""The source of methods, as syntax trees."""

from __future__ import annotations

import ast
import inspect
import operator
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST_FILE = 1 << 20


def parsed_file(path: str) -> ast.Module:
    """The syntax tree of a file; an empty one where it cannot be read."""
    try:
        if os.path.getsize(path) <= _LARGEST_FILE:
            return ast.parse(Path(path).read_bytes())  # builtins.open may be replaced by now
    except (OSError, SyntaxError, ValueError):
        pass
    return ast.Module([], [])


def function_of(method: Any) -> ast.FunctionDef | None:
    """The definition of a function or method, where its source can be read."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(method)))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def globals_of(method: Any) -> Mapping[str, Any]:
    """What the names stand for that a function or method finds in its module."""
    found: Mapping[str, Any] = getattr(inspect.unwrap(method), "__globals__", {})
    return found


def first_name(function: ast.FunctionDef) -> str:
    """What a method calls its object: 'self', mostly."""
    return function.args.args[0].arg if function.args.args else ""


def called(node: ast.expr) -> str:
    """The name of the function or method that an expression calls; empty for other expressions."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def argument_names_of(module: nn.Module) -> list[str]:
    """What a layer of PyTorch calls its inputs; of other layers, nothing."""
    return list(inspect.signature(type(module).forward).parameters)[1:] if is_torchs(module) else []


def is_torchs(module: nn.Module) -> bool:
    """Whether its forward is PyTorch's, be it inherited; that of a scripted layer is no function."""
    forward = inspect.getattr_static(type(module), "forward", None)
    return inspect.isfunction(forward) and package_of(forward.__module__) == "torch"


def package_of(module_name: str | None) -> str:
    """The outermost package of a module; of functions made by `exec`, which have no module, ''."""
    return (module_name or "").partition(".")[0]
