"""The command `server`: the language server on standard input and output."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tclint.cli.options import config_options, named_config, parse_flags, setting_flags
from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import Settings
from tclint.core.errors import UsageError


@click.command("server")
@setting_flags(
    "select", "extend-select", "ignore", "gpu", "precision", "mode", "batch", "min-gain", "cache", "baseline"
)
@config_options
def server(**flags: Any) -> int:
    """Speak the language server protocol on standard input and output, for editors (docs/how-to/editors.md).

    Every file gets the settings of its nearest pyproject.toml, overridden by the flags given here.
    Opening and editing run no code of yours except the local rules of the workspace's own pyproject.toml;
    models are traced on request.
    """
    config, isolated = named_config(flags)
    try:
        from tclint.server.language_server import make_server
    except ImportError as error:
        raise UsageError(
            f"The language server needs pygls 2 ({error}): install 'tensorcore-lint[lsp]'."
        ) from error
    from tclint.engine.declared_models import met_settings

    given = parse_flags(flags)
    named = None if config is None else Path(config).absolute()

    def settings_of(path: str) -> Settings:
        run_file = named if named is not None or isolated else find_config(Path.cwd())
        run = with_flags(load_config(run_file) if run_file is not None else Settings(), given)
        if named is not None or isolated:
            return run
        file = find_config(Path(path).absolute().parent)
        return met_settings(file, run, run_file, given) if file is not None else with_flags(Settings(), given)

    if named is not None:
        settings_of("")
    # What a local rule prints must not stand between two messages.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A trace that is cut short by the editor's end leaves nothing behind.
    with tempfile.TemporaryDirectory(prefix="tclint-server-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        make_server(settings_of).start_io(stdout=messages)
    return 0
