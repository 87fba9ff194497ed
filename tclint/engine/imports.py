"""Finds, from the text of a project's files, which files import each other; nothing is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache


def imported(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files and those that they import directly or indirectly.

    Args:
        texts: path -> text of a Python file.
        first: the files to begin with.
    """
    imports = _imports(texts)
    return _closure(first, lambda path: imports[path], texts)


def connected(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files, those that they import and those that import them, directly or indirectly."""
    imports = _imports(texts)
    importers: dict[str, set[str]] = {path: set() for path in texts}
    for path, others in imports.items():
        for other in others:
            importers[other].add(path)
    return _closure(first, lambda path: imports[path] | importers[path], texts)


def _closure(first: Iterable[str], leads_to: Callable[[str], set[str]], texts: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    following = {path for path in first if path in texts}
    while following:
        found |= following
        following = {other for path in following for other in leads_to(path)} - found
    return found


def _imports(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """File -> the files that it may import; all of them if a module may be several files."""
    by_last: dict[str, list[tuple[str, ...]]] = {}
    paths: dict[tuple[str, ...], str] = {}
    for path in texts:
        parts = tuple(os.path.splitext(path)[0].split(os.sep))
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        by_last.setdefault(parts[-1], []).append(parts)
        paths[parts] = path
    return {
        path: {
            paths[parts]
            for module in _modules(text)
            for parts in by_last.get(module[-1], ())
            if parts[-len(module) :] == module and paths[parts] != path
        }
        for path, text in texts.items()
    }


@lru_cache(maxsize=4096)
def _modules(text: str) -> frozenset[tuple[str, ...]]:
    """The dotted names in imports; `from a import b` gives `a` and `a.b`, since b may be a module.

    Kept: every fix of a model asks again for the files of its project.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    return frozenset(tuple(name.split(".")) for name in _names(tree) if name)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value.lstrip(".")
