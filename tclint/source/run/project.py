"""Files of the project, found through imports; nothing is run to find them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from tclint.source.run.files import File
from tclint.source.syntax.parse import Parsed
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES

_LEVELS = 6
"""Folders to go up from a file for the root of its imports."""


class ProjectFiles:
    """The files that one program reads, each once.

    Args:
        parse: makes the tables of a file's bytes; None where it is no Python.
        given: by path, bytes that stand for what is on the disk.
    """

    def __init__(
        self, parse: Callable[[str, bytes], Parsed | None], given: Mapping[str, bytes] | None = None
    ) -> None:
        self._parse = parse
        self._given = given or {}
        self._files: dict[str, File | None] = {}
        self._found: dict[tuple[str, str], str | None] = {}

    @property
    def read(self) -> list[File]:
        """What has been read, in that order."""
        return [file for file in self._files.values() if file is not None]

    def keep(self, path: str, file: File) -> None:
        """Take a file that is read already."""
        self._files[path] = file

    def file(self, path: str) -> File | None:
        if path not in self._files:
            parsed = self._read(path)
            self._files[path] = (
                None
                if parsed is None
                else File(
                    path, parsed.tables, lambda: parsed.spans, lambda: parsed.lines, name=_name_of(path)
                )
            )
        return self._files[path]

    def module(self, importer: File, name: str) -> File | None:
        """The file that a module name means where `importer` imports it; None: not one of the project."""
        # A file called torch.py does not stand for torch: what it holds is not what the program means.
        if importer.is_library or name.partition(".")[0] == "torch":
            return None
        key = (os.path.dirname(importer.path), name)
        if key not in self._found:
            self._found[key] = _file_of(importer.path, name)
        path = self._found[key]
        return self.file(path) if path is not None else None

    def module_from(self, path: str, name: str) -> File | None:
        """The file that a module name means in a file of that path, which need not exist."""
        found = _file_of(path, name)
        return self.file(found) if found is not None else None

    def _read(self, path: str) -> Parsed | None:
        if path in self._given:
            return self._parse(path, self._given[path])
        try:
            if os.stat(path).st_size > MAX_SOURCE_BYTES:
                return None
            with open(path, "rb") as file:
                return self._parse(path, file.read())
        except OSError:
            return None


def _name_of(path: str) -> str:
    name = os.path.splitext(os.path.basename(path))[0]
    return os.path.basename(os.path.dirname(path)) if name == "__init__" else name


def _file_of(importer: str, module: str) -> str | None:
    relative = module.lstrip(".")
    parts = [part for part in relative.split(".") if part]
    folder = os.path.dirname(os.path.abspath(importer))
    dots = len(module) - len(relative)
    if dots:
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        return _module_file(folder, parts)
    if not parts:
        return None
    for _ in range(_LEVELS):
        found = _module_file(folder, parts)
        # A file never means itself: `from model import Net` in utils/model.py is of the script's folder.
        if found is not None and found != os.path.abspath(importer):
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
