"""The known formats of configuration files, and the signs by which a file is recognised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from tclint.core.toml import parse_toml
from tclint.source.recipes.rows import Row, rows_of
from tclint.source.recipes.tree import Node
from tclint.source.run.library import Program

_PACKAGE = "tclint.source.recipes.tables"
MAX_BYTES = 200_000
"""Larger files hold data."""
_QUOTED = re.compile(r'"(\w[\w.]*)"')
"""The names of keys in a format's program."""


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs by which a mapping of a format is recognised; tables/README.md explains the fields."""

    at: tuple[str, ...] = ("",)
    keys: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    least: int = 1
    values: Mapping[str, str] | None = None
    words: tuple[str, ...] = ()

    @property
    def spoken(self) -> tuple[bytes, ...]:
        """Bytes that a file with these signs contains."""
        names = (*self.keys, *(self.values or {}), *self.words)
        return tuple(name.rpartition(".")[2].encode() for name in names)

    def found_in(self, tree: Node) -> Node | None:
        """The first mapping that has these signs; None if there is none."""
        return next((node for place in self.at for node in tree.under(place) if self._fits(node)), None)

    def _fits(self, node: Node) -> bool:
        if not node.entries or any(node.at(key) is None for key in self.keys):
            return False
        if self.some and sum(key in node.entries for key in self.some) < self.least:
            return False
        return all(
            fnmatchcase(str(found.value), pattern) if (found := node.at(key)) is not None else False
            for key, pattern in (self.values or {}).items()
        )


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of configuration file."""

    name: str
    """The name in messages: 'DeepSpeed configuration'."""
    suffixes: tuple[str, ...]
    signs: tuple[Signs, ...]
    anchors: tuple[str, ...]
    """Keys of the mapping; findings on settings that a file lacks are reported at the first one present."""
    program: Program
    """The program that trains with such a file; its function `run` gets the mapping with the signs and the
    whole file."""
    step: tuple[Row, ...] = ()
    """The keys that describe the training step."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the mapping's first level that tclint knows, each once."""
        rows = (key for row in self.step for keys in row.keys for key in keys)
        signs = (key for signs in self.signs for key in (*signs.keys, *signs.some))
        known = (*self.anchors, *signs, *rows, *_QUOTED.findall(self.program.text))
        return tuple(dict.fromkeys(key.partition(".")[0] for key in known))

    def may_be(self, suffix: str, data: bytes) -> bool:
        """Whether a file with these bytes can have this format, decided before it is parsed."""
        return suffix in self.suffixes and any(
            all(word in data for word in signs.spoken) for signs in self.signs
        )

    def found_in(self, tree: Node) -> Node | None:
        """The mapping in a tree that has the signs of this format; None if there is none."""
        return next((node for signs in self.signs if (node := signs.found_in(tree)) is not None), None)

    def anchor(self, chosen: Node) -> Node:
        """The node at which findings are reported that concern no single key."""
        return next((node for key in self.anchors if (node := chosen.at(key)) is not None), chosen)


UNKNOWN = Format("configuration", (), (), (), Program("configuration", (), ""))
"""The format of a file that a program reads itself."""


@cache
def formats() -> tuple[Format, ...]:
    """The formats that tclint knows, those with the most specific signs first."""
    tables = {
        entry.name.removesuffix(".toml"): parse_toml(entry.read_text(encoding="utf-8"))
        for entry in sorted(resources.files(_PACKAGE).iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }
    found = [
        (int(table.get("order", 5)), _format(table, rows_of(tables, name))) for name, table in tables.items()
    ]
    return tuple(item for _, item in sorted(found, key=lambda pair: pair[0]))


def _format(table: Mapping[str, Any], step: tuple[Row, ...]) -> Format:
    name = table["name"]
    return Format(
        name,
        tuple(table["suffixes"]),
        tuple(_signs(row) for row in table["signs"]),
        tuple(table.get("anchors", ())),
        Program(name, (name,), table["program"]["text"]),
        step,
    )


def _signs(row: Mapping[str, Any]) -> Signs:
    fields: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item for key, item in row.items()
    }
    return Signs(**fields)


def candidates(path: str, data: bytes) -> Iterator[Format]:
    """The formats that a file may have according to its name and bytes; none if it is too large."""
    suffix = path[path.rfind(".") :].lower()
    if len(data) <= MAX_BYTES:
        yield from (item for item in formats() if item.may_be(suffix, data))
