"""Paths and hashes of lines as code hosts want them."""

from __future__ import annotations

import os
from array import array
from collections import Counter, deque
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from tclint.engine.provenance import git_root

WINDOW = 100
BASE = 37
END_OF_FILE = 65535

_MODULUS = 2**64
_LEAVING = pow(BASE, WINDOW - 1, _MODULUS)


def line_hashes(text: str) -> list[str]:
    """The hash of every line, in order; an end of file behind a line end counts as a line."""
    units = _units(text)
    starts = [0, *(position + 1 for position, unit in enumerate(units[:-1]) if unit == 10)]
    window = deque(units[:WINDOW] + [0] * (WINDOW - len(units[:WINDOW])))
    value = 0
    for unit in window:
        value = (value * BASE + unit) % _MODULUS
    following = iter(units[WINDOW:])
    wanted = iter(starts)
    at = next(wanted)
    seen: Counter[int] = Counter()
    hashes = []
    for position in range(len(units)):
        if position == at:
            seen[value] += 1
            hashes.append(f"{value:x}:{seen[value]}")
            at = next(wanted, -1)
        entering = next(following, 0)
        value = ((value - window.popleft() * _LEAVING) * BASE + entering) % _MODULUS
        window.append(entering)
    return hashes


def _units(text: str) -> list[int]:
    """UTF-16 units that count, and the mark for the end of the file."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    units = array("H")
    units.frombytes(kept.encode("utf-16-le", "surrogatepass"))
    return [*units, END_OF_FILE]


class RepositoryPaths:
    """Maps a report's paths (relative to the working directory) to paths in its repository.

    The root is the nearest folder upwards with a `.git`, else GITHUB_WORKSPACE where that holds the
    working directory, else the working directory itself.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = os.path.realpath(folder or Path.cwd())
        self.root = _root(self.folder)
        self._resolved = lru_cache(maxsize=None)(self._resolve)

    def relative(self, path: str) -> str | None:
        """`path` from the root with forward slashes; None where it lies outside the repository."""
        return self._resolved(path)

    def absolute(self, path: str) -> str:
        """The file itself, links resolved where the system can know the path at all."""
        joined = os.path.join(self.folder, path)
        try:
            return os.path.realpath(joined)
        except ValueError:  # a null byte, or a surrogate that stands for no byte
            return os.path.normpath(joined)

    def _resolve(self, path: str) -> str | None:
        try:
            relative = os.path.relpath(self.absolute(path), self.root)
        except ValueError:  # another drive
            return None
        relative = relative.replace(os.sep, "/")
        return None if relative == ".." or relative.startswith("../") else relative


def _root(folder: str) -> str:
    found = git_root(Path(folder))
    if found is not None:
        return str(found)
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    if workspace:
        workspace = os.path.realpath(workspace)
        if folder == workspace or folder.startswith(workspace + os.sep):
            return workspace
    return folder


def relative_uri(path: str) -> str:
    """A relative path as a URI reference (RFC 3986): bytes of the file's name, percent-encoded.

    A colon in the first segment would read as a scheme, so colons are encoded too.
    """
    return quote(path.encode("utf-8", "surrogateescape" if _escapes_only(path) else "replace"), safe="/~")


def file_uri(path: str) -> str:
    """An absolute path as a file URI."""
    path = path.replace(os.sep, "/")
    return "file://" + relative_uri(path if path.startswith("/") else f"/{path}")


def _escapes_only(path: str) -> bool:
    """True if every lone surrogate stands for an undecodable byte, as os.fsdecode makes them."""
    return all("\udc80" <= character <= "\udcff" for character in path if "\ud800" <= character <= "\udfff")
