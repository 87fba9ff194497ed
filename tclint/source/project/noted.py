"""Notes what programs depend on besides their Python files, while rules ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Question = tuple[str, ...]
"""A kind of question and its subject: ('launchers', folder)."""

_noted: ContextVar[dict[Question, object] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[Question, object]]:
    """Collect the questions asked within the context, with their answers."""
    found: dict[Question, object] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note(answer: object, *question: str) -> None:
    """Note a question and its answer."""
    found = _noted.get()
    if found is not None:
        found[question] = answer
