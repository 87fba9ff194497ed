"""Which files a target's trace rests on: the modules that it imported, and what its code opened."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from tclint.tracing.values.sites import SiteFinder

_WRITING = os.O_WRONLY | os.O_RDWR
_SKIPPED_FOLDERS = frozenset({"__pycache__", ".tclint_cache", ".git"})


def watch(folder: str) -> Callable[[], list[str]]:
    """Start to note the files that are opened; the function that returns them with the imported ones.

    The paths are absolute and sorted. Installed packages, the standard library and this tool are left out;
    opened files count where they lie below `folder` or the working directory, as a model's YAML file does.
    An audit hook cannot be taken back, so only a process that serves a single target may call this.
    """
    roots = tuple(os.path.join(os.path.realpath(root), "") for root in (folder, os.getcwd()))
    opened: set[str] = set()
    # Made now: the code under test may remove the working directory, and then nobody can ask for it.
    finder = SiteFinder()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        flags = arguments[2]
        if isinstance(flags, int) and flags & _WRITING:
            return
        # The code under test may have replaced what this rests on; that is its own problem, not an error.
        with contextlib.suppress(Exception):
            opened.add(os.path.abspath(os.fsdecode(arguments[0])))

    sys.addaudithook(note)
    return lambda: _files(opened, roots, finder)


def _files(opened: set[str], roots: tuple[str, ...], finder: SiteFinder) -> list[str]:
    found = {
        os.path.normpath(file)
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str) and os.path.isabs(file)
    }
    found |= {path for path in set(opened) if os.path.realpath(path).startswith(roots)}
    return sorted(
        path
        for path in found
        if os.path.isfile(path)
        and not _SKIPPED_FOLDERS.intersection(path.split(os.sep))
        and finder.is_user_file(path)
    )
