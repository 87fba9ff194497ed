"""Reads TOML with the standard library; a scan of its lines finds the places of the keys."""

from __future__ import annotations

import re
from typing import Any

from tclint.core.toml import parse_toml
from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.syntax.positions import Span

_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=\s*")
_PART = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")
_PROBLEM_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")


def parse_toml_tree(text: str) -> Node:
    """The tree of a text.

    Raises:
        NotReadable: it is not valid TOML.
    """
    try:
        table = parse_toml(text)
    except ValueError as error:
        found = _PROBLEM_LINE.search(str(error))
        line, column = (int(found[1]), int(found[2])) if found else (1, 1)
        raise NotReadable(_PROBLEM_LINE.sub("", str(error)).strip(), line, column) from error
    return _node(table, (), _places(text), Span(1, 1, 1, 1))


def _node(value: Any, path: tuple[str, ...], places: dict[tuple[str, ...], Span], around: Span) -> Node:
    span = places.get(path, around)
    if isinstance(value, dict):
        return Node({key: _node(item, (*path, key), places, span) for key, item in value.items()}, span)
    if isinstance(value, list):
        return Node([_node(item, path, places, span) for item in value], span)
    return Node(value, span)


def _places(text: str) -> dict[tuple[str, ...], Span]:
    """Full name of a table or key -> its place; the first place counts.

    Words inside multi-line texts and lists may be taken for keys, which does no harm since nobody asks for
    them.
    """
    found: dict[tuple[str, ...], Span] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        content = line.rstrip()
        if header := _TABLE.match(line):
            table = _parts(header[1])
            place = header
        elif key := _KEY.match(line):
            place = key
            content = _without_comment(content)
        else:
            continue
        path = table if place.re is _TABLE else (*table, *_parts(place[1]))
        column = place.start() + len(place[0]) - len(place[0].lstrip()) + 1
        end = place.end() if place.re is _TABLE else len(content)
        found.setdefault(path, Span(number, column, number, end + 1))
    return found


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _without_comment(line: str) -> str:
    quote = ""
    for position, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            return line[:position].rstrip()
    return line
