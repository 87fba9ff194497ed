"""What programs rest on besides their Python files, noted while rules ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Question = tuple[str, ...]
"""What is asked, and of what: ('launchers', folder)."""

_noted: ContextVar[dict[Question, object] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[Question, object]]:
    """Collect what is asked within, with the answers."""
    found: dict[Question, object] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note(answer: object, *question: str) -> None:
    """Say what was asked, and what came out."""
    found = _noted.get()
    if found is not None:
        found[question] = answer
