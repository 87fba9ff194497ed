"""Files that code writes while it is imported or built: those of the user stay as they are."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tclint.tracing.patches.made_folders import remove
from tclint.tracing.patches.patch import nothing, patch, patched

_WRITING = frozenset("wax+")


class _Kept:
    """Where writes below some folders go instead."""

    def __init__(self, folders: Sequence[str], names: list[str]) -> None:
        self._folders = [os.path.join(os.path.abspath(folder), "") for folder in folders]
        self._scratch = ""
        self._made: list[str] = []
        self._instead: dict[str, str] = {}
        self._open, self._mkdir = builtins.open, os.mkdir
        self._names = names

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """As `open`, but for files below the folders that would be written."""
        path = self._own(file)
        if path is not None and _WRITING & set(mode) and path not in self._instead:
            self._scratch = self._scratch or tempfile.mkdtemp(prefix="tclint_")
            place = os.path.join(self._scratch, f"{len(self._instead)}_{os.path.basename(path)}")
            if os.path.isfile(path):
                shutil.copy(path, place)
            self._note(path)
            self._instead[path] = place
        return self._open(self._instead.get(path or "", file), mode, *args, **kwargs)

    def mkdir(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As `os.mkdir`, for a while."""
        self._mkdir(path, *args, **kwargs)
        if (own := self._own(path)) is not None:
            self._made.append(own)
            self._note(own)

    def remove(self) -> None:
        """Take away what was made meanwhile, but for folders in which something lies all the same."""
        remove(self._made)
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _own(self, file: Any) -> str | None:
        """The file's path, where it lies below one of the folders, in none whose name begins with a dot."""
        if not isinstance(file, str | os.PathLike):
            return None
        path = os.path.abspath(os.fsdecode(file))
        folder = next((folder for folder in self._folders if path.startswith(folder)), None)
        inside = "" if folder is None else path[len(folder) :]
        hidden = any(part.startswith((".", "__pycache__")) for part in inside.split(os.sep))
        return path if inside and not hidden else None

    def _note(self, path: str) -> None:
        name = os.path.relpath(path)
        if not any(name.startswith(os.path.join(other, "")) for other in self._names):
            self._names.append(name)


@patch(
    replaces="`open`, `io.open`, `os.mkdir` and `torch.save`",
    why="a script that is imported for its model must leave no files where its user works",
)
def nothing_written(folders: Sequence[str], names: list[str]) -> Iterator[None]:
    """Keep files below the folders as they are, and note the names of those that would have been written."""
    kept = _Kept([folder for folder in folders if folder != tempfile.gettempdir()], names)
    replaced = [(builtins, "open", kept.open), (io, "open", kept.open), (os, "mkdir", kept.mkdir)]
    try:
        with patched([*replaced, (torch, "save", nothing)]):
            yield
    finally:
        kept.remove()


@patch(
    replaces="`torch.Tensor.backward`",
    why="a script that trains when it is imported would do so for hours; what it defined before is traced",
)
def no_training() -> Iterator[None]:
    with patched([(torch.Tensor, "backward", _refuse)]):
        yield


def _refuse(*_args: Any, **_kwargs: Any) -> None:
    raise RuntimeError("the file trains when it is imported")
