"""Finds the configuration files of a project that hold what a program reads of one."""

from __future__ import annotations

import os
from functools import lru_cache

from tclint.source.project.folders import data_of
from tclint.source.project.test_paths import is_test_path
from tclint.source.syntax.discovery import SKIPPED_FOLDERS

_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_LARGEST = 100_000
_MOST = 2_000
"""In a project with more such files, most are data."""


def naming(root: str, *keys: str) -> list[str]:
    """The paths of the configuration files below a folder whose text has all of some keys, without those of
    tests."""
    wanted = [key.encode() for key in keys]
    return [path for path in _files_in(root) if all(key in data_of(path) for key in wanted)]


@lru_cache(maxsize=4)
def _files_in(root: str) -> list[str]:
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            # A pipe would be waited for.
            if name.endswith(_SUFFIXES) and os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
                found.append(path)
        if len(found) > _MOST:
            return []
    return [path for path in found if not is_test_path(path)]


def forget() -> None:
    """Look for the files anew."""
    _files_in.cache_clear()
