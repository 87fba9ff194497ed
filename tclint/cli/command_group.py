"""How the command line is run: the default command, and every error as one sentence and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from tclint.core.errors import TclintError, UsageError, closest
from tclint.core.target import is_model_target
from tclint.core.terminal import is_terminal
from tclint.core.text import printable
from tclint.core.units import plural

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

_IMPLIED = "tclint.check_implied"
_OWN_OPTIONS = ("--help", "-h", "--version")


class CommandGroup(click.Group):
    """A group whose help shows the whole first sentence of each command, which click cuts to one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            listed = sorted(self.commands.items())
            formatter.write_dl([(name, command.get_short_help_str(10_000)) for name, command in listed])


class DefaultCommandGroup(CommandGroup):
    """`tclint TARGET...` means `tclint check TARGET...`; every error is one sentence and exit code 2."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """With the option that every command has."""
        super().add_command(cmd, name)
        for command in (cmd, *getattr(cmd, "commands", {}).values()):
            if not isinstance(command, click.Group) and all(part.name != "debug" for part in command.params):
                command.params.append(
                    click.Option(
                        ["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."
                    )
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        elif args[0] in self.commands:
            self._note_path_of_that_name(args)
        elif args[0] not in _OWN_OPTIONS:
            ctx.meta[_IMPLIED] = True
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def _note_path_of_that_name(self, args: Sequence[str]) -> None:
        name = args[0]
        if os.path.exists(name) and (name != "check" or len(args) == 1):
            say(f"note: {name!r} is also a path here; 'tclint check {name}' lints it.")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands; where none begins like that, it is the first target that is being typed."""
        found = super().shell_complete(ctx, incomplete)
        targets = next(part for part in self.commands["check"].params if part.name == "targets")
        return found or targets.shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            if is_terminal(sys.stderr):  # it stands behind ^C
                sys.stderr.write("\n")
            finished = getattr(getattr(interrupt, "report", None), "entries", ())
            say(f"interrupted after {plural(len(finished), 'model')}" if finished else "interrupted")
            ctx.exit(EXIT_INTERRUPTED)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any
    ) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name or "tclint", **extra)
        except click.ClickException as error:
            code = _fail(_sentence(error), error, arguments)
        except TclintError as error:
            code = _fail(str(error), error, arguments)
        except Exception as error:
            text = f"internal error, {type(error).__name__}: {error}"
            code = _fail(f"{text}; please report it with the output of --debug.", error, arguments)
        sys.exit(code or 0)


def _sentence(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        text = f"There is no option {error.option_name!r}.{closest(error.option_name, _options(error))}"
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tclint"
        text = f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} See '{command} --help'."
    return text


def _options(error: click.UsageError) -> list[str]:
    """The options of the command that was called wrongly."""
    parameters = error.ctx.command.params if error.ctx else []
    return [name for parameter in parameters for name in parameter.opts if name.startswith("--")]


def _fail(message: str, error: BaseException, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        import traceback

        say("".join(traceback.format_exception(error)).rstrip(), lines=True)
    say(f"error: {message}")
    return EXIT_ERROR


def say(message: str, *, lines: bool = False) -> None:
    """To stderr, safe for a terminal; nobody listening is no error."""
    parts = message.split("\n") if lines else [message]
    text = "".join(f"{printable(part.expandtabs(4))}\n" for part in parts)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.encode("utf-8", "backslashreplace").decode("utf-8"))
        sys.stderr.flush()


def refuse_command_names(ctx: click.Context, targets: Sequence[str]) -> None:
    """A target that might be meant as a command is never taken for the one or the other in silence.

    Raises:
        UsageError: `check` was only implied, and a target reads like a command.
    """
    group = ctx.parent.command if ctx.parent else None
    if not ctx.meta.get(_IMPLIED) or not isinstance(group, click.Group):
        return
    names = tuple(group.commands)
    for target in targets:
        if target in names and os.path.exists(target):
            raise UsageError(
                f"{target!r} is a command and a path here: write 'tclint {target} ...' for the command, "
                f"'tclint check ... {target}' for the path."
            )
        if target in names:
            raise UsageError(f"{target!r} is a command, and a command comes first: 'tclint {target} ...'.")
    first = targets[0] if targets else ""
    if first.isidentifier() and not os.path.exists(first) and not is_model_target(first):
        guess = closest(first, names) or " 'tclint --help' shows what there is."
        raise UsageError(f"There is no command, file or folder {first!r}.{guess}")
