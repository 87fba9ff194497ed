"""The command, run in this process: one of its own imports torch and all else anew, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from tclint.cli.main import cli


class Done(NamedTuple):
    """What `subprocess.run` tells of a command."""

    returncode: int
    stdout: str
    stderr: str


def tclint(*arguments: str, cwd: Path | None = None) -> Done:
    """Run the command in a folder."""
    before = os.getcwd()
    os.chdir(cwd or before)
    try:
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    finally:
        os.chdir(before)
    return Done(result.exit_code, result.stdout, result.stderr)
