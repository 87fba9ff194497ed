"""The provenance of a report (tclint, torch, Python and commit), so that reports can be compared."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from tclint.core.git import run_git
from tclint.core.version import __version__
from tclint.engine.report import Report

GIT_TIMEOUT_S = 5.0

_PACKAGES = ("tclint", "tclint_rules")
_CONTENT = (".py", ".toml")


@lru_cache(maxsize=1)
def tool_hash() -> str:
    """A hash, of 16 hex digits, of tclint's code, rules and calibrations; equal hashes mean equal
    predictions."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for name, file in _files(package):
            digest.update(f"{package}/{name}\0".encode())
            digest.update(file.read_bytes())
            digest.update(b"\0")
    return digest.hexdigest()[:16]


def is_hashed(code: object) -> bool:
    """Whether a class, an object or a function is tclint's own, so that `tool_hash` tells when it changes.

    Local rules may change at any time.
    """
    return code.__module__.partition(".")[0] in _PACKAGES


def tool(report: Report) -> dict[str, Any]:
    """Name, version and hash of the tclint that made a report."""
    return report.made_with.get("tool") or {"name": "tclint", "version": __version__, "hash": tool_hash()}


def _files(package: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(folder)
        for file in sorted(root.rglob("*")):
            if file.suffix in _CONTENT and file.is_file():
                yield file.relative_to(root).as_posix(), file


def provenance(report: Report) -> dict[str, Any]:
    """The versions that a prediction can depend on; None for what is not installed.

    `torch` is the version that traced the entries, else the one that is installed here.
    """
    if report.made_with:
        return dict(report.made_with["provenance"])
    traced = sorted({entry.torch_version for entry in report.entries if entry.torch_version})
    return {
        "python": platform.python_version(),
        "torch": ", ".join(traced) or _installed("torch"),
        "git": git_state(Path.cwd()),
    }


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any]:
    """The commit, its time and whether tracked files differ from it; or `{"unavailable": reason}`."""
    if git_root(folder) is None:
        return {"unavailable": "not a git repository"}
    try:
        commit, commit_time = _git(folder, "log", "-1", "--format=%H%n%cI").split("\n")[:2]
        dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except FileNotFoundError:
        return {"unavailable": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"unavailable": f"git took longer than {GIT_TIMEOUT_S:g} s"}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {"unavailable": "git could not read the repository (no commit yet, or another owner)"}
    return {"commit": commit, "commit_time": commit_time, "dirty": dirty}


def git_root(folder: Path) -> Path | None:
    """The folder itself or the nearest one above it that contains `.git`; None if there is none."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return None


def _git(folder: Path, command: str, *arguments: str) -> str:
    answer = run_git(folder, command, *arguments, timeout_s=GIT_TIMEOUT_S)
    answer.check_returncode()
    return answer.stdout.decode("utf-8", "replace")
