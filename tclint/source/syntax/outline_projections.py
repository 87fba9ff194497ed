"""Outlines of files in which linear layers may read the same input (shared_inputs.py decides)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tclint.source.syntax.outlines import Outline, holds, last_name

_SIZES = ("in_features", "out_features")


def shares_inputs(outline: Outline) -> bool:
    """Whether some function calls two linear layers of `self`, whose sizes the file may tell, with the same
    variable."""
    layers = _sized_layers(outline)
    calls = [
        (node.lineno, node.func.attr, node.args[0].id)
        for node in outline.of(ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in layers
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name)
    ]
    for function in outline.functions if calls else ():
        read_by: dict[str, str] = {}
        for line, layer, given in calls:
            if holds(function, line) and read_by.setdefault(given, layer) != layer:
                return True
    return False


def _sized_layers(outline: Outline) -> set[str]:
    """Names of linear layers, less those whose sizes are parameters that nothing in the file passes."""
    aliases = {"Linear"}
    for imported in outline.of(ast.ImportFrom):
        aliases.update(name.asname or name.name for name in imported.names if name.name == "Linear")
    assignments = [
        (node, node.targets if isinstance(node, ast.Assign) else [node.target])
        for node in outline.nodes
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    for node, targets in assignments:
        if node.value is not None and last_name(node.value) in aliases:
            aliases.update(map(last_name, targets))
    used = {last_name(node) for node in outline.nodes if isinstance(node, ast.Name | ast.Attribute)}
    classes = list(outline.of(ast.ClassDef))
    class_names = {node.name for node in classes}
    layers: set[str] = set()
    for node, targets in assignments:
        made = node.value
        if not isinstance(made, ast.Call) or last_name(made.func) not in aliases:
            continue
        unknown: set[str] = set()
        inside = [function for function in outline.functions if holds(function, node.lineno)]
        if inside:
            function = max(inside, key=lambda item: item.lineno)
            owners = [owner for owner in classes if function in owner.body]
            made_as = owners[0].name if owners and function.name == "__init__" else function.name
            if made_as not in used:
                unknown = _without_default(function.args, class_names)
        sizes = [*made.args[:2], *(item.value for item in made.keywords if item.arg in _SIZES)]
        if not any(unknown & set(_variables(size)) for size in sizes):
            layers.update(map(last_name, targets))
    return layers


def _without_default(arguments: ast.arguments, classes: set[str]) -> set[str]:
    """Parameters that only a caller can tell; a class of the file, as annotation, may tell its fields."""
    positional = [*arguments.posonlyargs, *arguments.args]
    found = positional[: len(positional) - len(arguments.defaults)]
    found += [
        item for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not value
    ]
    return {
        item.arg
        for item in found
        if item.arg != "self" and not (item.annotation and classes & set(_variables(item.annotation)))
    }


def _variables(value: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(value) if isinstance(node, ast.Name))
