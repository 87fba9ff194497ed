"""Commands that change files: `fix`, `baseline`, and what `check` does with --fix and --baseline."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tclint.cli import completion
from tclint.cli.command_group import CommandGroup, say
from tclint.cli.models import check_declared
from tclint.cli.options import config_options, read_settings, read_stdin, setting_flags, stdin_filename_option
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import check_writable
from tclint.core.rule import UNREADABLE_CODE
from tclint.core.target import is_model_target
from tclint.core.terminal import ProgressLine, write_stdout_bytes
from tclint.core.text import printable
from tclint.core.units import plural
from tclint.engine.report import Report

if TYPE_CHECKING:
    from tclint.engine.fixes.files import FixedFile
    from tclint.engine.fixes.sources import FixOutcome

unsafe_fixes_option = click.option(
    "--unsafe-fixes", is_flag=True, help="Apply fixes that change what the program computes as well."
)
diff_option = click.option(
    "--diff", is_flag=True, help="Show as a unified diff what would be fixed; change nothing."
)


def fix(
    targets: Sequence[str],
    report: Report,
    *,
    unsafe_fixes: bool,
    diff: bool,
    quiet: bool,
    contents: Mapping[str, bytes] | None = None,
    planned: Sequence[FixedFile] = (),
    beside_models: bool = False,
) -> FixOutcome:
    """Fix what a report found in sources, or show it; say on stderr what came of it.

    Args:
        targets: of the run.
        report: of it; with `contents`, or those of `planned`.
        unsafe_fixes: unsafe fixes as well.
        diff: show the changes instead.
        quiet: say nothing but errors.
        contents: what was read from standard input; it is written to standard output, fixed.
        planned: files as the fixes of models make them, which the diff shows too.
        beside_models: whether fixes of models were planned in the same run: files are told by their names.

    Raises:
        UsageError: standard output cannot be written.
    """
    from tclint.engine.declared_models import check_targets
    from tclint.engine.fixes.files import unified_diff, write_each
    from tclint.engine.fixes.sources import fix as run
    from tclint.source.syntax.cache import temporary_cache

    paths = [target for target in targets if not is_model_target(target)]
    given = contents or {file.path: file.after for file in planned}

    settings = report.settings

    def relint(changed: Mapping[str, bytes]) -> Report:
        again = check_targets(paths, _with_cache(settings), contents=changed)
        return replace(again, settings=settings)

    # Without the user's cache, each round would read every file again.
    with contextlib.nullcontext() if settings.cache else temporary_cache():
        outcome = run(report, relint, unsafe=unsafe_fixes, contents=given)
    if diff:
        originals = {file.path: file.before for file in planned}
        again = {file.path for file in outcome.files}
        of_sources = [replace(file, before=originals.get(file.path, file.before)) for file in outcome.files]
        write_stdout_bytes(unified_diff([*(it for it in planned if it.path not in again), *of_sources]))
    elif contents:
        fixed = {file.path: file.after for file in outcome.files}
        write_stdout_bytes(b"".join(fixed.get(path, data) for path, data in contents.items()))
    else:
        outcome.files, refused = write_each(outcome.files)
        outcome.refused += refused
    for sentence in outcome.refused:
        say(f"error: {sentence}")
    nothing_was_linted = report.errors and not report.entries and not report.source_files
    nothing_to_say = beside_models and not outcome.files and not outcome.unsafe
    if not quiet and not nothing_was_linted and not nothing_to_say:
        say(outcome.summary(unsafe_fixes=unsafe_fixes, diff=diff, named=beside_models))
    return outcome


def _with_cache(settings: Settings) -> Settings:
    nested = tuple((folder, replace(own, cache=True)) for folder, own in settings.nested)
    return replace(settings, cache=True, nested=nested)


def add_ignores(report: Report, *, quiet: bool) -> int:
    """Write a comment that silences it to the lines of each finding; the exit code."""
    from tclint.engine.fixes.files import write_each
    from tclint.engine.ignores import with_comments

    files, left = with_comments(report.findings)
    written, refused = write_each(files)
    for sentence in refused:
        say(f"error: {sentence}")
    say_errors(report)
    if not quiet:
        ignored = sum(file.fixed for file in written)
        say(f"ignored {plural(ignored, 'finding')} in {plural(len(written), 'file')}")
        if left:
            say(
                f"{plural(left, 'finding')} left: in notebooks, installed packages, or on comments themselves"
            )
    return 2 if refused or report.errors else 0


def say_errors(report: Report) -> None:
    """Say on stderr which targets could not be linted, and why."""
    for error in report.errors:
        prefix = "" if error.target in error.message else f"{error.target}: "
        say(f"error: {prefix}{error.message}")


def say_unreadable(report: Report) -> bool:
    """Say on stderr which files Python cannot read, where no findings are listed; whether there are any."""
    found = [finding for finding in report.findings if finding.code == UNREADABLE_CODE]
    for finding in found:
        place = finding.location
        say(f"error: {place.path}:{place.line}:{place.column}: {finding.message}")
    return bool(found)


@click.command("fix")
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=completion.targets)
@setting_flags()
@unsafe_fixes_option
@diff_option
@click.option(
    "--plan", "plan_file", metavar="FILE", help="Write the plan of a model's fixes to a file, as JSON."
)
@click.option(
    "--keep-architecture",
    is_flag=True,
    help="Make no size of a model smaller, so that tclint pad can carry saved weights over.",
)
@stdin_filename_option
@config_options
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
def fix_command(
    targets: tuple[str, ...],
    unsafe_fixes: bool,
    diff: bool,
    plan_file: str | None,
    keep_architecture: bool,
    stdin_filename: str | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Apply the safe fixes of source findings; plan, prove and apply those of models.

    The fixes of a model are shown in the order in which they gain most. Sizes are edited where they are
    written, in a copy that is built and traced: only proved edits are offered, and --unsafe-fixes writes
    them, all files or none.

    Comments and everything else that a fix does not touch stay as they are. Files are written completely
    or not at all, and only if they have not changed in the meantime. With '-', standard input is read and
    written to standard output, fixed.

    Exit codes: 0 done, even if findings remain; with --diff, 1 if there is something to fix; 2 usage
    error, or a file that could not be read or written.
    """
    targets, contents = read_stdin(targets or (".",), stdin_filename)
    settings, _ = read_settings(flags, targets)
    models = [target for target in targets if is_model_target(target)]
    scripts = [target for target in targets if not is_model_target(target)]
    code = 0
    planned: tuple[FixedFile, ...] = ()
    if models:
        from tclint.cli.fix_models import fix_models

        code, files = fix_models(
            models,
            scripts,
            settings,
            make=unsafe_fixes,
            diff=diff,
            plan_file=plan_file,
            keep_architecture=keep_architecture,
            quiet=quiet,
        )
        planned = tuple(files) if diff else ()
        if not scripts:
            if diff:
                from tclint.engine.fixes.files import unified_diff

                write_stdout_bytes(unified_diff(planned))
            return code
    elif plan_file is not None:
        raise UsageError("--plan writes the plan of a model's fixes; name one, 'model.py:build_model'.")
    elif keep_architecture:
        raise UsageError("--keep-architecture is for a model's fixes; name one, 'model.py:build_model'.")
    unpriced = replace(settings, price_recipes=False)  # no edit of a recipe rests on its step's price
    report = _run(scripts, unpriced, quiet, contents or {file.path: file.after for file in planned})
    outcome = fix(
        scripts,
        report,
        unsafe_fixes=unsafe_fixes,
        diff=diff,
        quiet=quiet,
        contents=contents,
        planned=planned,
        beside_models=bool(models),
    )
    say_errors(report)
    unread = say_unreadable(outcome.report)
    return 2 if report.errors or unread else max(code, outcome.exit_code(diff=diff))


