"""Text of others as text of a page."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence

from tclint.core.document import html_text
from tclint.core.markup import shortened

CHARACTERS = 1_000
_TIMES = re.compile(r"(?:(?<![\w.])|(?<=\dx))(\d[\d.]*)( ?)x(?=\2\b|\2\d)")
"""The letter after a number: '2.87x', '8x1024', '256 x 512'."""


def text(value: str) -> str:
    """`value` as text or as an attribute's value between quotes; shown literally, whatever it contains."""
    return html_text(shortened(value, CHARACTERS))


def signs(sentence: str) -> str:
    """A sentence with the signs that a terminal may lack: plus-minus, arrow and multiplication. Code in
    backticks stays as it is."""
    parts = sentence.split("`")
    for index in range(0, len(parts), 2):
        part = parts[index].replace("+-", "\N{PLUS-MINUS SIGN}").replace(" -> ", " \N{RIGHTWARDS ARROW} ")
        parts[index] = _TIMES.sub("\\1\\2\N{MULTIPLICATION SIGN}", part)
    return "`".join(parts)


Cell = tuple[str, float | None]
"""Markup, and what the page's script sorts it by; None: its text."""


def overview_section(
    title: str,
    header: Sequence[str],
    numbers: Collection[str],
    rows: Iterable[Sequence[Cell]],
    after: str = "",
) -> str:
    """The table that the page's script lets be sorted.

    Args:
        title: 'Models'.
        numbers: columns that are right-aligned.
        rows: the first cell names its row.
        after: markup beneath the table.
    """
    kinds = {name: " class='number'" if name in numbers else "" for name in header}
    heads = "".join(f"<th scope='col'{kind}>{text(name)}</th>" for name, kind in kinds.items())
    body = []
    for (name, _), *others in rows:
        cells = "".join(
            f"<td{kinds[column]}{_size(size)}>{shown}</td>"
            for (shown, size), column in zip(others, header[1:], strict=True)
        )
        body.append(f"<tr><th scope='row'>{name}</th>{cells}</tr>")
    return (
        f"<section id='overview'><h2>{title}</h2>"
        f"<div class='scroll tall' tabindex='0' role='region' aria-label='Table of {title.lower()}'>"
        f"<table id='models'><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{after}</section>"
    )


def _size(size: float | None) -> str:
    return f" data-size='{size:.6g}'" if size is not None and math.isfinite(size) else ""
