"""Which file of a project an import means."""

from __future__ import annotations

import os

from tclint.source.project.folders import holds_file, names_in

_LEVELS = 6
"""Folders to go up from a file for the root of its imports."""


def file_of(importer: str, module: str) -> str | None:
    """The file of the project that a module name means in a file, which need not exist; None: none."""
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
        if parent == folder or ".git" in names_in(folder):
            return None
        folder = parent
    return None


def _module_file(folder: str, parts: list[str]) -> str | None:
    for part in parts[:-1]:
        if part not in names_in(folder):
            return None
        folder = os.path.join(folder, part)
    if parts and holds_file(folder, f"{parts[-1]}.py"):
        return os.path.join(folder, f"{parts[-1]}.py")
    base = os.path.join(folder, *parts[-1:])
    is_folder = not parts or parts[-1] in names_in(folder)
    return os.path.join(base, "__init__.py") if is_folder and holds_file(base, "__init__.py") else None
