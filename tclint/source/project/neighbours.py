"""The rest of a project: which script starts the program that a file belongs to, and what starts that.

Nothing is parsed: imports are found with a pattern. The work is done once per project, when first asked for.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from tclint.source.syntax.discovery import SKIPPED_FOLDERS

_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml")
_LARGEST_PROJECT = 4_000
"""Files. Larger projects are not searched: each of their files is a program of its own."""
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_WORD = re.compile(rb"\w+")
_SCRIPTS = ("*.sh", "*.bash", "*.slurm", "*.y*ml", "*.md", "*.rst", "Makefile")


@dataclass
class Neighbours:
    """The files of one project that run together with one of them."""

    path: str

    @cached_property
    def _project(self) -> _Project | None:
        # A text that is not in a file has no neighbours.
        return _project(_root_of(self.path)) if os.path.isfile(self.path) else _Project({})

    def scripts_match(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether a shell script, a configuration or a page beside the file, or in a folder above it in its
        project, holds what the pattern matches."""
        root = os.path.realpath(_root_of(self.path))
        for folder in Path(self.path).resolve().parents if os.path.isfile(self.path) else ():
            if any(pattern.search(_read(path)) for path in _scripts_in(folder)):
                return True
            if str(folder) == root:
                break
        return False

    def root(self) -> str:
        """The script that starts the program which this file belongs to: one that leads to it, and that no
        file but tests imports; the file itself where there is none such."""
        project = self._project
        if project is None:
            return self.path
        reached = {
            path for path in project.importers(self.path) if path == self.path or not is_test_path(path)
        }
        scripts = [
            path
            for path in reached
            if _starts(path) and not (project.imported_by.get(path, set()) & reached) - {path}
        ]
        if not scripts or b"__main__" in _read(self.path):
            return self.path
        folder = os.path.dirname(self.path)
        # The nearest one goes first.
        return min(scripts, key=lambda path: (os.path.dirname(path) != folder, len(path), path))


@dataclass
class _Project:
    imports: dict[str, set[str]]
    """File -> the files of the project that it imports."""

    @cached_property
    def imported_by(self) -> dict[str, set[str]]:
        """File -> the files of the project that import it."""
        found: dict[str, set[str]] = {}
        for path, used in self.imports.items():
            for other in used:
                found.setdefault(other, set()).add(path)
        return found

    def importers(self, path: str) -> set[str]:
        found = {path}
        pending = [path]
        while pending:
            for other in self.imported_by.get(pending.pop(), ()):
                if other not in found:
                    found.add(other)
                    pending.append(other)
        return found


def _starts(path: str) -> bool:
    """Whether a file is run: it says what happens then, or stands in a folder that is no package."""
    beside = os.path.join(os.path.dirname(path), "__init__.py")
    return b"__main__" in _read(path) or not os.path.exists(beside)


def _root_of(path: str) -> str:
    folder = os.path.dirname(os.path.abspath(path))
    current = folder
    topmost = folder
    while True:
        if any(os.path.exists(os.path.join(current, marker)) for marker in _MARKERS):
            return current
        if os.path.exists(os.path.join(current, "__init__.py")):
            topmost = current
        parent = os.path.dirname(current)
        if parent == current or os.path.basename(parent) == "site-packages":
            return topmost
        current = parent


def forget() -> None:
    """Read files anew, in a process that outlives what it read: an editor's server."""
    _project.cache_clear()
    _scripts_in.cache_clear()
    _read.cache_clear()


@lru_cache(maxsize=256)
def _scripts_in(folder: Path) -> tuple[str, ...]:
    inner = (folder, *folder.glob("*script*"), *folder.glob("*config*"))
    return tuple(str(path) for where in inner for name in _SCRIPTS for path in where.glob(name))


@lru_cache(maxsize=4)
def _project(root: str) -> _Project | None:
    files: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(".")]
        files.extend(os.path.join(folder, name) for name in names if name.endswith(".py"))
        if len(files) > _LARGEST_PROJECT:
            return None
    by_last: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    below = len(root.rstrip(os.sep)) + 1
    for path in files:
        parts = tuple(path[below:-3].split(os.sep))
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if parts:
            by_last.setdefault(parts[-1], []).append((parts, path))
    return _Project(
        {path: _imported_files(path, tuple(path[below:].split(os.sep)[:-1]), by_last) for path in files}
    )


def _imported_files(
    path: str, package: tuple[str, ...], by_last: dict[str, list[tuple[tuple[str, ...], str]]]
) -> set[str]:
    found: set[str] = set()
    for match in _IMPORT.finditer(_read(path)):
        module, names, plain = match.groups(b"")
        wanted: list[tuple[str, ...]] = []
        if plain:
            wanted += [
                tuple(item.split()[0].decode("utf-8", "replace").split("."))
                for item in plain.split(b",")
                if item.split()
            ]
        else:
            text = module.decode("utf-8", "replace")
            dots = len(text) - len(text.lstrip("."))
            parts = tuple(part for part in text.split(".") if part)
            if dots:
                parts = package[: len(package) - (dots - 1)] + parts
            if parts:
                wanted.append(parts)
            wanted += [(*parts, word.decode("utf-8", "replace")) for word in _WORD.findall(names)]
        for parts in wanted:
            for known, file in by_last.get(parts[-1], ()):
                # Scripts run with any folder on sys.path, so the end of the path decides.
                shorter = min(len(known), len(parts))
                if known[-shorter:] == parts[-shorter:] and len(known) >= len(parts):
                    found.add(file)
    return found - {path}


def is_test_path(path: str) -> bool:
    """Whether a file is a test by its name or the folder it lies in."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )


@lru_cache(maxsize=_LARGEST_PROJECT)
def _read(path: str) -> bytes:
    if not os.path.isfile(path):
        return b""  # a pipe, which would be waited for
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
