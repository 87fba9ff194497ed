"""Source that editors hand over: '-' among the targets, and the name that its file has."""

from __future__ import annotations

import os
import sys

import click

from tclint.core.errors import UsageError

NAME = "stdin.py"
"""What the source goes by where --stdin-filename says nothing."""

stdin_filename_option = click.option(
    "--stdin-filename",
    metavar="FILE",
    help=f"With '-': the file that standard input is, which need not exist; its folder's settings hold.  "
    f"[default: {NAME}]",
)


def read_stdin(
    targets: tuple[str, ...], filename: str | None
) -> tuple[tuple[str, ...], dict[str, bytes] | None]:
    """The targets with the file's name for '-', and its bytes by absolute path; None without '-'.

    Raises:
        UsageError: '-' is not the only target, or a name is given without it.
    """
    if "-" not in targets:
        if filename is not None:
            raise UsageError("--stdin-filename goes with the target '-', which reads standard input.")
        return targets, None
    if len(targets) > 1:
        raise UsageError("'-' reads standard input and stands alone; lint other targets in a second run.")
    name = filename or NAME
    return (name,), {os.path.abspath(name): sys.stdin.buffer.read()}
