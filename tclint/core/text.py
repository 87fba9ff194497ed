"""Text from anywhere, made safe to print."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

_UNIT = re.compile(r"(?<=\d) (?=%|(?:[num]?s|[KMGT]i?B|[KMGT]?FLOPs?|GPU-hours?)\b)")
_TIED = "\0"
"""Stands for the blank between a number and its unit while lines are broken: `textwrap` breaks at blanks."""
_LINES = re.compile(r"\blines? \d+(?:(?:, | and )\d+)*|(?:(?<=\.py)|(?<=\.ipynb)):\d+(?::\d+)?")


def printable(text: str) -> str:
    """`text` on one line, with every character that could steer a terminal written as its escape.

    Names, messages and source lines come from files that somebody else wrote: newlines, ANSI sequences,
    bidirectional overrides and lone surrogates become visible ('\\x1b', '\\u202e').
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if named:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many terminal columns a printable text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def listed(names: Sequence[str], most: int) -> str:
    """'a', 'a and b', 'a, b and 2 more': at most that many of the names."""
    shown = list(names if len(names) <= most else names[:most])
    if len(shown) < len(names):
        shown.append(f"{len(names) - len(shown)} more")
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def with_article(word: str) -> str:
    """'a float', 'an int'."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """`text` in lines of at most that many columns, broken between words only, not before a unit.

    Args:
        indent: of the first line.
        hanging: of the others; None: the same.
    """
    import textwrap

    lines = textwrap.wrap(
        _UNIT.sub(_TIED, text),
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIED, " ") for line in lines]


def without_lines(message: str) -> str:
    """A message without the lines that it names, which move with the code above them."""
    return _LINES.sub("", message)


def digest(text: str) -> str:
    """16 hex digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
