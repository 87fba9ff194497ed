"""Which files of a project speak of each other, by the words of their imports; nothing is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping

_IMPORT = re.compile(r"^\s*(?:from|import)\s.*$|^.*\bimport_?(?:lib|module)\b.*$", re.MULTILINE)


def imported(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files and what they import, themselves or through others.

    Args:
        texts: Python files, by path.
        first: those to begin with.
    """
    words = {path: _imported_words(text) for path, text in texts.items()}
    return _closure(first, lambda path, other: _module(other) in words[path], texts)


def connected(texts: Mapping[str, str], first: Iterable[str]) -> set[str]:
    """Files, what they import and what imports them, themselves or through others."""
    words = {path: _imported_words(text) for path, text in texts.items()}
    return _closure(
        first, lambda path, other: _module(other) in words[path] or _module(path) in words[other], texts
    )


def _closure(
    first: Iterable[str], leads_to: Callable[[str, str], bool], texts: Mapping[str, str]
) -> set[str]:
    found: set[str] = set()
    following = {path for path in first if path in texts}
    while following:
        found |= following
        following = {
            other for path in following for other in texts if other not in found and leads_to(path, other)
        }
    return found


def _imported_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(_IMPORT.findall(text))))


def _module(path: str) -> str:
    """The last part of a file's name as a module: its package's for an __init__.py."""
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    return os.path.basename(folder) if stem == "__init__" else stem