def _run(
    targets: Sequence[str], settings: Settings, quiet: bool, contents: Mapping[str, bytes] | None = None
) -> Report:
    from tclint.engine.declared_models import check_targets

    with contextlib.nullcontext() if quiet else ProgressLine() as progress:
        return check_targets(targets, settings, on_progress=progress, contents=contents)


@click.group("baseline", cls=CommandGroup, no_args_is_help=False)
def baseline() -> None:
    """Accept the current findings, to see only new ones."""


@baseline.command("write")
@click.argument("targets", nargs=-1, metavar="TARGET...")
@setting_flags("select", "extend-select", "ignore", "gpu", "precision", "mode", "baseline")
@click.option(
    "--models",
    "declared",
    is_flag=True,
    help="Accept the findings of the declared models, as check --models shows them.",
)
@config_options
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
def write_command(targets: tuple[str, ...], declared: bool, quiet: bool, **flags: Any) -> int:
    """Write the findings of the TARGETs to the baseline; its entries for anything else are kept.

    The file is that of --baseline, else of the key `baseline`, else tclint-baseline.json in the working
    directory.

    Exit codes: 0 written, 2 usage error or a target that failed (then nothing is written).
    """
    from tclint.engine.baseline import DEFAULT_FILE, Baseline

    if declared and targets:
        raise UsageError("--models takes no targets; run 'tclint baseline write' a second time for those.")
    settings, config_file = read_settings(flags, targets or (".",), declared=declared)
    file = settings.baseline or DEFAULT_FILE
    check_writable(file)
    old = Baseline.load(file) if os.path.exists(file) else Baseline(file)
    nested = tuple((folder, replace(own, baseline="")) for folder, own in settings.nested)
    fresh = replace(settings, baseline="", nested=nested)
    if declared:
        with contextlib.nullcontext() if quiet else ProgressLine() as progress:
            report = check_declared(
                fresh, config_file, flags, progress, use_cache=settings.cache, verbose=False
            )
    else:
        report = _run(targets or (".",), fresh, quiet)
    say_errors(report)
    if report.errors:
        return 2
    say_unreadable(report)
    new = old.renewed(report)
    new.write()
    if not quiet:
        say(f"{printable(file)}: {new.total} accepted, {old.total} before")
        if not settings.baseline:
            say(f'to use it: baseline = "{DEFAULT_FILE}" under [tool.tclint], or --baseline {DEFAULT_FILE}')
    return 0


def renew_baseline(report: Report, *, update: bool, quiet: bool) -> None:
    """Take findings that are gone out of the baseline that a run used, or say how many are."""
    file = report.settings.baseline
    if not file:
        return
    from tclint.engine.baseline import Baseline

    old = Baseline.load(file)
    new = old.shrunk(report)
    gone = old.total - new.total
    if not gone:
        return
    what = f"{gone} accepted finding{'s are' if gone > 1 else ' is'} gone"
    if update:
        new.write()
        what += " and forgotten"
    else:
        what += f"; --update-baseline forgets {'them' if gone > 1 else 'it'}"
    if not quiet:
        say(f"{printable(file)}: {what}")
