"""Options that several commands share, and what they come to: settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tclint.cli import completion
from tclint.config.keys import KEYS, KEYS_BY_NAME, Key, parse_flag
from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import Settings
from tclint.core.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def flag(name: str, **options: Any) -> Callable[[Command], Command]:
    """An option that says what the key of that name in [tool.tclint] says."""
    key = KEYS_BY_NAME[name]
    return click.option(
        f"--{name}",
        key.field,
        default=None,
        help=_help(key),
        shell_complete=completion.of_key(name),
        **options,
    )


def _help(key: Key) -> str:
    """The key's help with its default, unless that says nothing."""
    default = getattr(Settings(), key.field)
    if default is None or default in ((), ""):
        return key.help
    shown = ", ".join(default) if isinstance(default, tuple) else f"{default}"
    return f"{key.help}  [default: {shown.removesuffix('.0')}]"


def together(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator for several options."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


config_options = together(
    click.option(
        "--config",
        "config",
        metavar="FILE",
        help="Read [tool.tclint] of this file, not of the nearest pyproject.toml.",
    ),
    click.option("--isolated", is_flag=True, help="Read no configuration file."),
)
no_color_option = click.option("--no-color", is_flag=True, help="No colours; so does the NO_COLOR variable.")
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
list_format_option = click.option(
    "--format",
    "format_name",
    default="text",
    metavar="FORMAT",
    help="text or json.  [default: text]",
    shell_complete=completion.of_choices(("text", "json")),
)


def read_settings(config: str | None, isolated: bool, flags: dict[str, Any]) -> tuple[Settings, Path | None]:
    """Settings of the configuration file under the flags that were given, and that file."""
    if config is not None and isolated:
        raise UsageError("--config and --isolated exclude each other; give one of them.")
    file = None
    if config is not None:
        file = Path(config)
    elif not isolated:
        file = find_config(Path.cwd())
    settings = load_config(file) if file is not None else Settings()
    names = {key.field: key.name for key in KEYS}
    given: dict[str, object] = {}
    for field, value in flags.items():
        if value is None or value == ():
            continue
        given[field] = value if isinstance(value, bool) else _parse(names[field], value)
    return with_flags(settings, given), file


def _parse(name: str, value: str | tuple[str, ...]) -> object:
    if isinstance(value, str):
        return parse_flag(name, value)
    items = [part.strip() for text in value for part in text.split(",")] if name == "gpu" else list(value)
    return parse_flag(name, items)
