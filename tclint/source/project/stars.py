"""The names that `from module import *` may define, judged by the text of the files that it leads to."""

from __future__ import annotations

import re
from functools import lru_cache

from tclint.source.project.folders import data_of
from tclint.source.project.imports import file_of

_STARRED = re.compile(rb"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+\*", re.MULTILINE)


def may_define(path: str, name: str) -> bool:
    """Whether a name occurs in a file or in one that it star-imports."""
    return any(name.encode() in data_of(file) for file in reached_from(path))


def forget() -> None:
    """Read files anew."""
    reached_from.cache_clear()


@lru_cache(maxsize=4096)
def reached_from(path: str) -> tuple[str, ...]:
    """A file and those that it star-imports, directly or indirectly."""
    found = [path]
    for file in found:
        for match in _STARRED.finditer(data_of(file)):
            other = file_of(file, match[1].decode("utf-8", "replace"))
            if other is not None and other not in found:
                found.append(other)
    return tuple(found)
