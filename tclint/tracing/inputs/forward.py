"""What a forward says in its source: its arguments, which of them it needs, and its syntax tree."""

from __future__ import annotations

import ast
import inspect
import operator
import os
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from torch import nn

from tclint.core.search_path import MARKS_OR_README

_IMAGES = re.compile(r"imgs?|images?|pixel_values")


def are_texts(name: str) -> bool:
    """Whether an argument of that name holds the tokens of a text."""
    return re.fullmatch(r"texts?|captions?|tokens|input_ids", name) is not None


def parameters_of(model: nn.Module) -> dict[str, inspect.Parameter]:
    """The parameters of the model's forward by name; none where Python cannot tell."""
    try:
        return dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return {}


def required_arguments(model: nn.Module) -> list[str]:
    """Names of the arguments that an input has to be found for."""
    parameters = list(parameters_of(model).values())
    if not parameters:
        try:
            inspect.signature(model.forward)
        except (TypeError, ValueError):
            return ["input"]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        # `forward(self, *inputs)` and `forward(self, x=None)` mostly want an input all the same.
        names = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
        # The encoders of a model of pictures and texts, each of which may be left out.
        both = len(names) > 1 and _IMAGES.fullmatch(names[0]) and are_texts(names[1])
        required = names[: 2 if both else 1]
    return required


ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


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


def is_torchs(module: nn.Module) -> bool:
    """Whether its forward is PyTorch's, be it inherited; that of a scripted layer is no function."""
    forward = inspect.getattr_static(type(module), "forward", None)
    return inspect.isfunction(forward) and package_of(forward.__module__) == "torch"


def package_of(module_name: str | None) -> str:
    """The outermost package of a module; of functions made by `exec`, which have no module, ''."""
    return (module_name or "").partition(".")[0]


_LEVELS = 2
"""Folders above the model's that may hold the script that trains it."""


def project_folders(own: str) -> list[str]:
    """The model's folder and those above it within its project; it alone where no project is to be seen."""
    folders = [own]
    for _ in range(_LEVELS):
        if _is_project(folders[-1]):
            return folders
        folders.append(os.path.join(folders[-1], ".."))
    return folders if _is_project(folders[-1]) else [own]


def _is_project(folder: str) -> bool:
    return any(os.path.exists(os.path.join(folder, mark)) for mark in MARKS_OR_README)
