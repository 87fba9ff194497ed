"""The oldest torch that a project says it runs with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache

_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_REQUIREMENT = re.compile(
    r"""(?im)^[^#\n]*?(?<![\w.-])(?:py)?torch(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?["'=\s{]*(?:version\s*=\s*["'])?"""
    r"""(?P<operator>>=|==|~=|\^|>)\s*(?P<major>\d+)\.(?P<minor>\d+)"""
)


def oldest_torch(path: str) -> tuple[int, int] | None:
    """Major and minor version of the lower bound on torch in the nearest requirements above a file.

    The lowest of several; None where nothing states one.
    """
    return _in_folder(os.path.dirname(os.path.abspath(path)))


@lru_cache(maxsize=4096)
def _in_folder(folder: str) -> tuple[int, int] | None:
    versions = [version for file in _requirements(folder) for version in _versions(file)]
    if versions:
        return min(versions)
    above = os.path.dirname(folder)
    if above == folder or os.path.exists(os.path.join(folder, ".git")):
        return None
    return _in_folder(above)


def _requirements(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name in _FILES or (name.startswith("requirements") and name.endswith((".txt", ".in"))):
            yield os.path.join(folder, name)


def _versions(file: str) -> Iterator[tuple[int, int]]:
    if not os.path.isfile(file):
        return
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            text = stream.read(1_000_000)
    except OSError:
        return
    for match in _REQUIREMENT.finditer(text):
        yield int(match["major"]), int(match["minor"])
