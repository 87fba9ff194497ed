"""Finds the Python files that the paths on the command line mean."""

from __future__ import annotations

import os
import subprocess
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tclint.config.settings import Settings, matches
from tclint.core.errors import TargetError, UsageError
from tclint.core.git import run_git
from tclint.core.target import RECIPE_SUFFIXES, SCRIPT_SUFFIXES
from tclint.source.syntax.notebooks import SUFFIX

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKIPPED_FOLDERS = frozenset((
    ".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox",
    ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", "__pycache__", "__pypackages__", "_build",
    "buck-out", "build", "dist", "node_modules", "site-packages", "venv"
))  # fmt: skip
"""Folders that are skipped, unless the command line names one of them or a folder inside."""

SUFFIXES = (".py", SUFFIX)
_MOST_FRAMES = 20
"""The most lines of a traceback that are kept, the innermost; endless recursion has thousands."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not analysed, and why, as the end of the sentence 'skipped: it ...'."""

    path: str
    reason: str
    is_part: bool = False
    """Whether only a part of the file's program was left out."""
    details: str = ""
    """The end of a traceback, for `--debug`."""

    @property
    def sentence(self) -> str:
        """The reason in a sentence for a user who named the file."""
        return f"{os.path.relpath(self.path)} could not be linted: {self.reason}."


class Failed(Skipped):
    """A file on which tclint itself failed; such a file must not end the run."""

    __slots__ = ()

    @classmethod
    def of(cls, path: str, error: Exception) -> Failed:
        """The failure that an exception caused."""
        reason = f"tclint failed on it with {type(error).__name__}: {error}; please report this"
        return cls(path, reason, details="".join(traceback.format_exception(error, limit=-_MOST_FRAMES)))


