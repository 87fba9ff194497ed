"""Python's cache of source lines, which keeps every file that somebody asked for one function of."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator


@contextlib.contextmanager
def forgotten_source_lines() -> Iterator[None]:
    """Drop what the block added to the cache: 40 to 180 KiB, as libraries read the source of their classes.

    Only files, which can be read again; the cells of a notebook stand nowhere else.
    """
    known = set(linecache.cache)
    try:
        yield
    finally:
        for name in linecache.cache.keys() - known:
            entry = linecache.cache[name]
            if entry and len(entry) == 4 and entry[1] is not None:  # its second value is the file's time
                del linecache.cache[name]
