"""Parsed tables kept between runs, in the user's cache folder: unchanged files are not parsed again.

An entry is named by a hash of the text and of everything that turns texts into tables, so that it never has
to be checked for staleness. Entries are read with an unpickler that knows nothing but the tables' classes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import forget_oldest, write_bytes_atomically
from tclint.core.version import __version__
from tclint.source.syntax import tables as tables_module
from tclint.source.syntax.parse import NotPython, Parsed, parse, what_is_broken
from tclint.source.syntax.positions import Span
from tclint.source.syntax.tables import Tables

_KEPT = 16_384
"""The most entries that are kept; the oldest ones are removed first."""
_CODE = ("tables.py", "walk.py", "scopes.py", "expressions.py", "encoding.py", "parse.py", "positions.py")
_BUILTINS = {"Ellipsis": ..., "complex": complex}


@dataclass(frozen=True, slots=True)
class TablesCache:
    """Tables and positions by text, in one folder."""

    folder: Path

    @classmethod
    def of(cls, settings: Settings) -> TablesCache | None:
        """The user's cache; None when it is switched off, or has no folder that is safe to use."""
        base = private_folder("tables") if settings.cache else None
        return None if base is None else cls(base)

    def parse(self, text: str) -> Parsed:
        """As `tclint.source.syntax.parse.parse`, from the cache where it holds the text.

        Raises:
            NotPython: as `parse`.
        """
        key = _key(text.encode("utf-8", "surrogatepass"))
        kept = self._load(f"{key}.tables")
        if isinstance(kept, Tables):
            return Parsed(text, kept, lambda: self._spans(key, kept.node_ids, lambda: parse(text)))
        parsed = parse(text)
        self._store(f"{key}.tables", parsed.tables)
        return Parsed(text, parsed.tables, lambda: self._spans(key, parsed.tables.node_ids, lambda: parsed))

    def what_is_broken(self, data: bytes) -> NotPython | None:
        """As `tclint.source.syntax.parse.what_is_broken`, from the cache where it holds the answer."""
        name = f"{_key(data)}.broken"
        kept = self._load(name)
        if not isinstance(kept, tuple):
            found = what_is_broken(data)
            kept = () if found is None else (str(found), found.line, found.column)
            self._store(name, kept)
        return NotPython(*kept) if kept else None

    def limit(self, kept: int = _KEPT) -> None:
        """Remove the oldest entries beyond that many."""
        forget_oldest(self.folder, kept, "*")

    def _spans(self, key: str, node_ids: int, parsed: Callable[[], Parsed]) -> tuple[Span, ...]:
        """The positions of a file, which are stored apart from the tables since only files with findings need
        them."""
        kept = self._load(f"{key}.spans")
        if isinstance(kept, tuple) and len(kept) == 4 * node_ids:
            return tuple(Span(*kept[start : start + 4]) for start in range(0, len(kept), 4))
        spans = parsed().spans
        self._store(f"{key}.spans", tuple(number for span in spans for number in span))
        return spans

    def _load(self, name: str) -> object:
        """The contents of an entry; None if it is missing or damaged."""
        try:
            with open(self.folder / name, "rb") as file:
                return _Unpickler(file).load()
        except Exception:
            # A damaged or forged entry is ignored and the file parsed.
            return None

    def _store(self, name: str, value: object) -> None:
        # Expressions too deep for pickle, and all files if the folder is not writable, are parsed each time.
        with contextlib.suppress(OSError, UsageError, RecursionError, pickle.PicklingError):
            write_bytes_atomically(str(self.folder / name), pickle.dumps(value, protocol=5))


def private_folder(name: str) -> Path | None:
    """A folder of the user's cache, made if need be, that nobody else can write to; None if there is none."""
    folder = user_folder(name)
    return folder if folder is not None and _private(folder) else None


@contextlib.contextmanager
def temporary_cache() -> Iterator[None]:
    """An empty cache in place of the user's, for work that repeats itself; it is gone afterwards."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before


def user_folder(name: str) -> Path | None:
    """A folder below XDG_CACHE_HOME or in the platform's folder for caches; None if there is neither."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA", "")
        else:
            base = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return Path(base, "tclint", name) if os.path.isabs(base) else None


def _private(folder: Path) -> bool:
    """Make the folder if need be, and return whether nobody else can write to it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == tables_module.__name__ and isinstance(found := getattr(tables_module, name, None), type):
            return found
        if module == "builtins" and name in _BUILTINS:
            return _BUILTINS[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of tables")


def _key(data: bytes) -> str:
    return hashlib.sha256(_maker() + data).hexdigest()


@lru_cache(maxsize=1)
def _maker() -> bytes:
    """A hash of the code that turns texts into tables: tclint and this Python."""
    digest = hashlib.sha256(repr((__version__, sys.version, sys.implementation.name)).encode())
    for name in _CODE:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.digest()
