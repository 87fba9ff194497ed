"""Reads configuration files: recognises the format and gives the settings with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tclint.core.target import SCRIPT_SUFFIXES
from tclint.source.recipes.formats import MAX_BYTES, UNKNOWN, Format, candidates, formats
from tclint.source.recipes.ini_text import parse_ini
from tclint.source.recipes.interpolation import resolved
from tclint.source.recipes.shell_text import parse_shell
from tclint.source.recipes.toml_text import parse_toml_tree
from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.recipes.yaml_text import parse_yaml
from tclint.source.run.files import File
from tclint.source.run.values import NONE, Place, Setting, Thing, Value
from tclint.source.syntax.parse import NotPython, decode, parse
from tclint.source.syntax.positions import Span

_DEEPEST = 30


@dataclass
class Recipe:
    """A configuration file of a known format."""

    path: str
    format: Format
    root: Node
    chosen: Node
    """The mapping to which the format applies."""
    file: File
    _spans: list[Span] = field(default_factory=list)

    def value_of(self, node: Node) -> Value:
        """A node as a value of a program, whose constants know their places."""
        return self._value(node, 0)

    def place(self, node: Node) -> Place:
        """The place of a node."""
        self._spans.append(node.span)
        return Place(self.file, self.file.tables.module, len(self._spans) - 1)

    def _value(self, node: Node, depth: int) -> Value:
        if isinstance(node.value, dict | list) and depth > _DEEPEST:
            return Thing("", "configuration")
        if isinstance(node.value, dict):
            made = Thing("dict", "dict")
            for key, item in node.entries.items():
                made.fields["item", key] = self._value(item, depth + 1)
            return made
        if isinstance(node.value, list):
            made = Thing("list", "list")
            for position, item in enumerate(node.value):
                made.fields["item", position] = self._value(item, depth + 1)
            made.fields["[]"] = Setting(len(node.value), self.place(node))
            return made
        found = resolved(self.root, node)
        if found is None:
            made = Thing("", "outside")
            made.fields["@chosen by"] = Setting(node.value, self.place(node))
            return made
        if found is not node:
            return self._value(found, depth + 1)
        if node.value is None:
            return NONE
        return Setting(node.value, self.place(node))


def read_tree(path: str, data: bytes) -> Node:
    """The tree of a file.

    Raises:
        NotReadable: the file is broken.
        NotPython: it is not text.
    """
    text = decode(data)
    if path.lower().endswith(".toml"):
        return parse_toml_tree(text)
    if path.lower().endswith(SCRIPT_SUFFIXES):
        return parse_shell(text)
    return parse_yaml(text, is_json=path.lower().endswith(".json"))


def read_recipe(path: str, data: bytes) -> Recipe | None:
    """A file's settings; None if the file has no known format.

    Raises:
        NotReadable: the file is broken, though its bytes look like one.
    """
    if len(data) > MAX_BYTES:
        return None
    tree = read_tree(path, data)
    found = next(_fitting(list(candidates(path, data)), tree), None)
    if found is None:
        return None
    return _recipe(path, data, found[0], tree, found[1])


def recipe_of(name: str, settings: Mapping[str, object]) -> Recipe:
    """The settings that a running program has, as those of a file of the format of that name."""
    data = json.dumps(settings).encode()
    tree = parse_yaml(data.decode(), is_json=True)
    return _recipe(name, data, next(item for item in formats() if item.name == name), tree, tree)


def _read_any(path: str, data: bytes) -> Node:
    """The tree of a file that a program names: one of `configparser` has no name of its own."""
    try:
        tree = read_tree(path, data)
    except NotReadable:
        return parse_ini(decode(data))
    return tree if tree.entries else parse_ini(decode(data))


def settings_of(path: str, data: bytes) -> Value | None:
    """The contents of a configuration file of any format; None if it cannot be read."""
    try:
        tree = _read_any(path, data) if len(data) <= MAX_BYTES else None
    except (NotReadable, NotPython):
        return None
    if tree is None or not tree.entries:
        return None
    return _recipe(path, data, UNKNOWN, tree, tree).value_of(tree)


def _recipe(path: str, data: bytes, format_: Format, tree: Node, chosen: Node) -> Recipe:
    text = decode(data)
    spans: list[Span] = []
    file = File(path, parse("").tables, lambda: tuple(spans), text.splitlines)
    return Recipe(path, format_, tree, chosen, file, spans)


def _fitting(possible: list[Format], tree: Node) -> Iterator[tuple[Format, Node]]:
    for item in possible:
        node = item.found_in(tree)
        if node is not None:
            yield item, node


__all__ = ["NotReadable", "Recipe", "read_recipe", "read_tree", "recipe_of"]
