"""Edits to new text: those of several fixes at once, as long as they do not get in each other's way."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tclint.core.finding import Edit
from tclint.edits.document import Change, Lines


def apply_edits(text: str, fixes: Sequence[Sequence[Edit]]) -> tuple[str, list[int]]:
    """The text with fixes made, and the positions in `fixes` of those that were.

    A fix is made as a whole or not at all. One that touches what an earlier one changes is left for the
    next round, unless it makes the very same change there; so is one whose result does not parse.
    """
    lines = Lines(text)
    several = [
        [Change(lines.offset(*edit.start), lines.offset(*edit.end), edit.replacement) for edit in edits]
        for edits in fixes
    ]
    chosen: list[int] = []
    changes: list[Change] = []
    for index, own in enumerate(several):
        fresh = [change for change in own if change not in changes]
        if any(_collide(change, other) for change in fresh for other in changes):
            continue
        chosen.append(index)
        changes += fresh
    result = _applied(text, changes)
    if _parses(result):
        return result, chosen
    # One of them is at fault; which one shows when they are made one by one.
    kept: list[int] = []
    changes = []
    for index in chosen:
        fresh = [change for change in several[index] if change not in changes]
        if _parses(_applied(text, [*changes, *fresh])):
            kept.append(index)
            changes += fresh
    return _applied(text, changes), kept


def _collide(one: Change, other: Change) -> bool:
    return one.start <= other.end and other.start <= one.end


def _applied(text: str, changes: Sequence[Change]) -> str:
    parts: list[str] = []
    at = 0
    # Stable: insertions of one fix at one place keep their order.
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        parts += (text[at : change.start], change.text)
        at = change.end
    return "".join((*parts, text[at:]))


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
