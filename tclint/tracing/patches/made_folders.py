"""Folders that code makes while it is imported or built: they are taken away where nothing lies in them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence


class _Later:
    file = ""
    """Gets the folders that were made, a line each; '' where no other process may need them."""


def remove_later(file: str) -> None:
    """Leave the folders that models make in this process to `remove_made`, which gets the same file: a model
    that is traced in a process beside this one may go on in them."""
    _Later.file = file


def remove(folders: Sequence[str]) -> None:
    """Take away the folders that a model made, now or with those of the other processes."""
    if _Later.file:
        lines = "".join(f"{json.dumps(folder)}\n" for folder in folders)
        with contextlib.suppress(OSError), open(_Later.file, "a", encoding="utf-8") as file:
            file.write(lines)
    else:
        _remove_empty(folders)


def remove_made(file: str) -> None:
    """Take away the folders that the processes of a run made."""
    with contextlib.suppress(OSError, ValueError), open(file, encoding="utf-8") as lines:
        _remove_empty([json.loads(line) for line in lines])


def _remove_empty(folders: Sequence[str]) -> None:
    for folder in sorted(set(folders), key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
