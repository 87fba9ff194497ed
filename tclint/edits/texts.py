"""Edits as reports contain them: ranges of a text with their replacements."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Sequence
from itertools import accumulate

from tclint.core.finding import Edit

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, as Python counts them; the last one may be empty."""
    found = _LINE.findall(text)
    # At the end of the text the pattern matches once more, unless the last match was a line end.
    return found[:-1] if len(found) > 1 and not found[-2].endswith(("\r", "\n")) else found


def edits_between(path: str, before: str, after: str) -> tuple[Edit, ...]:
    """The edits that turn one text into another, each as short as its lines allow."""
    old, new = lines_of(before), lines_of(after)
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    matcher = difflib.SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    )
    edits = []
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind == "equal":
            continue
        was, now = old[head + first : head + last], new[head + new_first : head + new_last]
        # Lines are compared one by one, so that text after a changed line is an edit of its own that fixes
        # can share. At the text's end this is impossible: nothing can follow a last line without an end.
        both = min(len(was), len(now)) if head + last < len(old) else 0
        pairs = [*zip(was[:both], now[:both], strict=True), ("".join(was[both:]), "".join(now[both:]))]
        edits += [
            _edit(path, head + first + index, *pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]
        ]
    return tuple(edits)


def _edit(path: str, line: int, was: str, now: str) -> Edit:
    """The edit between two versions of a text that begins at a line, counted from 0."""
    start = _alike(was, now)
    same = _alike(was[start:][::-1], now[start:][::-1])
    # There is no position between the two characters of a line end.
    if was[:start].endswith("\r"):
        start, same = start - 1, 0
    if same and (was[len(was) - same] == "\n" or now[len(now) - same] == "\n"):
        same -= 1
    end = len(was) - same
    return Edit(path, _position(was[:start], line), _position(was[:end], line), now[start : len(now) - same])


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of items that two sequences share at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _position(text: str, line: int) -> tuple[int, int]:
    """The line and column, from 1, of the end of a text that begins at a line, counted from 0."""
    lines = lines_of(text)
    return line + len(lines), len(lines[-1]) + 1


def apply_edits(text: str, fixes: Sequence[Sequence[Edit]]) -> tuple[str, list[int]]:
    """The text with fixes made, and the positions in `fixes` of those that were made.

    A fix is made as a whole or not at all. A fix that overlaps an earlier one is left for the next round,
    unless it makes exactly the same change there; so is a fix whose result does not parse.
    """
    chosen: list[int] = []
    edits: list[Edit] = []
    for index, own in enumerate(fixes):
        fresh = [edit for edit in own if edit not in edits]
        if not any(_collide(edit, other) for edit in fresh for other in edits):
            chosen.append(index)
            edits += fresh
    result = _applied(text, edits)
    if any(edit.path.endswith(".ipynb") for edit in edits) and _is_json(text):
        return (result, chosen) if _is_json(result) else (text, [])
    if _parses(result):
        return result, chosen
    # One of the fixes is at fault; making them one by one shows which.
    kept: list[int] = []
    edits = []
    for index in chosen:
        fresh = [edit for edit in fixes[index] if edit not in edits]
        if _parses(_applied(text, [*edits, *fresh])):
            kept.append(index)
            edits += fresh
    return _applied(text, edits), kept


def _collide(one: Edit, other: Edit) -> bool:
    return one.start <= other.end and other.start <= one.end


def _applied(text: str, edits: Sequence[Edit]) -> str:
    starts = [0, *accumulate(map(len, lines_of(text)))]

    def offset(position: tuple[int, int]) -> int:
        return starts[position[0] - 1] + position[1] - 1

    parts: list[str] = []
    at = 0
    # The sort is stable, so insertions of one fix at one place keep their order.
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += (text[at : offset(edit.start)], edit.replacement)
        at = offset(edit.end)
    return "".join((*parts, text[at:]))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
