"""Finds the files of the project through imports, without running anything."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping

from tclint.source.project.configurations import naming
from tclint.source.project.effects import acting, reached, registering
from tclint.source.project.folders import upwards
from tclint.source.project.imports import file_of
from tclint.source.project.launchers import Launch, launches_of
from tclint.source.project.noted import note
from tclint.source.project.scripts import Scripts, root_of
from tclint.source.project.stars import may_define, reached_from
from tclint.source.run.files import File
from tclint.source.run.values import Place, Thing, Value
from tclint.source.syntax.parse import Parsed
from tclint.source.syntax.positions import Span
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES


class ProjectFiles:
    """The files that one program reads; each is read once.

    Args:
        parse: makes tables of a file's bytes; returns None if they are not Python.
        given: path -> bytes to use instead of those on the disk.
        edited: the paths in `given` whose bytes differ from those on the disk.
        settings: reads the bytes of a configuration file.
        has_pages: whether the commands that pages show start programs, where no shell script does.
    """

    def __init__(
        self,
        parse: Callable[[str, bytes], Parsed | None],
        given: Mapping[str, bytes] | None = None,
        edited: Collection[str] = (),
        settings: Callable[[str, bytes], Value | None] | None = None,
        *,
        has_pages: bool = False,
    ) -> None:
        self._has_pages = has_pages
        self._settings = settings
        self._edited = frozenset(edited)
        self._parse = parse
        self._given = given or {}
        self._files: dict[str, File | None] = {}
        self._found: dict[tuple[str, str], str | None] = {}
        self._reached: set[str] = set()
        self._launches: dict[tuple[str, bool], list[Launch]] = {}
        self._texts: dict[str, tuple[File, list[Span]]] = {}
        self.imports: dict[tuple[str, str], str | None] = {}
        """(file, module that it imports) -> the path that the name means from the file's folder."""
        self.digests: dict[str, str] = {}
        """Path -> SHA-256 of the file as it was read; '' if it could not be read."""

    @property
    def read(self) -> list[File]:
        """The files read so far, in order."""
        return [file for file in self._files.values() if file is not None]

    @property
    def others(self) -> list[str]:
        """The paths of configuration files that were read, and of what holds the commands."""
        launchers = (launch.path for found in self._launches.values() for launch in found)
        return [*dict.fromkeys([*(path for path in self.digests if path not in self._files), *launchers])]

    def keep(self, path: str, file: File) -> None:
        """Add a file that has been read elsewhere."""
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
        """The project's file that `importer` imports under a module name; None if the project has none."""
        # `import torch` means the library even if the project has a file called torch.py.
        if importer.is_library or name.partition(".")[0] == "torch":
            return None
        path = self._path(importer, name)
        return self.file(path) if path is not None else None

    def module_from(self, path: str, name: str) -> File | None:
        """The file that a module name means in a file at a path, which need not exist."""
        found = self.imports[path, name] = file_of(path, name)
        return self.file(found) if found is not None else None

    def settings(self, importer: File, name: str) -> Value | None:
        """The contents of a configuration file that a file names, relative to its folder or one above it."""
        if self._settings is None or not name:
            return None
        for folder in upwards(os.path.dirname(os.path.abspath(importer.path))):
            path = os.path.normpath(os.path.join(folder, name))
            data = self.data(path) if os.path.isfile(path) or path in self._given else None
            if data is not None:
                return self._settings(path, data)
        return None

    def holding(self, script: File, keys: Collection[str]) -> list[Value]:
        """The contents of the project's configuration files that have all of some keys at the top."""
        root, wanted = root_of(script.path), sorted(keys)
        paths = naming(root, *wanted) if self._settings is not None else []
        note(paths, "configurations", root, *wanted)
        found: list[Value] = []
        for path in paths:
            data = self.data(path)
            held = self._settings(path, data) if data is not None and self._settings is not None else None
            if isinstance(held, Thing) and all(("item", key) in held.fields for key in wanted):
                found.append(held)
        return found

    def launches_of(self, script: File, *, on_pages: bool = False) -> list[Launch]:
        """The commands of shell scripts, or those that pages show, that start a script, or else another one
        that only calls it."""
        found = self._launches.get((script.path, on_pages))
        if found is None:
            found = _commands_of(script.path, on_pages=on_pages)
            if not found and self._has_pages:
                found = _commands_of(script.path, on_pages=True)
            self._launches[script.path, on_pages] = found
        return found

    def place_in(self, path: str, span: Span) -> Place:
        """A place in a text that is no Python."""
        if path not in self._texts:
            parsed = self._parse(path, b"")
            assert parsed is not None
            spans: list[Span] = []
            lines = (self.data(path) or b"").decode("utf-8", "replace").splitlines()
            self._texts[path] = File(path, parsed.tables, lambda: tuple(spans), lambda: lines), spans
        file, spans = self._texts[path]
        spans.append(span)
        return Place(file, file.tables.module, len(spans) - 1)

    def may_define(self, importer: File, module: str, name: str) -> bool:
        """Whether `from module import *` may define a name, as far as its text tells; nothing is parsed."""
        path = None if importer.is_library else self._path(importer, module)
        if path is None or path in self._files or not self._edited.isdisjoint(reached_from(path)):
            return True
        found = may_define(path, name)
        note(found, "stars", path, name)
        return found

    def imported(
        self, importer: File, paths: Collection[str], described: Collection[str] = ()
    ) -> Iterator[File]:
        """The files that a file imports and that either have an effect when they are imported or are among
        `paths`; others are not parsed. Files that it has returned before are left out, and names that
        tables describe are not looked for."""
        if importer.path in self._reached:
            return
        imports = [name for name in _imports_of(importer) if name not in described]
        acts = acting(importer.path, *imports)
        note(acts, "effects", importer.path, *imports)
        for path in reached(importer.path, *imports):
            if path not in self._reached and (path in acts or path in paths or path in self._edited):
                file = self.file(path)
                if file is not None:
                    yield file
            self._reached.add(path)

    def registering(self, importer: File, name: str) -> Iterator[File]:
        """The files that `importer` leads to in which something may be registered under a name."""
        imports = _imports_of(importer)
        found = registering(importer.path, name, *imports)
        note(found, "registering", importer.path, name, *imports)
        for path in found:
            file = self.file(path)
            if file is not None:
                yield file

    def _path(self, importer: File, name: str) -> str | None:
        key = (os.path.dirname(importer.path), name)
        if key not in self._found:
            self._found[key] = self.imports[importer.path, name] = file_of(importer.path, name)
        return self._found[key]

    def _read(self, path: str) -> Parsed | None:
        data = self.data(path)
        return None if data is None else self._parse(path, data)

    def data(self, path: str) -> bytes | None:
        data = self._given.get(path)
        self.digests[path] = ""
        if data is None:
            try:
                if os.stat(path).st_size > MAX_SOURCE_BYTES:
                    return None
                with open(path, "rb") as file:
                    data = file.read()
            except OSError:
                return None
        self.digests[path] = hashlib.sha256(data).hexdigest()
        return data


def starting(path: str) -> list[str]:
    """The scripts that only start another one."""
    return list(Scripts.around(path).only_starting(path))


def _commands_of(path: str, *, on_pages: bool) -> list[Launch]:
    found = launches_of(path, on_pages=on_pages)
    if not found:
        others = starting(path)
        note(others, "starting", path)
        found = [launch for other in others for launch in launches_of(other, on_pages=on_pages)]
    return found


def _imports_of(importer: File) -> list[str]:
    # `import torch` means the library even if the project has a file called torch.py.
    return [
        f"{item.qualified}:*" if item.name == "*" else item.qualified
        for item in importer.tables.module.imports
        if item.qualified.partition(".")[0] != "torch"
    ]


def _name_of(path: str) -> str:
    name = os.path.splitext(os.path.basename(path))[0]
    return os.path.basename(os.path.dirname(path)) if name == "__init__" else name
