"""The command `init`: a commented configuration for the project in the working directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from tclint.cli.command_group import say
from tclint.cli.init_config import Plan
from tclint.cli.options import debug_option, parse_flag, setting_flags
from tclint.config.pyproject import find_config
from tclint.config.settings import SETTINGS_BY_KEY
from tclint.core.terminal import ProgressLine, write_stdout


@click.command()
@setting_flags("gpu")
@click.option("--print", "print_only", is_flag=True, help="Print the section; write nothing.")
@debug_option
def init(gpus: tuple[str, ...], print_only: bool) -> int:
    """Write a commented [tool.tclint] section into ./pyproject.toml.

    Models are found by reading the Python files here; nothing of them runs.
    """
    from tclint.cli import init_config

    chosen = _known(gpus)
    with ProgressLine() as progress:
        progress("reading the project")
        planned = init_config.plan(Path.cwd(), chosen)
    for path in planned.files_unread:
        say(f"note: {os.path.relpath(path)} cannot be read as Python 3.")
    if print_only:
        write_stdout(planned.section)
        return 0
    outer = find_config(Path.cwd().parent)
    if outer is not None:
        say(f"note: {outer} has settings too; here the new file replaces them.")
    init_config.write(planned)
    write_stdout("".join(f"{line}\n" for line in _said(planned)))
    return 0


def _said(planned: Plan) -> list[str]:
    lines = [f"[tool.tclint] is in {planned.file.name}."]
    found = len(planned.declared)
    if found:
        lines.append(f"  tclint check --models   # traces the {found} declared model{'s' * (found > 1)}")
    elif planned.possible:
        lines.append(
            "  Its models stand as comments: give them their arguments, then 'tclint check --models'."
        )
    lines.append("  tclint .                # reads the training code; nothing runs")
    return lines


def _known(texts: Sequence[str]) -> list[str]:
    """The names in texts as they were given, if all are known.

    Raises:
        UsageError: one is no GPU.
    """
    from tclint.cost.gpu import load_gpu

    names = parse_flag(SETTINGS_BY_KEY["gpu"], texts)
    for name in names:
        load_gpu(name)
    return list(names)
