"""Options that several commands share, and what they come to: settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tclint.cli import completion
from tclint.cli.command_group import say
from tclint.config.kinds import Setting, sentence
from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import PRECISIONS, SETTINGS, SETTINGS_BY_KEY, Precision, Settings
from tclint.core.errors import UsageError
from tclint.core.files import check_writable, write_atomically
from tclint.core.terminal import write_stdout
from tclint.report.render import FORMATS, check_format

Command = TypeVar("Command", bound=Callable[..., Any])


def setting_flags(*keys: str) -> Callable[[Command], Command]:
    """The options of these settings, in this order; of all that have one, where none is named."""
    settings = [SETTINGS_BY_KEY[key] for key in keys] or [item for item in SETTINGS if item.has_flag]
    return together(*(_option(setting) for setting in settings))


def _option(setting: Setting) -> Callable[[Command], Command]:
    is_switch = isinstance(setting.default, bool)
    return click.option(
        f"--{setting.key}/--no-{setting.key}" if is_switch else f"--{setting.key}",
        setting.field,
        default=None,
        multiple=isinstance(setting.default, tuple),
        metavar=setting.kind.metavar or None,
        help=_help(setting),
        shell_complete=completion.of_kind(setting.kind),
    )


def _help(setting: Setting) -> str:
    """The setting's help with its default, unless that says nothing."""
    default = setting.default
    if default is None or isinstance(default, bool) or default in ((), ""):
        return setting.help
    shown = ", ".join(default) if isinstance(default, tuple) else f"{default}"
    return f"{setting.help}  [default: {shown.removesuffix('.0')}]"


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
        help="Read [tool.tclint] from this file instead of the nearest pyproject.toml.",
    ),
    click.option("--isolated", is_flag=True, help="Read no configuration file."),
)


