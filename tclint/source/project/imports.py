"""Finds the file of a project that an import means."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tclint.core.search_path import added_folders
from tclint.source.project.folders import data_of, holds_file, names_in, upwards


@lru_cache(maxsize=65_536)
def file_of(importer: str, module: str) -> str | None:
    """The project's file that `importer`, which need not exist, imports as `module`; None if there is
    none."""
    folder = os.path.dirname(os.path.abspath(importer))
    relative = module.lstrip(".")
    dots = len(module) - len(relative)
    if dots:
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        return _module_file(folder, relative)
    # A file never imports itself: `from model import Net` in utils/model.py means the script's folder.
    own = os.path.abspath(importer)
    found = next((path for path in _seen_from(folder, module) if path != own), None)
    if found is None and module:
        added = (_module_file(root, module) for above in upwards(folder) for root in _added_in(above))
        found = next((path for path in added if path is not None and path != own), None)
    if found is None and module:
        roots = (_in_package(above, *module.split(".", 1)) for above in upwards(folder))
        found = next((path for path in roots if path is not None and path != own), None)
    return found


def _in_package(folder: str, name: str, rest: str = "") -> str | None:
    """The file of a module in a folder that is itself the package of that name, as a repository can be: it
    runs from the folder above. Downloads add owners and branches to the folder's name."""
    is_it = holds_file(folder, "__init__.py") and name in os.path.basename(folder).replace("-", "_")
    return _module_file(folder, rest) if is_it else None


def is_name_of(path: str, module: str) -> bool:
    """Whether a module name means the file itself in the file's own folder, as in a script that imports
    itself."""
    return f"{module}.py" == os.path.basename(path)


def forget() -> None:
    """Look at folders anew."""
    file_of.cache_clear()
    _module_file.cache_clear()
    _seen_from.cache_clear()
    _added_in.cache_clear()


@lru_cache(maxsize=65_536)
def _seen_from(folder: str, module: str) -> tuple[str, ...]:
    """The files that an absolute name can mean in a folder, the nearest first."""
    found = (_module_file(root, module) for root in (upwards(folder) if module else ()))
    return tuple(path for path in found if path is not None)


@lru_cache(maxsize=16_384)
def _added_in(folder: str) -> tuple[str, ...]:
    """The folders that scripts in a folder add to `sys.path`."""

    def read(of: Path, name: str) -> str:
        is_file = holds_file(str(of), name)  # and no pipe
        return data_of(str(of / name)).decode("utf-8", "replace") if is_file else ""

    return tuple(added_folders([Path(folder)], read))


@lru_cache(maxsize=65_536)
def _module_file(folder: str, module: str) -> str | None:
    parts = [part for part in module.split(".") if part]
    for part in parts[:-1]:
        if part not in names_in(folder):
            return None
        folder = os.path.join(folder, part)
    if parts and holds_file(folder, f"{parts[-1]}.py"):
        return os.path.join(folder, f"{parts[-1]}.py")
    base = os.path.join(folder, *parts[-1:])
    is_folder = not parts or parts[-1] in names_in(folder)
    return os.path.join(base, "__init__.py") if is_folder and holds_file(base, "__init__.py") else None
