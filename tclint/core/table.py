"""Tables of text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.core.text import columns, printable


def table(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, indent: str = "  ", header_rows: int = 1
) -> Iterator[str]:
    """Columns two spaces apart, the first to the left, the others to the right.

    Args:
        header_rows: lines to spread the words of a heading over.
    """
    if not rows:
        return
    headings = [_spread(printable(cell), header_rows) for cell in header]
    cells = [
        *(tuple(heading[line] for heading in headings) for line in range(header_rows)),
        *(tuple(printable(cell) for cell in row) for row in rows),
    ]
    widths = [max(columns(row[at]) for row in cells) for at in range(len(header))]
    for row in cells:
        padding = [" " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        others = (space + cell for space, cell in zip(padding[1:], row[1:], strict=True))
        yield indent + "  ".join((row[0] + padding[0], *others)).rstrip()


def _spread(heading: str, lines: int) -> list[str]:
    words = heading.split(" ", lines - 1) if lines > 1 else [heading]
    return [""] * (lines - len(words)) + words
