"""Reads INI files with the standard library; a scan of their lines finds the places of the keys."""

from __future__ import annotations

import configparser
import re

from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.syntax.positions import Span

_LINE = re.compile(r"\[([^\]]+)\]|([^\s=:#;\[][^=:]*?)\s*[=:]")


def parse_ini(text: str) -> Node:
    """The tree of a text: every value is a text, as programs get it.

    Raises:
        NotReadable: it is not valid INI.
    """
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise NotReadable(str(error).partition("\n")[0]) from error
    places = _places(text)
    return Node(
        {
            section: Node(
                {
                    key: Node(value, places.get((section, key), _START))
                    for key, value in parser.items(section)
                },
                places.get((section, ""), _START),
            )
            for section in parser.sections()
        },
        _START,
    )


_START = Span(1, 1, 1, 1)


def _places(text: str) -> dict[tuple[str, str], Span]:
    """(section, key) -> its line; ('section', '') is that of its header."""
    found: dict[tuple[str, str], Span] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.match(line):
            section = match[1] or section
            found[section, (match[2] or "").lower()] = Span(number, 1, number, len(line) + 1)
    return found
