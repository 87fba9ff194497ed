"""Text of others as text of a page."""

from __future__ import annotations

from html import escape

from tclint.core.markup import shortened
from tclint.core.text import printable

CHARACTERS = 1_000


def text(value: str) -> str:
    """`value` as text or as an attribute's value between quotes; shown literally, whatever it contains."""
    return escape(printable(shortened(value, CHARACTERS)), quote=True)
