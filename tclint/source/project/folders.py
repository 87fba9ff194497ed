"""The contents of a project's folders and files, each read once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache

_LEVELS = 6
"""The most folders to go up; sources do not lie deeper in their projects."""


@lru_cache(maxsize=16_384)
def names_in(folder: str) -> frozenset[str]:
    """The names in a folder; empty if it does not exist or cannot be read."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def upwards(folder: str) -> Iterator[str]:
    """A folder and those above it, up to the top of the repository, but no more than projects are deep."""
    for _ in range(_LEVELS):
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder or ".git" in names_in(folder):
            break
        folder = parent


def forget() -> None:
    """Read them anew."""
    names_in.cache_clear()
    data_of.cache_clear()


def holds_file(folder: str, name: str) -> bool:
    """Whether a folder has a file of this name."""
    return name in names_in(folder) and os.path.isfile(os.path.join(folder, name))


@lru_cache(maxsize=8192)
def data_of(path: str) -> bytes:
    """The bytes of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
