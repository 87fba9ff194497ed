"""Finds the files of a project that run together: its scripts, and the files that each imports.

Nothing is parsed: a pattern finds the imports. The work is done once per project.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from tclint.core.search_path import PROJECT_MARKS
from tclint.source.project.folders import holds_file, names_in
from tclint.source.project.imports import file_of
from tclint.source.project.test_paths import is_test_path
from tclint.source.syntax.discovery import SKIPPED_FOLDERS

_LARGEST_PROJECT = 20_000
"""In a project with more files, each file is a program of its own."""
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|(?:\\\r?\n|[^\n#;])+)"
    rb"|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_IMPORTED_BY_CALL = re.compile(rb"import_module\(\s*[\"']\.*(\w[\w.]*)[\"']")
_WORD = re.compile(rb"\w+")
_PACKAGE = re.compile(rb"[\"']((?:[A-Za-z_]\w*\.)+)[\"'{%]")
"""A text that begins the name of a module: `"models."`, `f"models.{name}"`."""
_TARGET = re.compile(rb"^[ \t-]*_target_[ \t]*:[ \t]*[\"']?([A-Za-z_]\w*(?:\.\w+)+)", re.MULTILINE)
"""The class that a configuration names, which Hydra's `instantiate` imports and makes."""
_MAKES_TARGETS = b"instantiate("
_LARGEST_CONFIGURATION = 100_000
_MOST_CANDIDATES = 3
"""The most scripts to try for a file."""
_DEFINITION = re.compile(rb"^(?:async +def|def|class) +(\w+)", re.MULTILINE)
_MAIN = re.compile(rb"^if +__name__.*(?:\n(?!(?:async|def|class)\b|@).*)*", re.MULTILINE)
"""The lines that run a file, up to the next definition."""
_SAYS_MORE = re.compile(rb"Parser\(|\bargv\b|^(?:async +def|def|class)\b", re.MULTILINE)
"""What a script that only starts another one lacks: definitions, and a command line that it reads itself."""
_FUNCTION = re.compile(rb"^[ \t]*(?:async +)?def +(\w+)", re.MULTILINE)
TRAINS = (".backward(", ".fit(", "Trainer(", "training_step")
"""Every program that trains contains one of these; some that do not train contain one too."""
SCALES = (
    "caler",
    ".scale(",
    "unscale_",
    "scale_loss",
    "fp16",
    "mixed_precision",
    "precision=",
    "Accelerator",
    "Trainer",
    "deepspeed",
)
"""Every program that scales its loss contains one of these; some others contain one too."""
HALVES = (".half(", "float16", "torch.half", "HalfTensor", "autocast", *SCALES)
"""Every program that computes in 16 bits contains one of these; some others contain one too."""


