"""A document for people: headings, sentences, lists and tables, written as text, as Markdown or as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from tclint.core.markup import prose, text
from tclint.core.markup import table as markdown_table
from tclint.core.table import table as text_table
from tclint.core.text import columns, printable, wrapped


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of what follows: of a part (level 1) or of a section in it (2)."""

    title: str
    level: Literal[1, 2] = 2


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences about what is above them, or the items of a list; `code` may stand between backquotes."""

    lines: Sequence[str]
    mark: str = ""
    """What text begins each with: '- ' of a list's items, 'note: ' of what limits the rest."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of which the first names the row; two leading blanks make a row a part of the one above it."""

    header: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    details: Sequence[str] = ()
    """More about each row, in words: the last column of the header is theirs. Text has it beneath the row."""
    words: int = 0
    """How many columns at the end, without that of the details, hold words and not numbers."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing under its title, which HTML alone has."""

    title: str
    draw: Callable[[], str]
    """Returns its markup; '' where there is nothing to draw."""


_STYLE = """
:root { color-scheme: light dark; }
body {
  margin: 0 auto; padding: 1rem; max-width: 72rem; overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, sans-serif;
}
table { border-collapse: collapse; margin: .5rem 0; }
td, th {
  padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #8884;
}
.number { text-align: right; white-space: nowrap; }
.part { padding-left: 1.2rem; }
svg { width: 100%; max-width: 60rem; height: auto; }
svg text { fill: currentColor; font-size: 12px; }
.roof { stroke: currentColor; stroke-dasharray: 5 4; fill: none; }
.tensor { fill: #0a7d55; color: #0a7d55; }
.cuda { fill: #d9730d; }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

Block = Heading | Lines | Table | Figure
Document = Sequence[Block]


# ---------------------------------------------------------------- text


def as_text(document: Document, width: int) -> str:
    """Lines of at most that many columns where words allow it."""
    lines: list[str] = []
    before: Block | None = None
    for block in document:
        shown = list(_text_block(block, width))
        is_near = isinstance(before, Heading) and before.level == 2
        is_near |= isinstance(block, Lines) and not block.mark
        if lines and shown and not is_near:
            lines.append("")
        lines += shown
        before = block if shown else before
    return "".join(f"{line}\n" for line in lines)


def _text_block(block: Block, width: int) -> Iterator[str]:
    match block:
        case Heading(title):
            yield from wrapped(printable(title), width, hanging="  ")
        case Lines(sentences, mark):
            first, hanging = ("  - ", "    ") if mark == "- " else (mark, "  ")
            for sentence in sentences:
                yield from wrapped(printable(sentence), width, first, hanging)
        case Table():
            yield from _text_table(block, width)


def _text_table(block: Table, width: int) -> Iterator[str]:
    """The table; where names are too long for the lines, they stand last, and are broken."""
    header, rows, indent = tuple(block.header), list(block.rows), "      "
    if block.details:
        header = header[:-1]
    names = [printable(row[0]) for row in rows]
    lines = list(text_table(header, rows))
    longest = max(map(columns, names), default=0)
    if longest > width // 3 and max(map(columns, lines)) > width:
        numbers = text_table(("", *header[1:]), [("", *row[1:]) for row in rows], indent="")
        lines = [f"{line}  " for line in numbers]
        indent = " " * max(map(columns, lines))
        lines = [f"{line:{len(indent)}}" for line in lines]
        names = [printable(header[0]), *names]
        broken = [wrapped(name.strip(), width, line, indent) for name, line in zip(names, lines, strict=True)]
    else:
        broken = [[line] for line in lines]
    for number, line in enumerate(broken):
        yield from line
        more = block.details[number - 1] if number and block.details else ""
        yield from wrapped(printable(more), width, indent)


# ---------------------------------------------------------------- Markdown


def as_markdown(document: Document) -> str:
    """Sections below a heading of level 2; all text of others is shown literally."""
    return "\n\n".join(shown for block in document if (shown := "\n".join(_markdown_block(block)))) + "\n"


def _markdown_block(block: Block) -> Iterator[str]:
    match block:
        case Heading(title, level):
            yield f"{'#' * (level + 1)} {text(_titled(title, level))}"
        case Lines(lines):
            yield from (f"- {prose(line)}" for line in lines)
        case Table(header):
            rows = [[_markdown_cell(cell) for cell in row] for row in _whole_rows(block)]
            numbers = frozenset(range(1, _first_words(block)))
            if rows:
                yield from markdown_table([text(_titled(name)) for name in header], rows, right=numbers)


def _markdown_cell(cell: str) -> str:
    return ("&nbsp;&nbsp;" if cell.startswith("  ") else "") + text(cell.strip())


# ---------------------------------------------------------------- HTML


def as_page(document: Document, title: str) -> str:
    """A whole page, which needs no network and runs no scripts."""
    body = "\n".join(shown for block in document if (shown := _html_block(block)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{html_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _html_block(block: Block) -> str:
    match block:
        case Heading(title, level):
            return f"<h{level}>{html_text(_titled(title, level))}</h{level}>"
        case Lines(lines, "- "):
            return f"<ul>{''.join(f'<li>{html_text(line)}</li>' for line in lines)}</ul>" if lines else ""
        case Lines(lines):
            return "".join(f"<p>{html_text(line)}</p>" for line in lines)
        case Table():
            return html_table(block)
        case Figure(title, draw):
            drawn = draw()
            return f"<h2>{html_text(_titled(title))}</h2>\n{drawn}" if drawn else ""


def html_table(block: Table, shown: Callable[[str], str] | None = None) -> str:
    """A table whose rows are named by their first cells; '' where it has none.

    Args:
        shown: makes a cell's text markup; None: `html_text`.
    """
    shown = shown or html_text
    first_words = _first_words(block)

    def cells(row: Sequence[str], scope: str) -> str:
        made = []
        for at, cell in enumerate(row):
            kind = "" if at == 0 or at >= first_words else ' class="number"'
            kind = ' class="part"' if cell.startswith("  ") else kind
            tag, named = ("th", f' scope="{scope}"') if scope == "col" or at == 0 else ("td", "")
            made.append(f"<{tag}{named}{kind}>{shown(cell.strip())}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    rows = "".join(cells(row, "row") for row in _whole_rows(block))
    return f"<table><thead>{cells(block.header, 'col')}</thead><tbody>{rows}</tbody></table>" if rows else ""


def html_text(value: str) -> str:
    """`value` as text or as an attribute's value between quotes; shown literally, whatever it contains."""
    return escape(printable(value))


def _whole_rows(block: Table) -> list[tuple[str, ...]]:
    if not block.details:
        return list(block.rows)
    return [(*row, more) for row, more in zip(block.rows, block.details, strict=True)]


def _first_words(block: Table) -> int:
    """The first of the columns at the end that hold words."""
    return len(block.header) - block.words - bool(block.details)


def _titled(title: str, level: int = 2) -> str:
    """With a capital, unless it is the title of a part, which may begin with a file's name."""
    return title if level == 1 else title[:1].upper() + title[1:]
