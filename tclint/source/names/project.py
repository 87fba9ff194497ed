"""Definitions in other files of the project, found through imports; nothing is run.

A file is read when a rule asks about something that is imported from it, whether or not it was named on
the command line, and is parsed once per content.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from tclint.config.settings import Settings
from tclint.source.syntax.parse import Parsed
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES
from tclint.source.syntax.tables import Function, Tables

_LEVELS = 6
"""Folders to go up from a file for the root of its imports."""
_REEXPORTS = 3


class FileView(Protocol):
    """What is handed out for a file of the project."""

    @property
    def tables(self) -> Tables: ...


View_co = TypeVar("View_co", bound=FileView, covariant=True)


class Project(Generic[View_co]):
    """The project as one file of it sees it.

    Args:
        view: makes what is handed out for a file, from its absolute path and what was parsed of it.
    """

    def __init__(
        self, path: str, settings: Settings, view: Callable[[str, Parsed, Settings], View_co]
    ) -> None:
        self._path = path
        self._settings = settings
        self._view = view

    def definition(
        self, qualified: str, holding: tuple[bytes, ...] = (), depth: int = _REEXPORTS
    ) -> tuple[View_co, Function] | None:
        """The function or class of that name, and its file.

        Args:
            qualified: as `Resolver.qualified` gives it, relative imports with their dots.
            holding: only in files that hold one of these tokens; others are not parsed.
            depth: how many packages may hand the name on.

        Returns:
            None when no file of the project defines it.
        """
        module, _, name = qualified.rpartition(".")
        if qualified.startswith(".") and not module.strip("."):
            module = qualified[: len(qualified) - len(qualified.lstrip("."))]
        path = self._file_of(module) if module else None
        if path is None or depth <= 0:
            return None
        parsed = _parsed(path, holding, self._settings.cache)
        if parsed is None:
            return None
        file = self._view(path, parsed, self._settings)
        found = file.tables.children.get(0, {}).get(name, ())
        if found:
            return file, file.tables.functions[found[-1]]
        inside = Project(path, self._settings, self._view)
        # A package that hands on what one of its modules defines.
        for item in file.tables.module.imports:
            if item.name == name:
                return inside.definition(item.qualified, holding, depth - 1)
        for item in file.tables.module.imports:
            if item.name == "*":
                handed_on = inside.definition(f"{item.qualified}.{name}", holding, depth - 1)
                if handed_on is not None:
                    return handed_on
        return None

    def module(self, name: str) -> View_co | None:
        """A module of the project by its name, relative ones with their dots; None when it has none such."""
        path = self._file_of(name)
        return self.context_of(path) if path is not None else None

    def context_of(self, path: str) -> View_co | None:
        """Another file; None where it is too large or not Python."""
        parsed = _parsed(path, (), self._settings.cache)
        return self._view(path, parsed, self._settings) if parsed is not None else None

    def _file_of(self, module: str) -> str | None:
        """The file of a module; None when the project has none."""
        relative = module.lstrip(".")
        parts = [part for part in relative.split(".") if part]
        folder = os.path.dirname(os.path.abspath(self._path))
        dots = len(module) - len(relative)
        if dots:
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            return _module_file(folder, parts)
        for _ in range(_LEVELS):
            found = _module_file(folder, parts)
            if found is not None:
                return found
            parent = os.path.dirname(folder)
            if parent == folder or os.path.exists(os.path.join(folder, ".git")):
                return None
            folder = parent
        return None


def _module_file(folder: str, parts: list[str]) -> str | None:
    base = os.path.join(folder, *parts)
    for candidate in (base + ".py" if parts else "", os.path.join(base, "__init__.py")):
        if candidate and os.path.isfile(candidate):
            return candidate
    return None


def _parsed(path: str, holding: tuple[bytes, ...], cached: bool) -> Parsed | None:
    try:
        if os.stat(path).st_size > MAX_SOURCE_BYTES:
            return None
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    is_package = os.path.basename(path) == "__init__.py"
    if holding and not is_package and not any(token in data for token in holding):
        return None
    return _parse(data, cached)


def parsed_bytes(data: bytes, cached: bool) -> Parsed | None:
    """What was parsed of a file's bytes; None where they are not Python."""
    return _parse(data, cached)


@lru_cache(maxsize=64)
def _parse(data: bytes, cached: bool) -> Parsed | None:
    from tclint.source.syntax.cache import TablesCache
    from tclint.source.syntax.parse import NotPython, decode, parse

    cache = TablesCache.of(Settings(cache=cached))
    try:
        return cache.parse(decode(data)) if cache is not None else parse(decode(data))
    except NotPython:
        return None
