"""What the rest of a project says: the files that a file imports, or that end up importing it.

Rules that speak about something missing ask here before they do. Nothing is parsed: imports are found with
a pattern, and words are looked for in the bytes. The work is done once per project, when first asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from tclint.source.names.queries import is_test_path
from tclint.source.syntax.discovery import SKIPPED_FOLDERS

_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml")
_LARGEST_PROJECT = 4_000
"""Files. Larger projects are not searched, and what they hold counts as unknown."""
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
    _around: tuple[str, ...] | None = field(default=None, repr=False)
    _below: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def known(self) -> bool:
        """False where the project is too large to search."""
        return self._project is not None

    @cached_property
    def _project(self) -> _Project | None:
        # A text that is not in a file has no neighbours.
        return _project(_root_of(self.path)) if os.path.isfile(self.path) else _Project({})

    def imported(self) -> tuple[str, ...]:
        """Files of the project that this one imports, directly or not; without the file itself."""
        if self._below is None:
            project = self._project
            found = project.reached([self.path]) if project else set()
            self._below = tuple(sorted(found - {self.path}))
        return self._below

    def around(self) -> tuple[str, ...]:
        """Files that can run in one program with this one: whatever imports it, and all that these import."""
        if self._around is None:
            project = self._project
            found: set[str] = set()
            if project:
                found = project.reached(project.importers(self.path))
            self._around = tuple(sorted(found - {self.path}))
        return self._around

    def mention(self, words: Iterable[str], *, imported_only: bool = False) -> str | None:
        """A neighbouring file that holds one of the words, or None. Of a project that is too large to
        search: the file itself, as anything may be said in it."""
        if not self.known:
            return self.path
        wanted = [word.encode() for word in words]
        for path in self.imported() if imported_only else self.around():
            data = _read(path)
            if any(word in data for word in wanted):
                return path
        return None

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

    def importing(self, word: str) -> Iterator[str]:
        """Files that import this one and hold a word."""
        wanted = word.encode()
        for path, used in self._project.imports.items() if self._project else ():
            if self.path in used and wanted in _read(path):
                yield path

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
        if not scripts or _starts(self.path):
            return self.path
        folder = os.path.dirname(self.path)
        # The nearest one goes first.
        return min(scripts, key=lambda path: (os.path.dirname(path) != folder, len(path), path))

    def count(self, words: Iterable[str], *, around: bool = False) -> int:
        """How often the words occur in the files that this one imports, or that can run with it."""
        wanted = [word.encode() for word in words]
        paths = self.around() if around else self.imported()
        return sum(_read(path).count(word) for path in paths for word in wanted)


@dataclass
class _Project:
    imports: dict[str, set[str]]
    """File -> the files of the project that it imports."""

    def reached(self, starts: Iterable[str]) -> set[str]:
        found = set(starts)
        pending = list(found)
        while pending:
            for path in self.imports.get(pending.pop(), ()):
                if path not in found:
                    found.add(path)
                    pending.append(path)
        return found

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


@lru_cache(maxsize=_LARGEST_PROJECT)
def _read(path: str) -> bytes:
    if not os.path.isfile(path):
        return b""  # a pipe, which would be waited for
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
