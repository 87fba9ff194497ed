"""Tables of libraries that a project brings for its own frameworks: they are data, and none of it is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from tclint.core.errors import UsageError, closest
from tclint.core.toml import parse_toml
from tclint.source.run.library import Library, Program, Spec, library, shipped
from tclint.source.run.program_text import mistakes

_LISTS = ("call", "method", "program")
_TABLES = (*_LISTS, "alias", "kind", "stars", "value")
_CALL = tuple(item.name for item in fields(Spec))
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "call": _CALL,
    "method": ("of", *_CALL),
    "program": tuple(item.name for item in fields(Program) if item.name != "name"),
}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "call": ("names",),
    "method": ("of", "names"),
    "program": ("names", "text"),
}
_DEFINED = re.compile(r"^[ \t]*(?:async +)?(?:class|def) +(\w+)", re.MULTILINE)
_AT_TOP = re.compile(r"^(?:(?:async +)?(?:class|def) +)?(\w+)(?= *[=(:])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names by which a file shows that it uses one of these libraries."""

    packages: frozenset[str]
    """First parts of full names. A file that imports one of them concerns every rule."""
    words: frozenset[str]
    """Packages and names of functions, methods and classes. Code that uses one of them is worth running."""

    def are_in(self, data: bytes) -> bool:
        return any(re.search(rb"\b%s\b" % re.escape(name.encode()), data) for name in self.packages)


def read_table(path: str) -> dict[str, Any]:
    """The table in a file.

    Raises:
        UsageError: it cannot be read, is not TOML, or says something that no table says.
    """
    shown = os.path.relpath(path)
    try:
        with open(path, encoding="utf-8") as file:
            table = parse_toml(file.read())
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{shown}, which 'libraries' names, cannot be read ({reason}).") from None
    except ValueError as error:
        raise UsageError(f"{shown} is not TOML: {error}.") from None
    for problem in _problems(table):
        raise UsageError(f"{shown}: {problem}")
    return table


def library_of(paths: tuple[str, ...]) -> tuple[Library, OwnNames]:
    """The tables of tclint and of some files, which take precedence, and the names that show their use.

    Raises:
        UsageError: as `read_table`.
    """
    if not paths:
        return library(), OwnNames(frozenset(), frozenset())
    return _library_of(tuple((path, _changed(path)) for path in paths))


@lru_cache(maxsize=4)
def _library_of(files: tuple[tuple[str, int], ...]) -> tuple[Library, OwnNames]:
    tables = [read_table(path) for path, _ in files]
    return Library([*shipped(), *tables], frozenset(_described(tables))), names_in(tables)


def _changed(path: str) -> int:
    """The time of a file's last change, in nanoseconds; 0 if there is no such file."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def names_in(tables: list[dict[str, Any]]) -> OwnNames:
    """The names by which files show that they use the libraries of some tables."""
    packages: set[str] = set()
    words: set[str] = set()
    for table in tables:
        full = list(_full_names(table))
        packages.update(name.partition(".")[0] for name in full)
        words.update(name.rpartition(".")[2] for name in full)
        words.update(name for row in table.get("method", ()) for name in row["names"])
        words.update(name for row in table.get("program", ()) for name in _DEFINED.findall(row["text"]))
    # Entries for a library that tclint knows need no more than the triggers of the rules.
    packages -= {name.partition(".")[0] for table in shipped() for name in _full_names(table)}
    return OwnNames(frozenset(packages), frozenset(word for word in packages | words if "*" not in word))


def _described(tables: list[dict[str, Any]]) -> Iterator[str]:
    """The full names of what some tables describe: modules, and their classes and functions."""
    for table in tables:
        yield from _full_names(table)
        for row in table.get("program", ()):
            for name in _AT_TOP.findall(row["text"]):
                yield from (f"{module}.{name}" for module in row["names"])


def _full_names(table: Mapping[str, Any]) -> Iterator[str]:
    for key in ("call", "program"):
        for row in table.get(key, ()):
            yield from row["names"]
    yield from (*table.get("alias", ()), *table.get("stars", ()))


def _problems(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key not in _TABLES:
            yield f"there is no table {key!r}; known are {', '.join(_TABLES)}.{closest(key, _TABLES)}"
        elif key not in _LISTS:
            if not isinstance(value, dict):
                yield f"[{key}] is a table."
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield f"each entry of {key!r} begins with [[{key}]]."
        else:
            for row in value:
                yield from _problems_of(key, row)


def _problems_of(key: str, row: Mapping[str, Any]) -> Iterator[str]:
    """The problems of one entry."""
    for name in row:
        if name not in _FIELDS[key]:
            yield f"[[{key}]] has no field {name!r}.{closest(name, _FIELDS[key])}"
    for name in _NEEDED[key]:
        if name not in row:
            yield f"an entry of [[{key}]] lacks {name!r}."
            return
    for name in ("names", "parameters"):
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            yield f"{name!r} of [[{key}]] is a list of names, not {value!r}."
            return
    if not row["names"]:
        yield f"an entry of [[{key}]] names nothing."
    elif key == "program":
        yield from _problems_of_text(row["names"][0], row["text"])


def _problems_of_text(name: str, text: object) -> Iterator[str]:
    from tclint.source.syntax.parse import NotPython, parse

    if not isinstance(text, str):
        yield f"the 'text' of {name} is Python, as one string."
        return
    try:
        parse(text)
    except NotPython as error:
        yield f"the 'text' of {name} is not Python: {error}."
        return
    for line, problem in mistakes(text):
        yield f"the 'text' of {name}, line {line}: {problem}"