def discover(
    paths: Sequence[str],
    settings: Settings,
    given: Collection[str] = (),
    suffixes: tuple[str, ...] = SUFFIXES,
    named: tuple[str, ...] = (),
) -> tuple[list[str], list[Skipped]]:
    """Absolute paths of the Python files meant, each once, in the order of the arguments.

    A file is taken as it is, unless `settings.force_exclude`; notebooks count as Python files. A folder gives
    what git would track in it, or, outside a repository, what no .gitignore in it excludes;
    `settings.exclude` (gitignore syntax, relative to the folder of the configuration file, else to the
    working directory) and SKIPPED_FOLDERS are left out, and so is what has not changed since
    `settings.changed_since`.

    Args:
        given: absolute paths of files that need not exist, because the caller has their bytes.
        suffixes: suffixes of the wanted files, if not only Python's.
        named: further suffixes, of files that count only if they are named themselves.

    Raises:
        TargetError: a path does not exist, or is neither a folder nor a file with a wanted suffix.
        UsageError: git does not know the revision.
    """
    files: dict[str, None] = {}
    skipped: list[Skipped] = []
    for path in paths:
        problem = refusal(path, given, (*suffixes, *named))
        if problem is not None:
            raise TargetError(problem)
        absolute = os.path.abspath(path)
        if os.path.isdir(absolute):
            changed = _changed_files(absolute, settings.changed_since) if settings.changed_since else None
            for file in _files_of_folder(absolute, skipped, suffixes):
                if _excluded(file, absolute, settings) or is_below(file, settings.left_out):
                    continue
                if changed is None or file in changed:
                    files.setdefault(file)
        elif not (settings.force_exclude and _excluded(absolute, os.path.dirname(absolute), settings)):
            files.setdefault(absolute)
    return list(files), skipped


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether an absolute path is one of the folders or lies in one."""
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def named_files(folder: str, name: str) -> list[str]:
    """Absolute paths of the files of that name below a folder, where `discover` looks for Python files."""
    return list(_files_of_folder(os.path.abspath(folder), [], name))


def refusal(
    path: str,
    given: Collection[str] = (),
    suffixes: tuple[str, ...] = (*SUFFIXES, *RECIPE_SUFFIXES, *SCRIPT_SUFFIXES),
) -> str | None:
    """A sentence for the user on why a path cannot be read as source; None if it can.

    Args:
        given: absolute paths of files that need not exist, because the caller has their bytes.
    """
    is_given = os.path.abspath(path) in given
    if os.path.isdir(path) and not is_given:
        return None
    if not os.path.exists(path) and not is_given:
        if ":" in os.path.basename(path):
            return (
                f"There is no file or folder {path!r}; a model target is written 'path/file.py:callable' "
                "or 'package.module:callable'."
            )
        return f"There is no file or folder {path!r}; give a Python file, a folder, or 'file.py:callable'."
    if not path.lower().endswith(suffixes):
        return (
            f"{path!r} is neither a folder nor a Python file; give a .py or .ipynb file, a configuration of "
            "training (.yaml, .json, .toml, .sh), a folder, or a model as 'file.py:callable'."
        )
    if not is_given and not os.path.isfile(path):
        # Reading a named pipe would block until another process writes to it.
        return f"{path!r} is no regular file but a pipe, a socket or a device; give a file or a folder."
    return None


def _files_of_folder(
    folder: str, skipped: list[Skipped], wanted: str | tuple[str, ...] = SUFFIXES
) -> Iterator[str]:
    """Files whose name ends as wanted."""
    listed = _git_files(folder)
    if listed is None:
        yield from sorted(_walk(folder, skipped, wanted))
        return
    for relative in sorted(listed):
        parts = relative.rstrip("/").split("/")
        if parts == ["."]:
            continue  # The folder of a submodule that is not checked out.
        if any(part in SKIPPED_FOLDERS for part in parts[:-1]):
            continue
        path = os.path.join(folder, *parts)
        if os.path.isdir(path) and not os.path.islink(path):
            # A submodule, or a repository inside this one: git lists it without its files.
            if parts[-1] not in SKIPPED_FOLDERS:
                yield from _files_of_folder(path, skipped, wanted)
        elif relative.endswith(wanted) and os.path.isfile(path):
            yield path


def _git_files(folder: str) -> list[str] | None:
    """The files below a folder that git tracks or would track, relative to it; None if git cannot tell."""
    try:
        top = run_git(folder, "rev-parse", "--show-toplevel")
        if top.returncode != 0:
            return None
        root = os.fsdecode(top.stdout.rstrip(b"\n"))
        # Someone who names an ignored folder wants it linted, though git would list nothing.
        if (
            os.path.realpath(root) != os.path.realpath(folder)
            and run_git(folder, "check-ignore", "-q", folder).returncode == 0
        ):
            return None
        listing = run_git(folder, "ls-files", "-z", "-c", "-o", "--exclude-standard")
    except (OSError, subprocess.SubprocessError):
        return None
    if listing.returncode != 0:
        return None
    return [os.fsdecode(name) for name in set(listing.stdout.split(b"\0")) if name]


def _changed_files(folder: str, revision: str) -> frozenset[str]:
    """Absolute paths of the files below a folder that are changed or new in the working tree."""
    try:
        listings = [
            run_git(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", revision, "--"),
            run_git(folder, "ls-files", "-o", "--exclude-standard", "-z"),
        ]
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"--changed-since needs git, which did not run ({error}).") from error
    if any(listing.returncode for listing in listings):
        raise UsageError(
            f"git cannot compare {folder!r} with {revision!r}: name a revision that this clone holds "
            "(a shallow one, as CI makes it, holds the last commit alone)."
        )
    names = b"".join(listing.stdout for listing in listings).split(b"\0")
    return frozenset(os.path.join(folder, *os.fsdecode(name).split("/")) for name in names if name)


def _walk(folder: str, skipped: list[Skipped], wanted: str | tuple[str, ...]) -> Iterator[str]:
    """Such files below a folder outside git, honouring the .gitignore files on the way."""

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
            if name.endswith(wanted) and os.path.isfile(path) and not _ignored(active, path):
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
