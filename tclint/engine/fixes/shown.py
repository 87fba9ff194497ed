"""Places and edits as a plan shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tclint.core.finding import Edit
from tclint.edits.sizes.candidates import FileLine
from tclint.edits.sizes.syntax import text_between
from tclint.engine.check import relative_path
from tclint.engine.fixes.files import texts_of
from tclint.engine.fixes.plan import TextEdit

_MOST_PLACES = 6


def line_at(path: str, line: int) -> tuple[str, int, str]:
    """A place with its text, as `ByHand` has them."""
    lines = texts_of([path]).get(path, "").split("\n")
    return relative_path(path), line, lines[line - 1].strip() if 0 < line <= len(lines) else ""


def places_text(places: Iterable[FileLine]) -> str:
    """'model.py:12, 15, train.py:30'."""
    places = list(dict.fromkeys(places))
    parts, last = [], ""
    for path, line in places[:_MOST_PLACES]:
        parts.append(str(line) if path == last else f"{relative_path(path)}:{line}")
        last = path
    more = len(places) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "")


def text_edits(edits: Sequence[Edit]) -> tuple[TextEdit, ...]:
    """With the text that they replace."""
    texts = texts_of(dict.fromkeys(edit.path for edit in edits))
    found = []
    for edit in edits:
        replaced = text_between(texts[edit.path], edit.start, edit.end)
        found.append(TextEdit(relative_path(edit.path), *edit.start, *edit.end, replaced, edit.replacement))
    return tuple(found)


def digests_of(paths: Iterable[str]) -> dict[str, str]:
    """By path: SHA-256 of what is in the files."""
    found = {}
    for path in dict.fromkeys(paths):
        with open(path, "rb") as file:
            found[path] = hashlib.sha256(file.read()).hexdigest()
    return found