def format_of(*formats: str, help: str = "{}", default: str = "text") -> Callable[[Command], Command]:
    """The option --format of a command that has these.

    Args:
        help: the formats stand in the place of its braces.
    """

    def checked(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
        return check_format(value, formats)

    return click.option(
        "--format",
        "format_name",
        default=default,
        metavar="FORMAT",
        help=help.format(f"{', '.join(formats[:-1])} or {formats[-1]}") + f".  [default: {default}]",
        callback=checked,
        shell_complete=completion.of_choices(formats),
    )


format_option = format_of(*FORMATS, help="What goes to standard output: {}")
list_format_option = format_of("text", "json")


def output_of(*formats: str, help: str) -> Callable[[Command], Command]:
    """The option --output: formats and files, checked before any work is done."""

    def parsed(
        _context: click.Context, _parameter: click.Parameter, texts: Sequence[str]
    ) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for text in texts:
            name, equals, file = text.partition("=")
            if not equals or not file:
                raise UsageError(f"--output takes FORMAT=FILE, such as json=report.json; you gave {text!r}.")
            check_format(name, formats)
            check_writable(file)
            if any(os.path.abspath(file) == os.path.abspath(other) for _, other in found):
                raise UsageError(f"--output names the file {file!r} twice; give each report its own.")
            found.append((name, file))
        return found

    return click.option(
        "--output", "outputs", multiple=True, metavar="FORMAT=FILE", help=help, callback=parsed
    )


output_option = output_of(*FORMATS, help="Write a report to a file as well; may be repeated.")


def _writable(_context: click.Context, _parameter: click.Parameter, file: str | None) -> str | None:
    if file is not None:
        check_writable(file)
    return file


file_option = click.option("--output", metavar="FILE", help="Write it to a file.", callback=_writable)


def write_output(text: str, file: str | None) -> None:
    """To the file that `file_option` names, else to standard output."""
    if file is not None:
        write_atomically(file, text)
    else:
        write_stdout(text)


precisions_option = click.option(
    "--precision",
    "precisions",
    default="",
    metavar="NAMES",
    help="Precisions to price in, separated by commas.  [default: fp16]",
    callback=lambda _context, _parameter, text: _precisions_in(text),
    shell_complete=completion.of_choices(PRECISIONS),
)
verbose_option = click.option(
    "--verbose", "-v", count=True, help="List everything that is otherwise only counted."
)
no_color_option = click.option(
    "--no-color", is_flag=True, help="Use no colours; the variable NO_COLOR does the same."
)
shown_options = together(output_option, verbose_option, no_color_option)
"""Those of commands that show reports, beside --format; `tclint.cli.reports.show` takes their values."""
scheduler_option = click.option(
    "--scheduler",
    default="",
    metavar="ADDRESS",
    help="Run on the workers of a dask.distributed scheduler: tcp://10.0.0.1:8786.",
)


def named_config(flags: Mapping[str, Any]) -> tuple[str | None, bool]:
    """What `config_options` name: a file, and whether none is read.

    Raises:
        UsageError: both are given.
    """
    config, isolated = flags["config"], flags["isolated"]
    if config is not None and isolated:
        raise UsageError("--config and --isolated exclude each other; give one of them.")
    return config, isolated


def settings_of_target(flags: Mapping[str, Any], target: str) -> Settings:
    """Those that hold for the only target of a run."""
    settings, _ = read_settings(flags, (target,))
    return next((own for _, own in settings.nested), settings)


def read_settings(
    flags: Mapping[str, Any], targets: Sequence[str] = (), *, declared: bool = False
) -> tuple[Settings, Path | None]:
    """Settings of the configuration file under the flags that were given, and that file; of `targets` each
    has the settings of its own nearest file, unless one is named.

    Args:
        flags: of the command line, with those of `config_options`.
        declared: the run builds declared models.
    """
    config, isolated = named_config(flags)
    file = None
    if config is not None:
        file = Path(config)
    elif not isolated:
        file = find_config(Path.cwd())
    settings = load_config(file) if file is not None else Settings()
    given = parse_flags(flags)
    settings = with_flags(settings, given)
    if targets and config is None and not isolated:
        from tclint.engine.declared_models import with_nested

        settings = with_nested(settings, file, targets, given)
        for _, nested in settings.nested:
            for key, sentence in nested.refused:
                if declared or key != "models":
                    say(f"note: {sentence}")
    if settings.select or settings.extend_select or settings.ignore or settings.overrides or settings.nested:
        from tclint.engine.retired import retired_selectors

        for sentence in retired_selectors(settings):
            say(f"note: {sentence}")
    return settings, file


def parse_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those flags that were given, by field of Settings."""
    return {
        setting.field: value if isinstance(value, bool) else parse_flag(setting, value)
        for setting in SETTINGS
        if (value := flags.get(setting.field)) is not None and value != ()
    }


def parse_flag(setting: Setting, value: str | Sequence[str]) -> Any:
    """The value of a flag, parsed as its key is.

    Raises:
        UsageError: it is not what the setting expects.
    """
    value = value if isinstance(value, str) else list(value)
    try:
        return setting.kind.parse(value)
    except ValueError as error:
        raise UsageError(sentence(f"--{setting.key} {error}", value)) from None


def _precisions_in(text: str) -> tuple[Precision, ...]:
    """Those of `precisions_option`; none where it is not given."""
    kind = SETTINGS_BY_KEY["precision"].kind
    try:
        return tuple(dict.fromkeys(kind.parse(part.strip()) for part in text.split(","))) if text else ()
    except ValueError as error:
        raise UsageError(f"--precision {error}; you gave {text!r}.") from None


STDIN_NAME = "stdin.py"
"""What the source goes by where --stdin-filename says nothing."""

stdin_filename_option = click.option(
    "--stdin-filename",
    metavar="FILE",
    help=f"With '-': the file that standard input is, which need not exist; its folder's settings hold.  "
    f"[default: {STDIN_NAME}]",
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
    name = filename or STDIN_NAME
    return (name,), {os.path.abspath(name): sys.stdin.buffer.read()}
