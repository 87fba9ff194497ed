"""Repositories of several projects: the nearest configuration file of each file and target holds for it.

What concerns the run as a whole (RUN_FIELDS) is the word of the file nearest to the working directory, and
flags of the command line win over all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tclint.config.pyproject import FILE_NAME, find_config
from tclint.config.settings import Settings
from tclint.core.target import is_model_target
from tclint.source.syntax.discovery import is_below, named_files

RUN_FIELDS = (
    "cache",
    "changed_since",
    "fail_on",
    "jobs",
    "memory_limit_mib",
    "network",
    "timeout_s",
)


def with_nested(
    settings: Settings, config: Path | None, targets: Sequence[str], load: Callable[[Path], Settings]
) -> Settings:
    """Settings that know the configuration files of the targets' own folders.

    Args:
        config: the file that `settings` are from; None: there is none.
        targets: as typed.
        load: reads one, under the flags of the command line.

    Raises:
        UsageError: one cannot be read, or says something wrong.
    """
    own = None if config is None else os.path.abspath(config)
    found: dict[str, Path] = {}
    for target in targets:
        path = os.path.abspath(file_of(target))
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        nearest = find_config(Path(folder)) if os.path.isdir(folder) else None
        files = [] if nearest is None else [str(nearest)]
        if os.path.isdir(path):
            inner = (file for file in named_files(path, FILE_NAME) if os.path.basename(file) == FILE_NAME)
            files += [file for file in inner if not settings.excludes(os.path.dirname(file) + "/")]
        for file in files:
            # A file without a section of tclint's is none of its own.
            nearest = find_config(Path(file).parent)
            if nearest is not None and str(nearest) == file != own:
                found.setdefault(os.path.dirname(file), nearest)
    if not found:
        return settings
    run = {name: getattr(settings, name) for name in RUN_FIELDS}
    nested = []
    for folder, at in sorted(found.items(), key=lambda item: -len(item[0])):
        loaded = load(at)
        nested.append((folder, replace(loaded, **run, baseline=settings.baseline or loaded.baseline)))
    return replace(settings, nested=tuple(nested))


def file_of(target: str) -> str:
    """The file or folder that a target names; that of a module's import name is not known."""
    return target.rpartition(":")[0] if is_model_target(target) and ".py:" in target else target


def grouped(targets: Sequence[Any], settings: Settings) -> dict[Settings, list[Any]]:
    """The targets by the settings that hold for them, those of the run first; folders count for each project
    that they hold."""
    groups: dict[Settings, list[Any]] = {}
    folders = [folder for folder, _ in settings.nested]

    def of(folder: str) -> Settings:
        own = next((found for root, found in settings.nested if root == folder), settings)
        inner = tuple(
            other for other in folders if other != folder and (folder == "" or is_below(other, [folder]))
        )
        return replace(own, nested=(), left_out=inner)

    for target in targets:
        path = os.path.abspath(file_of(target)) if isinstance(target, str) else ""
        owner = next((folder for folder in folders if path and is_below(path, [folder])), "")
        groups.setdefault(of(owner), []).append(target)
        if path and os.path.isdir(path):
            for folder in folders:
                if folder != owner and is_below(folder, [path]):
                    groups.setdefault(of(folder), []).append(os.path.relpath(folder))
    return groups
