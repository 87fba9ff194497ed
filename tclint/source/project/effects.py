"""Side effects of imports, read from a file's text: an import may change settings of the whole program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from os.path import basename, dirname, join

from tclint.source.project.folders import data_of, names_in
from tclint.source.project.imports import file_of

_LINE = re.compile(
    rb"^(?:(?P<inner>(?:async +)?def\b|class\b|@|if +__name__\b)"
    rb"|(?=(?P<block>if|elif|else|try|except|finally|with|for|while)\b)?(?P<top>[A-Za-z_])"
    rb"|[ \t]+(?P<indented>[A-Za-z_]))"
    rb"(?=(?P<import>(?:rom|mport)[ \t])?(?P<acts>[\w.]*\(|\w*(?:\.\w+)+[ \t]*=(?!=))?)",
    re.MULTILINE,
)
"""A line that begins with a word. Importing a file does not run the bodies of its functions and classes, or
what is under `__main__`; it does run every other block at the left margin."""
_IMPORT = re.compile(
    rb"from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|(?:\\\r?\n|[^\n#;])+)|import[ \t]+([^\n#;]+)",
)
_REGISTERS = re.compile(
    rb"^@[^\n]*\n(?:[@ \t#)][^\n]*\n)*(?:class|def) +\w+|^\w[\w.]*\([^\n]*[\"'][A-Za-z_][\w.-]*[\"']",
    re.MULTILINE,
)
"""A decorated definition, or a call at the left margin that gets a text."""
_NAMES = re.compile(rb"(?<=class )\w+|(?<=def )\w+|(?<=[\"'])[A-Za-z_][\w.-]*(?=[\"'])")
_IMPORTED = re.compile(rb"([\w.]+|\*)(?:[ \t]+as[ \t]+(\w+))?")


@dataclass(frozen=True, slots=True)
class _Top:
    """The effects of importing a file."""

    acts: bool
    """Whether it calls something and drops the result, or assigns to an attribute."""
    imports: tuple[tuple[str, str], ...]
    """(bound name, full name of what it stands for); ('*', 'module:*') for a star import."""


def acting(importer: str, *imports: str) -> tuple[str, ...]:
    """The files with effects on import, among those that some imports lead to.

    The imports in a package's `__init__.py` are not followed; the files count where their names are used.

    Args:
        importer: the file that imports.
        imports: full names: '.models.Net', 'numpy'; 'models:*' for all of a module.
    """
    return tuple(path for path in reached(importer, *imports) if _top(path).acts)


def reached(importer: str, *imports: str) -> tuple[str, ...]:
    """The files that imports lead to; arguments as for `acting`."""
    found: dict[str, None] = {}
    pending = [_file_of(importer, name) for name in imports]
    known = set(pending)
    for path, last in pending:
        if path is None:
            continue
        found[path] = None
        for further in _taken(path, last):
            if further not in known:
                known.add(further)
                pending.append(further)
    return tuple(found)


@lru_cache(maxsize=65_536)
def _taken(path: str, name: str) -> tuple[tuple[str | None, str], ...]:
    """What a file imports at the top level, as (file, name taken from it); a package's `__init__.py` counts
    only for what it binds to the name that is taken from it."""
    is_package = basename(path) == "__init__.py"
    return tuple(further for bound, further in _imported(path) if not is_package or bound == name)


def registering(importer: str, name: str, *imports: str) -> tuple[str, ...]:
    """The files, among those that some imports lead to, in which a decorator or a call at the top level may
    enter something into a registry under a name.

    Args:
        importer, imports: as for `acting`.
    """
    return _registered(importer, imports).get(name.encode(), ())


@lru_cache(maxsize=64)
def _registered(importer: str, imports: tuple[str, ...]) -> dict[bytes, tuple[str, ...]]:
    """Name -> the files that may register it."""
    found: dict[bytes, tuple[str, ...]] = {}
    for path in _imported_with_packages(importer, imports):
        for name in _registered_in(path):
            found[name] = (*found.get(name, ()), path)
    return found


@lru_cache(maxsize=16_384)
def _registered_in(path: str) -> frozenset[bytes]:
    """The names that a file may register."""
    return frozenset(
        name for match in _REGISTERS.finditer(data_of(path)) for name in _NAMES.findall(match[0])
    )


def _imported_with_packages(importer: str, imports: tuple[str, ...]) -> Iterator[str]:
    """The files that are run when some imports are."""
    pending = [path for path, _ in (_file_of(importer, name) for name in imports) if path is not None]
    seen = set(pending)
    for path in pending:
        yield path
        for file in _run_with(path):
            if file not in seen:
                seen.add(file)
                pending.append(file)


@lru_cache(maxsize=16_384)
def _run_with(path: str) -> tuple[str, ...]:
    """The files that importing a file runs next: what it imports, with packages all that their `__init__.py`
    imports, and all files beside one that imports modules by computed names."""
    further = [file for _, (file, _) in _imported(path) if file is not None]
    if basename(path) == "__init__.py" and b"import_module(" in data_of(path):
        folder = dirname(path)
        further += [join(folder, name) for name in sorted(names_in(folder)) if name.endswith(".py")]
    inside = dirname(path) if basename(path) != "__init__.py" else dirname(dirname(path))
    if "__init__.py" in names_in(inside):
        further.append(join(inside, "__init__.py"))
    return tuple(dict.fromkeys(further))


def forget() -> None:
    """Read files anew."""
    _registered.cache_clear()
    _registered_in.cache_clear()
    _run_with.cache_clear()
    _taken.cache_clear()
    _top.cache_clear()
    _imported.cache_clear()


@lru_cache(maxsize=16_384)
def _imported(path: str) -> tuple[tuple[str, tuple[str | None, str]], ...]:
    """(bound name, (file, name taken from it)) for each import at the top level of a file."""
    return tuple((bound, _file_of(path, name)) for bound, name in _top(path).imports)


def _file_of(importer: str, name: str) -> tuple[str | None, str]:
    """The file that an import of a name means, and the name taken from it."""
    name, _, is_starred = name.partition(":")
    found = file_of(importer, name)
    if found is not None or is_starred:
        return found, ""
    module, _, last = name.rpartition(".")
    if name.startswith(".") and not module.strip("."):
        module = name[: len(name) - len(name.lstrip("."))]
    return (file_of(importer, module), last) if module else (None, "")


@lru_cache(maxsize=16_384)
def _top(path: str) -> _Top:
    data = data_of(path)
    acts = False
    imports: list[tuple[str, str]] = []
    is_done = False
    """Whether importing the file runs the indented lines here."""
    for line in _LINE.finditer(data):
        if line["indented"] is None:
            is_done = line["block"] is not None
        if line["inner"] is not None or (line["indented"] is not None and not is_done):
            continue
        if line["import"] is not None:
            statement = _IMPORT.match(data, line.start("top") if line["top"] else line.start("indented"))
            imports += _names(statement) if statement is not None else ()
        elif line["acts"] is not None:
            acts = True
    return _Top(acts, tuple(imports))


def _names(statement: re.Match[bytes]) -> Iterator[tuple[str, str]]:
    module, names, plain = (part.decode("utf-8", "replace") for part in statement.groups(b""))
    for name, alias in _IMPORTED.findall((names or plain).encode()):
        full, bound = name.decode(), alias.decode()
        if plain:
            yield bound or full.partition(".")[0], full
        elif full == "*":
            yield "*", f"{module}:*"
        else:
            yield bound or full, f"{module}{'' if module.endswith('.') else '.'}{full}"
