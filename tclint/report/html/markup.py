"""Text of others as text of a page."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from tclint.core.document import html_text
from tclint.core.markup import shortened

CHARACTERS = 1_000


def text(value: str) -> str:
    """`value` as text or as an attribute's value between quotes; shown literally, whatever it contains."""
    return html_text(shortened(value, CHARACTERS))


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
