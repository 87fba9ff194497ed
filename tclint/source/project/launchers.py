"""Launchers, the files that start programs: shell scripts, configurations, pages with commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from tclint.source.project.noted import note
from tclint.source.project.scripts import root_of

_NAMES = ("*.sh", "*.bash", "*.slurm", "*.y*ml", "*.md", "*.rst", "Makefile")


def launchers_match(path: str, pattern: re.Pattern[bytes]) -> bool:
    """Whether a pattern matches a launcher beside a file or in a folder above it in its project."""
    return any(pattern.search(data) for folder in _folders(path) for data in _noted(folder))


def passed_by(path: str, tool: str) -> list[dict[str, str]]:
    """The options of a tool such as 'accelerate launch' in each command that starts a file with it.

    Options after the file's name are the program's own and left out.
    """
    name, found = os.path.basename(path), []
    for folder in _folders(path):
        for data in _noted(folder):
            text = data.decode("utf-8", "replace").replace("\\\n", " ") if tool.encode() in data else ""
            for line in text.splitlines():
                _, is_there, rest = line.partition(f"{tool} ")
                words = rest.split() if is_there else []
                at = next((index for index, word in enumerate(words) if os.path.basename(word) == name), None)
                if at is not None:
                    found.append(_options(words[:at]))
    return found


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word, following in pairwise((*words, "")):
        if word.startswith("--"):
            option, has_value, value = word[2:].partition("=")
            found[option] = value if has_value else following.strip("'\"")
    return found


def forget() -> None:
    """Read files anew."""
    launchers_in.cache_clear()


def _noted(folder: Path) -> tuple[bytes, ...]:
    found = launchers_in(folder)
    note(found, "launchers", str(folder))
    return found


def _folders(path: str) -> Iterator[Path]:
    root = os.path.realpath(root_of(path))
    for folder in Path(path).resolve().parents if os.path.isfile(path) else ():
        yield folder
        if str(folder) == root:
            break


@lru_cache(maxsize=256)
def launchers_in(folder: Path) -> tuple[bytes, ...]:
    """The contents of the launchers in a folder and in its folders of scripts and configurations."""
    inner = (folder, *folder.glob("*script*"), *folder.glob("*config*"))
    found = []
    for path in (path for where in inner for name in _NAMES for path in where.glob(name)):
        # Reading a pipe would block.
        if path.is_file():
            try:
                found.append(path.read_bytes())
            except OSError:
                continue
    return tuple(found)
