"""Finds, from the text of a project's files, which files import each other; nothing is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache

_FEW = 20
"""Names that a text is searched for; of more, most texts hold one."""


def imported(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files and those that they import directly or indirectly.

    Args:
        texts: path -> text of a Python file.
        first: the files to begin with.
    """
    imports = _imports(texts)
    found: set[str] = set()
    following = {path for path in first if path in texts}
    while following:
        found |= following
        following = {other for path in following for other in imports(path)} - found
    return found


def connected(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files, those that they import and those that import them, directly or indirectly."""
    imports = _imports(texts)
    importers: dict[str, set[str]] = {path: set() for path in texts}
    unread = set(texts)
    found: set[str] = set()
    following = {path for path in first if path in texts}
    while following:
        found |= following
        # Parsing takes most of the time, and who imports a file names it.
        names = {_module_of(path)[-1] for path in following}
        naming = {path for path in unread if len(names) > _FEW or any(name in texts[path] for name in names)}
        unread -= naming
        for path in naming:
            for other in imports(path):
                importers[other].add(path)
        following = {other for path in following for other in imports(path) | importers[path]} - found
    return found


def _imports(texts: Mapping[str, str]) -> Callable[[str], set[str]]:
    """A function that finds the files that one may import; all of them if a module may be several files."""
    by_last: dict[str, list[tuple[str, ...]]] = {}
    paths: dict[tuple[str, ...], str] = {}
    for path in texts:
        parts = _module_of(path)
        by_last.setdefault(parts[-1], []).append(parts)
        paths[parts] = path

    @cache
    def imports(path: str) -> set[str]:
        return {
            paths[parts]
            for module in _modules(texts[path])
            for parts in by_last.get(module[-1], ())
            if parts[-len(module) :] == module and paths[parts] != path
        }

    return imports


def _module_of(path: str) -> tuple[str, ...]:
    parts = tuple(os.path.splitext(path)[0].split(os.sep))
    return parts[:-1] if parts[-1] == "__init__" else parts


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