@dataclass
class Scripts:
    """The files of one project and the imports between them.

    Args:
        files: path -> bytes.
        targets: the classes and functions that configurations name, with their modules.
    """

    files: dict[str, bytes]
    targets: frozenset[bytes] = frozenset()
    _leading: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict, repr=False)

    @classmethod
    def around(cls, path: str) -> Scripts:
        """The scripts of the project that a file belongs to; empty if the file does not exist."""
        folder, name = os.path.split(os.path.abspath(path))
        return _project(_root_above(folder)) if holds_file(folder, name) else cls({})

    def of(self, path: str) -> str:
        """The script that starts the program of a file, that is, a script that leads to the file; the file
        itself if there is none."""
        return self._starts.get(path, path)

    def leading_to(self, path: str) -> tuple[str, ...]:
        """The scripts whose program a file may be part of, best first: the one of `of`, and others that use
        the file and train as much, since each may choose another one of a package's classes."""
        first = self.of(path)
        rank = self._ranks.get(first, 0)
        others = (script for script in self._using.get(path, ()) if self._ranks[script] <= rank)
        return tuple(dict.fromkeys([first, *others]))[:_MOST_CANDIDATES]

    def only_starting(self, path: str) -> tuple[str, ...]:
        """The scripts that do little but call what another script defines, which reads their command lines as
        its own."""
        using = (script for script in self._ranks if path in self._uses[script])
        return tuple(script for script in using if not _SAYS_MORE.search(self.files[script]))

    def place_of(self, script: str) -> int:
        """The place of a script among those of the project; the best come first."""
        return self._places.get(script, len(self._places))

    def hold(self, path: str, tokens: tuple[str, ...], *, alone: bool = False) -> bool:
        """Whether the program of a file contains one of some tokens.

        In a package to which no script leads, only the file's own text counts. A file outside packages that
        no other file leads to may do anything: the answer is True.

        Args:
            alone: whether to look at the file by itself, whatever leads to it.
        """
        script = path if alone else self.of(path)
        if script == path and not _is_in_package(path):
            return True
        if not alone and (_is_run(self.files.get(script, b"")) or not _is_in_package(script)):
            return script in self.lead_to(tokens)
        data = self.files.get(path, b"")
        return any(token.encode() in data for token in tokens)

    def lead_to(self, tokens: tuple[str, ...]) -> frozenset[str]:
        """The files that contain one of some tokens, and those that import such a file directly or
        indirectly."""
        found = self._leading.get(tokens)
        if found is None:
            found = self._leading[tokens] = frozenset(_reached(self._holding(tokens), self._imported_by))
        return found

    def imported_by(self, path: str) -> Set[str]:
        """The files of the project whose names a file imports."""
        return self._imports.get(path, frozenset())

    def reached_from(self, paths: Iterable[str]) -> frozenset[str]:
        """Files and those that they import, directly or indirectly."""
        return frozenset(_reached(self.files.keys() & paths, self._imports))

    def connected_with(self, paths: Iterable[str]) -> frozenset[str]:
        """Files, those that they import and those that import them, directly or indirectly."""
        leads = {path: self._imports[path] | self._imported_by.get(path, set()) for path in self.files}
        return frozenset(_reached(self.files.keys() & paths, leads))

    def training_with(self, path: str) -> frozenset[str]:
        """The scripts that lead to what trains and may run a file, and the files that train and may run it.

        Unlike elsewhere, who takes a name from a package runs all that the package imports: registries fill.
        """
        leads = {
            other: {file for item in items for file in item.files} | self._imports[other]
            for other, items in self._written.items()
        }
        starts = self._ranks.keys() & self.lead_to(TRAINS) | {*self._holding(TRAINS)}
        return frozenset(_reached([path], _inverse(leads)) & starts)

    def _holding(self, tokens: tuple[str, ...]) -> list[str]:
        wanted = [token.encode() for token in tokens]
        return [path for path, data in self.files.items() if any(word in data for word in wanted)]

    @cached_property
    def _written(self) -> dict[str, list[_Import]]:
        """File -> its imports of files of the project."""
        by_last: dict[str, list[str]] = {}
        in_folder: dict[str, list[str]] = {}
        for path in self.files:
            by_last.setdefault(_module_name(path), []).append(path)
            in_folder.setdefault(os.path.dirname(path), []).append(path)
        return {
            path: [
                *_written(path, data, self.files, by_last),
                *_loaded_by_name(path, data, in_folder),
                *_configured(path, data, self.targets, self.files),
            ]
            for path, data in self.files.items()
        }

    @cached_property
    def _passed_on(self) -> dict[str, dict[str, _Import]]:
        """Package -> the names that it imports. A package that only passes names on leads to the files that
        define those, not to everything in it."""
        return {
            path: {name: item for item in items for name in item.names}
            for path, items in self._written.items()
            if os.path.basename(path) == "__init__.py"
        }

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        """File -> the files of the project whose names it imports."""
        return {
            path: {file for item in items for file in _defining(item, self._passed_on, set())} - {path}
            for path, items in self._written.items()
        }

    @cached_property
    def _imported_by(self) -> dict[str, set[str]]:
        return _inverse(self._imports)

    @cached_property
    def _uses(self) -> dict[str, set[str]]:
        """File -> those of its imports that it uses; of a file that trains it has to use what trains there,
        as an evaluation that takes a helper from the file of the training loop does not."""
        training = {path: _training_in(self.files[path], _DEFINITION) for path in self._holding(TRAINS)}
        return {
            path: {
                file
                for item in items
                for names in [tuple(name for name in item.names if data.count(name.encode()) > 1)]
                if names or not item.names
                for file in _defining(_Import(item.files, names), self._passed_on, set())
                if not names or file not in training or not training[file].isdisjoint(names)
            }
            - {path}
            for path, items in self._written.items()
            for data in [self.files[path]]
        }

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Script -> 0 if it calls what trains, 1 if it leads to that, else 2; the best come first."""
        trains = self.lead_to(TRAINS)
        called = {path: _training_in(self.files[path], _FUNCTION) for path in self._holding(TRAINS)}

        def order(path: str) -> tuple[int, int, str]:
            """Scripts that call what trains come first, then those that lead to it."""
            reached = _reached([path], self._uses) & called.keys()
            words = _words_of(self.files[path])
            is_calling = path in called or any(not words.isdisjoint(called[file]) for file in reached)
            return 0 if is_calling else 1 if reached else 2, len(path), path

        starts = [
            path
            for path in self.files
            if not is_test_path(path)
            and (
                # Many modules have a few lines that try them out, also some that train.
                (path in trains and _starts_training(self.files[path]))
                or (
                    (_is_run(self.files[path]) or not _is_in_package(path))
                    and all(map(is_test_path, self._imported_by.get(path, ())))
                )
            )
        ]
        return {path: rank for rank, _, path in sorted(map(order, starts))}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self._ranks)}

    @cached_property
    def _starts(self) -> dict[str, str]:
        """File -> its script. A file that several scripts lead to belongs to one that uses what trains in it;
        among several to one that trains, to one beside it, or to the first."""
        starts = list(self._ranks)
        found: dict[str, str] = {path: path for path in starts}
        for leads in (self._uses, self._imports):
            for script in starts:
                for path in leads[script]:
                    if os.path.dirname(path) == os.path.dirname(script):
                        found.setdefault(path, script)
            for script in starts:
                pending, seen = [script], {script}
                while pending:
                    for path in sorted(leads[pending.pop()] - seen):
                        seen.add(path)
                        if not is_test_path(path) and found.setdefault(path, script) == script:
                            pending.append(path)
        return found

    @cached_property
    def _using(self) -> dict[str, list[str]]:
        """File -> the first scripts that use it. A file passes on no more scripts than it keeps, so that the
        time grows with the imports and not with the scripts."""
        found: dict[str, list[str]] = {}
        for script in self._ranks:
            pending = [script]
            while pending:
                for path in self._uses[pending.pop()]:
                    known = found.setdefault(path, [])
                    is_full = len(known) == _MOST_CANDIDATES or path in self._ranks
                    if not is_full and script not in known and not is_test_path(path):
                        known.append(script)
                        pending.append(path)
        return found


def forget() -> None:
    """Read files anew."""
    _project.cache_clear()
    _root_above.cache_clear()


def _reached(starts: Iterable[str], leads: dict[str, set[str]]) -> set[str]:
    found = set(starts)
    pending = deque(found)
    while pending:
        for path in leads.get(pending.popleft(), ()):
            if path not in found:
                found.add(path)
                pending.append(path)
    return found


def _inverse(leads: dict[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path, used in leads.items():
        for other in used:
            found.setdefault(other, set()).add(path)
    return found


def _words_of(data: bytes) -> set[str]:
    return {word.decode("utf-8", "replace") for word in _WORD.findall(data)}


def _training_in(data: bytes, definition: re.Pattern[bytes]) -> frozenset[str]:
    """The functions or classes of a file that train, directly or by others of the file."""
    parts = definition.split(data)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    words = {name: frozenset(_WORD.findall(text)) for name, text in texts.items()}
    found = {name for name, text in texts.items() if any(token.encode() in text for token in TRAINS)}
    while more := {name for name in texts.keys() - found if not words[name].isdisjoint(found)}:
        found |= more
    return frozenset(name.decode() for name in found if name[:2] != b"__")


def is_module(path: str, lines: Iterable[str]) -> bool:
    """Whether a file is only imported: it is in a package and not run itself."""
    return _is_in_package(path) and not any("__main__" in line for line in lines)


def _is_run(data: bytes) -> bool:
    return b"__main__" in data


def _starts_training(data: bytes) -> bool:
    """Whether a file is run and, if it defines what trains, its lines for that may come to it."""
    if not _is_run(data):
        return False
    block = _MAIN.search(data)
    trains = _training_in(data, _DEFINITION)
    return (
        block is None
        or not trains
        or not trains.isdisjoint(_words_of(block[0]))
        or any(token.encode() in block[0] for token in TRAINS)
    )


def _is_in_package(path: str) -> bool:
    return "__init__.py" in names_in(os.path.dirname(path))


def _module_name(path: str) -> str:
    name = os.path.basename(path)[:-3]
    return os.path.basename(os.path.dirname(path)) if name == "__init__" else name


def root_of(path: str) -> str:
    """The folder of the project that a file belongs to."""
    return _root_above(os.path.dirname(os.path.abspath(path)))


@lru_cache(maxsize=16_384)
def _root_above(folder: str) -> str:
    current = folder
    topmost = folder
    while True:
        names = names_in(current)
        if not names.isdisjoint(PROJECT_MARKS):
            return current
        if "__init__.py" in names:
            topmost = current
        parent = os.path.dirname(current)
        if parent == current or os.path.basename(parent) == "site-packages":
            return topmost
        current = parent


@lru_cache(maxsize=4)
def _project(root: str) -> Scripts:
    files: dict[str, bytes] = {}
    configurations: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith((".yaml", ".yml")):
                configurations.append(path)
            elif name.endswith(".py") and os.path.isfile(path):  # reading a pipe would block
                try:
                    with open(path, "rb") as file:
                        files[path] = file.read()
                except OSError:
                    continue
        if len(files) > _LARGEST_PROJECT:
            return Scripts({})
    makes = any(_MAKES_TARGETS in data for data in files.values())
    return Scripts(files, _targets_in(configurations) if makes else frozenset())


def _targets_in(configurations: Iterable[str]) -> frozenset[bytes]:
    found: set[bytes] = set()
    for path in configurations:
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST_CONFIGURATION:
            try:
                with open(path, "rb") as file:
                    found.update(_TARGET.findall(file.read()))
            except OSError:
                continue
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Import:
    """One import statement of a file, as far as it concerns the project."""

    files: tuple[str, ...]
    """The files that the module may be."""
    names: tuple[str, ...]
    """The names taken from it, except names of modules; empty: all of it."""


def _written(
    path: str, data: bytes, files: dict[str, bytes], by_last: dict[str, list[str]]
) -> Iterator[_Import]:
    folder = os.path.dirname(path)

    def found(parts: list[str], level: int) -> list[str]:
        if parts and parts[-1] not in by_last:
            return []  # a library's, like most imports
        direct = _files_of(folder, parts, level, files)
        if direct or level or not parts:
            return direct
        # Scripts run with any folder on sys.path, so the end of the path decides.
        tails = (f"{os.sep}{os.sep.join(parts)}.py", f"{os.sep}{os.path.join(*parts, '__init__.py')}")
        ends = [other for other in by_last.get(parts[-1], ()) if other.endswith(tails)]
        return ends or [other for other in [file_of(path, ".".join(parts))] if other in files]

    for match in _IMPORT.finditer(data):
        module, names, plain = match.groups(b"")
        for item in plain.split(b",") if plain else ():
            if item.split():
                yield _Import(tuple(found(item.split()[0].decode("utf-8", "replace").split("."), 0)), ())
        if plain:
            continue
        text = module.decode("utf-8", "replace")
        level = len(text) - len(text.lstrip("."))
        parts = [part for part in text.split(".") if part]
        taken: list[str] = []
        for word in _WORD.findall(names):
            name = word.decode("utf-8", "replace")
            inner = found([*parts, name], level)
            if inner:
                yield _Import(tuple(inner), ())
            else:
                taken.append(name)
        if taken or b"*" in names:
            yield _Import(tuple(found(parts, level)), tuple(taken))
    for name in _IMPORTED_BY_CALL.findall(data) if b"import_module(" in data else ():
        yield _Import(tuple(found(name.decode("utf-8", "replace").split("."), 0)), ())


def _loaded_by_name(path: str, data: bytes, in_folder: dict[str, list[str]]) -> Iterator[_Import]:
    """The modules of the packages from which a file loads one by its name:
    `import_module("models." + name)`."""
    for text in dict.fromkeys(_PACKAGE.findall(data)) if b"import_module(" in data else ():
        parts = text.decode().rstrip(".").split(".")
        folder = os.path.dirname(path)
        while folder != os.path.dirname(folder):
            if found := in_folder.get(os.path.join(folder, *parts)):
                yield _Import(tuple(found), ())
                break
            folder = os.path.dirname(folder)


def _configured(
    path: str, data: bytes, targets: frozenset[bytes], files: dict[str, bytes]
) -> Iterator[_Import]:
    """The modules from which a file makes the objects that a configuration names."""
    for text in sorted(targets) if _MAKES_TARGETS in data else ():
        parts = text.decode().split(".")[:-1]
        if found := [file for file in _files_of(os.path.dirname(path), parts, 0, files) if file != path]:
            yield _Import(tuple(found), ())


def _defining(
    item: _Import, passed_on: dict[str, dict[str, _Import]], seen: set[tuple[str, str]]
) -> Iterator[str]:
    """The files that define the imported names."""
    for file in item.files:
        inner = passed_on.get(file)
        if inner is None or not item.names:
            yield file
            continue
        for name in item.names:
            further = inner.get(name)
            if further is None or (file, name) in seen:
                yield file
            else:
                seen.add((file, name))
                yield from _defining(_Import(further.files, (name,)), passed_on, seen)


def _files_of(folder: str, parts: list[str], level: int, files: dict[str, bytes]) -> list[str]:
    """The files that a module name can mean in a folder, if that folder or one above it is on Python's
    path."""
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    while True:
        base = os.path.join(folder, *parts)
        found = [path for path in (f"{base}.py", os.path.join(base, "__init__.py")) if path in files]
        parent = os.path.dirname(folder)
        if found or level or parent == folder:
            return found
        folder = parent
