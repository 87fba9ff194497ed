"""Text of others in Markdown: shown literally, whatever it contains."""

from __future__ import annotations

import re

from tclint.core.text import printable

_SPECIAL = re.compile(r"[\\`*_\[\]<>#|~&$@]")
# These make lists, headings and links only in certain places; they are common in text and stay elsewhere.
_LEADING = re.compile(r"^(\s*)([-+=](?=[-+=\s]|$)|\d+(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_QUOTED = re.compile(r"`([^`]+)`")
_WORD_UNDERSCORE = re.compile(r"(?<=[A-Za-z0-9])&#95;(?=[A-Za-z0-9])")


def text(value: str) -> str:
    """`value` as one line of running Markdown text or a table cell.

    Entities rather than backslashes: they are no markup in any place (CommonMark, Entity references),
    while a backslash before a pipe reads differently in tables. Words with underscores stay readable.
    """
    escaped = _SPECIAL.sub(_entity, printable(value))
    escaped = _WORD_UNDERSCORE.sub("_", escaped)
    escaped = _LEADING.sub(lambda match: match[1] + "".join(f"&#{ord(c)};" for c in match[2]), escaped)
    # A zero-width joint keeps addresses from becoming links that nobody meant.
    return _LINK.sub("<!-- -->", escaped)


def code(value: str) -> str:
    """`value` in a fixed-width font; `<code>` and not backquotes, which a value could close."""
    return f"<code>{text(value)}</code>"


def _entity(match: re.Match[str]) -> str:
    # GitHub looks for mentions after entities are read; a zero-width space tells them from a name.
    joint = "&#8203;" if match[0] == "@" else ""
    return f"&#{ord(match[0])};{joint}"


def shortened(value: str, characters: int) -> str:
    """`value` cut to that many characters, with a mark where something is missing."""
    return value if len(value) <= characters else value[: characters - 3].rstrip() + "..."


def prose(value: str) -> str:
    """A sentence whose `quoted` parts are code; everything in it is literal."""
    parts = _QUOTED.split(printable(value))
    return "".join(code(part) if index % 2 else text(part) for index, part in enumerate(parts))


def table(header: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """A table of cells that are Markdown already; columns in `right` are right-aligned."""
    rule = ["---:" if index in right else "---" for index in range(len(header))]
    return [row(cells) for cells in (header, rule, *rows)]


def row(cells: list[str]) -> str:
    """One row of a table whose cells are Markdown already."""
    return f"| {' | '.join(cells)} |"
