"""The files behind a target: where its imports lead, and which of them its trace rests on."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tclint.core.search_path import added_folders, project_folder
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.values.user_code import tree_of


def import_roots(path: str) -> list[str]:
    """Folders to look for absolute imports in, besides that of the file: nearest first.

    The working directory, the folder above the file's package, the project's top folder, the one that holds
    its sources, and those that scripts beside the file or in the top folder add to `sys.path`.
    """
    folder = Path(path).resolve().parent
    roots = [os.getcwd()]
    above = folder
    while (above / "__init__.py").exists():
        above = above.parent
    roots.append(str(above))
    top = project_folder(folder)
    if top is not None:
        roots += source_folders(top)
    roots += added_folders([folder, Path(above), *([top] if top is not None else [])], setup_text)
    return [root for root in dict.fromkeys(roots) if root != str(folder)]


_own_reads: set[str] = set()
"""Files that this tool reads for itself: a trace does not rest on the settings that stand in them too."""


def setup_text(top: Path, file: str) -> str:
    """What a file says that sets a project up; '' where there is none."""
    path = os.path.abspath(top / file)
    _own_reads.add(path)
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    finally:
        _own_reads.discard(path)


_PACKAGE_FOLDER = re.compile(r"package[-_]dir\s*=\s*\{?\s*[\"']{0,2}\s*[:=]\s*[\"']?([\w./-]+)")
"""Of setuptools: `package_dir={"": "src"}`, `package-dir = { "" = "lib" }`."""


def source_folders(top: Path) -> list[str]:
    """The folders of a project in which its modules and packages lie: its own, `src`, and what it states."""
    named = ["src"]
    for file in ("pyproject.toml", "setup.cfg", "setup.py"):
        named += _PACKAGE_FOLDER.findall(setup_text(top, file))
    return [str(top), *(str(top / name) for name in dict.fromkeys(named) if (top / name).is_dir())]


def package_of(path: str) -> tuple[str, str] | None:
    """(folder, 'package.module') to import a file by that imports relatively; None where that cannot work."""
    file = Path(path).resolve()
    levels = _relative_levels(file)
    if not levels:
        return None
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists() or len(parts) <= levels:
        parts.insert(0, folder.name)
        if folder == folder.parent:
            return None
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    return None if any("." in part for part in parts) else (str(folder), ".".join(parts))


def _relative_levels(file: Path) -> int:
    """How many packages above it the file's relative imports reach into; 0: it has none."""
    nodes = ast.walk(tree_of(str(file)))
    return max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)


_WRITING = os.O_WRONLY | os.O_RDWR
_SKIPPED_FOLDERS = frozenset({"__pycache__", ".tclint_cache", ".git"})


def watch(folder: str) -> Callable[[], list[str]]:
    """Start to note the files that are opened; the function that returns them with the imported ones.

    The paths are absolute and sorted. What was imported before, installed packages, the standard library and
    this tool are left out;
    opened files count where they lie below `folder` or the working directory, as a model's YAML file does.
    An audit hook cannot be taken back, so only a process that serves a single target may call this.
    """
    roots = tuple(os.path.join(os.path.realpath(root), "") for root in (folder, os.getcwd()))
    opened: set[str] = set()
    # Made now: the code under test may remove the working directory, and then nobody can ask for it.
    finder = SiteFinder()
    before = dict(sys.modules)  # torch's and this tool's, by the thousand

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        flags = arguments[2]
        if isinstance(flags, int) and flags & _WRITING:
            return
        # The code under test may have replaced what this rests on; that is its own problem, not an error.
        with contextlib.suppress(Exception):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path not in _own_reads:
                opened.add(path)

    sys.addaudithook(note)
    return lambda: _files(opened, roots, finder, before)


def _files(
    opened: set[str], roots: tuple[str, ...], finder: SiteFinder, before: Mapping[str, ModuleType]
) -> list[str]:
    found = {
        os.path.normpath(file)
        for name, module in list(sys.modules.items())
        if before.get(name) is not module
        and isinstance(file := getattr(module, "__file__", None), str)
        and os.path.isabs(file)
    }
    found |= {path for path in set(opened) if os.path.realpath(path).startswith(roots)}
    return sorted(
        path
        for path in found
        if not _SKIPPED_FOLDERS.intersection(path.split(os.sep))
        and finder.is_user_file(path)
        and os.path.isfile(path)
    )
