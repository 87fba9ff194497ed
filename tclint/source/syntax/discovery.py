"""Which Python files the paths on the command line mean."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tclint.config.settings import Settings, matches
from tclint.core.errors import TargetError
from tclint.source.syntax.notebooks import SUFFIX

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKIPPED_FOLDERS = frozenset((
    ".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox",
    ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", "__pycache__", "__pypackages__", "_build",
    "buck-out", "build", "dist", "node_modules", "site-packages", "venv"
))  # fmt: skip
"""Never entered from above; naming one of them, or a folder inside, on the command line does lint it."""

SUFFIXES = (".py", SUFFIX)
_GIT_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not analysed, and why, as the end of the sentence 'skipped: it ...'."""

    path: str
    reason: str


def discover(paths: Sequence[str], settings: Settings) -> tuple[list[str], list[Skipped]]:
    """Absolute paths of the Python files meant, each once, in the order of the arguments.

    A file is taken as it is; notebooks count as Python files. A folder gives what git would track in it,
    or, outside a repository, what no
    .gitignore in it excludes; `settings.exclude` (gitignore syntax, relative to the folder of the
    configuration file, else to the working directory) and SKIPPED_FOLDERS are left out.

    Raises:
        TargetError: a path does not exist, or is neither a folder nor a Python file.
    """
    files: dict[str, None] = {}
    skipped: list[Skipped] = []
    for path in paths:
        problem = refusal(path)
        if problem is not None:
            raise TargetError(problem)
        absolute = os.path.abspath(path)
        if os.path.isdir(absolute):
            for file in _files_of_folder(absolute, skipped):
                if not _excluded(file, absolute, settings):
                    files.setdefault(file)
        else:
            files.setdefault(absolute)
    return list(files), skipped


def refusal(path: str) -> str | None:
    """Why a path cannot be read as source, in a sentence for the user; None where it can."""
    if os.path.isdir(path):
        return None
    if not os.path.exists(path):
        if ":" in os.path.basename(path):
            return (
                f"There is no file or folder {path!r}; a model target is written 'path/file.py:callable' "
                "or 'package.module:callable'."
            )
        return f"There is no file or folder {path!r}; give a Python file, a folder, or 'file.py:callable'."
    if not path.endswith(SUFFIXES):
        return (
            f"{path!r} is neither a folder nor a Python file; give a .py or .ipynb file, a folder, or "
            "a model as 'file.py:callable'."
        )
    if not os.path.isfile(path):
        # To read a named pipe is to wait for whoever writes into it.
        return f"{path!r} is no regular file but a pipe, a socket or a device; give a file or a folder."
    return None


def _files_of_folder(folder: str, skipped: list[Skipped]) -> Iterator[str]:
    listed = _git_files(folder)
    if listed is None:
        yield from sorted(_walk(folder, skipped))
        return
    for relative in sorted(listed):
        parts = relative.rstrip("/").split("/")
        if any(part in SKIPPED_FOLDERS for part in parts[:-1]):
            continue
        path = os.path.join(folder, *parts)
        if os.path.isdir(path) and not os.path.islink(path):
            # A submodule, or a repository inside this one: git lists it without its files.
            if parts[-1] not in SKIPPED_FOLDERS:
                yield from _files_of_folder(path, skipped)
        elif relative.endswith(SUFFIXES) and os.path.isfile(path):
            yield path


def _git_files(folder: str) -> list[str] | None:
    """What git tracks or would track below a folder, relative to it; None where git cannot say."""
    # Hooks run with GIT_DIR and GIT_INDEX_FILE set, which would name another repository's index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", "-C", folder, *arguments],
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
        )

    try:
        top = git("rev-parse", "--show-toplevel")
        if top.returncode != 0:
            return None
        root = os.fsdecode(top.stdout.rstrip(b"\n"))
        # Someone who names an ignored folder wants it linted, though git would list nothing.
        if (
            os.path.realpath(root) != os.path.realpath(folder)
            and git("check-ignore", "-q", folder).returncode == 0
        ):
            return None
        listing = git("ls-files", "-z", "-c", "-o", "--exclude-standard")
    except (OSError, subprocess.SubprocessError):
        return None
    if listing.returncode != 0:
        return None
    return [os.fsdecode(name) for name in set(listing.stdout.split(b"\0")) if name]


def _walk(folder: str, skipped: list[Skipped]) -> Iterator[str]:
    """Python files below a folder outside git, honouring the .gitignore files on the way."""

    def unreadable(error: OSError) -> None:
        path = error.filename or folder
        skipped.append(Skipped(str(path), f"it cannot be read ({error.strerror or error})"))

    specs: dict[str, list[tuple[str, GitIgnoreSpec]]] = {}
    for current, folders, names in os.walk(folder, onerror=unreadable):
        inherited = specs.get(os.path.dirname(current), []) if current != folder else []
        own = _gitignore(os.path.join(current, ".gitignore")) if ".gitignore" in names else None
        active = [*inherited, (current, own)] if own is not None else inherited
        specs[current] = active
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED_FOLDERS
            and not os.path.exists(os.path.join(current, name, "pyvenv.cfg"))
            and not _ignored(active, os.path.join(current, name) + "/")
        )
        for name in names:
            path = os.path.join(current, name)
            if name.endswith(SUFFIXES) and os.path.isfile(path) and not _ignored(active, path):
                yield path


def _gitignore(path: str) -> GitIgnoreSpec | None:
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _spec(file.read().splitlines())
    except OSError:
        return None


def _ignored(specs: list[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    # The innermost .gitignore that speaks of a path decides, as git does it.
    for folder, spec in reversed(specs):
        relative = path[len(folder) :].lstrip(os.sep).replace(os.sep, "/")
        decision = spec.check_file(relative).include
        if decision is not None:
            return decision
    return False


def _spec(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    if not patterns:
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(patterns)


def _excluded(path: str, folder: str, settings: Settings) -> bool:
    if not settings.exclude or settings.exclude_root:
        return settings.excludes(path)
    base = os.getcwd()
    # Without a configuration file, patterns for a folder elsewhere are relative to that folder.
    return matches(settings.exclude, path, base if os.path.commonpath((base, path)) == base else folder)
