"""git, asked about a folder in a way that runs no program which the folder's own configuration names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_SAFE = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
_COMPARING = ("diff", "status")
"""Commands that compare files with the index, for which git runs the filters that .gitattributes names."""
_NO_PROGRAMS = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C"}


def run_git(
    folder: str | Path, command: str, *arguments: str, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """What git answers in a folder; nothing is fetched, written or run for it.

    Raises:
        OSError: git does not run.
        subprocess.SubprocessError: it takes longer than the timeout, or a filter cannot be switched off.
    """
    # Hooks run with GIT_DIR and GIT_INDEX_FILE set, which would name another repository's index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment.update(_NO_PROGRAMS)

    def run(settings: list[str], *rest: str) -> subprocess.CompletedProcess[bytes]:
        options = [part for setting in settings for part in ("-c", setting)]
        return subprocess.run(
            ["git", "-C", str(folder), *options, *rest],
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
        )

    settings = list(_SAFE)
    if command in _COMPARING:
        # A submodule has filters of its own, so what stands in its folder is not compared.
        arguments = ("--ignore-submodules=dirty", *arguments)
        filters = run(settings, "config", "-z", "--name-only", "--get-regexp", r"^filter\.").stdout
        for name in {key.rpartition(".")[0] for key in os.fsdecode(filters).split("\0") if key}:
            if "=" in name:  # such a setting cannot be given with -c
                raise subprocess.SubprocessError(f"its configuration has a strange filter, {name!r}")
            settings += [f"{name}.clean=", f"{name}.process=", f"{name}.required=false"]
    return run(settings, command, *arguments)
