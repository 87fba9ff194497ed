"""The `tclint` command: parses arguments, prints, exits. What it prints is made elsewhere.

Nothing here imports torch, libcst, NumPy or a rule until a command needs it, so that `tclint --help`
answers at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from tclint.cli import completion
from tclint.cli import doctor as cli_doctor
from tclint.cli import fix as cli_fix
from tclint.cli import fleet as cli_fleet
from tclint.cli import init as cli_init
from tclint.cli import models as cli_models
from tclint.cli import pad as cli_pad
from tclint.cli import profile as cli_profile
from tclint.cli import reports as cli_reports
from tclint.cli import server as cli_server
from tclint.cli.command_group import DefaultCommandGroup, refuse_command_names, say
from tclint.cli.options import (
    config_options,
    format_option,
    list_format_option,
    no_color_option,
    output_option,
    parse_flags,
    read_settings,
    read_stdin,
    setting_flags,
    settings_of_target,
    stdin_filename_option,
    verbose_option,
)
from tclint.config.pyproject import FILE_NAME
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import write_atomically
from tclint.core.terminal import ProgressLine, wants_colour, write_stdout
from tclint.core.version import __version__
from tclint.engine.report import Interrupted, Report
from tclint.report.render import FOR_PEOPLE, Style, render


@click.group(
    "tclint",
    cls=DefaultCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="[check] TARGET... | COMMAND",
    epilog="A COMMAND comes first; anything else is a target: 'tclint check --help' has its options.",
)
@click.version_option(__version__, prog_name="tclint", message="%(prog)s %(version)s")
def cli() -> None:
    """Find where PyTorch models and training code waste Tensor Cores, before any GPU runs.

    \b
    tclint model.py:build_model   build and trace a model without a GPU, predict what waste costs
    tclint train.py src/          read training code without running it
    tclint sft.yaml               read a recipe, and price the model that it trains
    """


@cli.command(no_args_is_help=False)
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=completion.targets)
@setting_flags()
@click.option(
    "--models",
    "declared",
    is_flag=True,
    help="Lint the models declared in the configuration file, in addition to the targets.",
)
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Take findings that no longer occur out of the baseline; without it, they are counted.",
)
@format_option
@output_option
@click.option("--fix", "fix_them", is_flag=True, help="Apply the safe fixes of source findings.")
@cli_fix.unsafe_fixes_option
@cli_fix.diff_option
@click.option(
    "--add-ignores",
    is_flag=True,
    help="Write '# tclint: ignore[CODE]' to the lines of all findings listed, and exit with 0.",
)
@click.option("--show-settings", is_flag=True, help="Print the settings of the targets, and lint nothing.")
@click.option("--show-files", is_flag=True, help="Print the files that would be looked at, and lint nothing.")
@stdin_filename_option
@click.option("--statistics", is_flag=True, help="Count findings per rule.")
@click.option(
    "--exit-zero", is_flag=True, help="Exit with 0 even if there are findings; errors still exit with 2."
)
@config_options
@click.option("--quiet", "-q", is_flag=True, help="Print findings and errors only.")
@verbose_option
@no_color_option
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    *,
    format_name: str,
    outputs: list[tuple[str, str]],
    statistics: bool,
    exit_zero: bool,
    fix_them: bool,
    unsafe_fixes: bool,
    diff: bool,
    add_ignores: bool,
    show_settings: bool,
    show_files: bool,
    stdin_filename: str | None,
    update_baseline: bool,
    declared: bool,
    quiet: bool,
    verbose: int,
    no_color: bool,
    debug: bool,
    **flags: Any,
) -> int:
    """Lint models and training code; the default command. Without a TARGET it reads the working directory.

    A TARGET such as model.py:build_model or package.module:Class is imported, built and traced, without
    a GPU and without allocating its weights; so are models of timm (timm:resnet50) and transformers
    (hf:gpt2) by name. A file or folder is read without running it; 'tclint models PATH' lists the
    models in it. A configuration of training that is named has its model built by transformers and priced.
    '-' reads the source from standard input; --fix then writes it to standard output, and the
    report to standard error.

    Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage error or a target that failed. With
    --fix, only remaining findings count; with --diff, 1 means that there is something to fix.
    """
    refuse_command_names(ctx, targets)
    _refuse_together(targets, declared=declared, fixes=fix_them or diff, add_ignores=add_ignores)
    if not (targets or declared):
        targets = (".",)
    targets, contents = read_stdin(targets, stdin_filename)
    everything = (".", *targets) if declared else targets
    settings, config_file = read_settings(flags, everything, declared=declared)
    if update_baseline and not settings.baseline:
        raise UsageError("There is no baseline to update; 'tclint baseline write' makes one.")
    if verbose:
        _say_files(settings, config_file)
    if show_settings or show_files:
        _show(
            targets, settings, config_file, flags, declared=declared, as_toml=show_settings, files=show_files
        )
        return 0

    verbosity = -1 if quiet else min(verbose, 1)
    style = Style.of_stream(sys.stdout, no_color, statistics=statistics, verbosity=verbosity)
    try:
        with contextlib.nullcontext() if quiet else ProgressLine() as progress:
            if declared:
                report = cli_models.check_declared(
                    settings,
                    config_file,
                    flags,
                    progress,
                    targets=targets,
                    use_cache=settings.cache,
                    verbose=bool(verbose),
                )
            else:
                from tclint.engine.declared_models import check_targets as run

                cache = cli_models.user_cache(targets, settings, verbose=bool(verbose))
                report = cli_models.check_kept(
                    targets,
                    settings,
                    lambda: run(targets, settings, on_progress=progress, contents=contents, cache=cache),
                    with_graphs=settings.operators
                    or settings.layers
                    or "html" in (format_name, *(name for name, _ in outputs)),
                    verbose=bool(verbose),
                )
    except Interrupted as interrupted:
        # A program that reads a report would take this one for the whole.
        if format_name in FOR_PEOPLE:
            write_stdout(render(interrupted.report, format_name, style))
        raise

    if add_ignores:
        return cli_fix.add_ignores(report, quiet=quiet)
    fixed = None
    if fix_them or diff:
        fixed = cli_fix.fix(
            targets, report, unsafe_fixes=unsafe_fixes, diff=diff, quiet=quiet, contents=contents
        )
        report = fixed.report
    if not contents:  # what is not saved yet says nothing of the file
        cli_fix.renew_baseline(report, update=update_baseline and not diff, quiet=quiet)
    plain = Style(statistics=statistics, verbosity=verbosity)
    for name, file in outputs:
        write_atomically(file, render(report, name, plain))
    if diff or format_name != "text":
        cli_fix.say_errors(report)
    if debug:
        _say_details(report)
    if fixed is not None and diff:
        unread = cli_fix.say_unreadable(report)
        return 2 if report.errors or unread else fixed.exit_code(diff=True)
    if fixed is not None and contents:  # standard output is the source
        say(render(report, format_name, plain).rstrip("\n"), lines=True)
    else:
        write_stdout(render(report, format_name, style))
    if format_name == "text" and not (quiet or declared or contents):
        cli_models.mention_models(targets, report)
    if format_name == "github":
        _append_job_summary(report)
    if fixed is not None and fixed.refused:
        return 2
    if exit_zero and report.exit_code == 1:
        return 0
    return report.exit_code


def _refuse_together(targets: Sequence[str], *, declared: bool, fixes: bool, add_ignores: bool) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: they are given together.
    """
    if declared and fixes:
        raise UsageError("--models takes no --fix or --diff; run tclint a second time for those.")
    if declared and "-" in targets:
        raise UsageError("--models takes no '-'; run tclint a second time for it.")
    if add_ignores and (fixes or "-" in targets):
        raise UsageError("--add-ignores writes comments to files; it takes no --fix, --diff or '-'.")


def _say_files(settings: Settings, config_file: Path | None) -> None:
    own = () if config_file is None else (str(config_file),)
    for file in (*own, *(os.path.join(folder, FILE_NAME) for folder, _ in settings.nested)):
        say(f"settings of {file}")


def _show(
    targets: Sequence[str],
    settings: Settings,
    config_file: Path | None,
    flags: Mapping[str, Any],
    *,
    declared: bool,
    as_toml: bool,
    files: bool,
) -> None:
    """Print settings, files or both, and lint nothing."""
    from tclint.cli import show
    from tclint.engine.check import check
    from tclint.engine.declared_models import grouped, target_of

    named = [*(target_of(model) for model in settings.models if declared), *targets]
    for own in grouped(named, settings):
        check((), own)  # settings that a run refuses are refused here too
    if as_toml:
        write_stdout(show.settings_text(named, settings, config_file, parse_flags(flags)))
    if files:
        write_stdout(show.files_text(named, settings))


def _append_job_summary(report: Report) -> None:
    """In a GitHub Actions step; a summary that cannot be written changes no verdict."""
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    if not file:
        return
    from tclint.report.formats.markdown import append_summary

    try:
        append_summary(report, file)
    except UsageError as error:
        say(f"warning: {error}")


def _say_details(report: Report) -> None:
    for error in report.errors:
        if error.details:
            say(f"--- {error.target}\n{error.details.rstrip()}", lines=True)
    for finding in report.findings:
        traceback = finding.evidence.get("traceback")
        if isinstance(traceback, str):
            say(f"--- {finding.code}\n{traceback.rstrip()}", lines=True)


@cli.command()
@click.option("--new", "new", metavar="CODE", help="Write a rule to begin with, its examples and its test.")
@list_format_option
@config_options
def rules(new: str | None, format_name: str, **flags: Any) -> int:
    """List every rule, those of installed packages and your own included."""
    from tclint.engine.rules.registry import all_rules, load_rules
    from tclint.report.catalogue import rule_kind, rules_json, rules_text

    settings, _ = read_settings(flags)
    known = all_rules(settings.rules)
    if new is not None:
        from tclint.cli.new_rule import write_new_rule

        paths = write_new_rule(new, [rule.code for rule in known])
        for path in paths:
            write_stdout(f"{path}\n")
        if not settings.rules:
            say('note: rules = ["./lint_rules"] in [tool.tclint] of pyproject.toml makes tclint load it.')
        say(f"note: 'python -m pytest {paths[-1]}' tests it; 'pytest' alone does not find lint_rules.")
        return 0
    active = {(rule.code, rule_kind(type(rule))) for rule in load_rules(settings)}
    text = rules_json(known, active) if format_name == "json" else rules_text(known, active)
    write_stdout(text)
    return 0


@cli.command()
@click.argument("rule", shell_complete=completion.rules)
@click.argument("place", metavar="[FILE:LINE]", required=False)
@click.option("--at", metavar="FILE:LINE", help="The same as FILE:LINE behind the rule.")
@list_format_option
@config_options
@no_color_option
def explain(
    rule: str, place: str | None, at: str | None, format_name: str, no_color: bool, **flags: Any
) -> int:
    """Show what a RULE (code or name) finds, why it costs, and what to do instead.

    With FILE:LINE, show what a rule on training code has to say of a line: what it reports there, or why it
    is silent, and what the program does on that line as far as rules see it.
    """
    from tclint.engine.rules.registry import find_rule
    from tclint.report.catalogue import engine_page, rule_json, rule_page

    settings, _ = read_settings(flags)
    at = at or place
    if at is not None:
        return _explain_line(rule, at, settings)
    page = engine_page(rule)
    if page is not None and format_name != "json":
        write_stdout(page)
        return 0
    found = find_rule(rule, settings.rules)
    if format_name == "json":
        write_stdout(rule_json(found))
    else:
        colour = wants_colour(sys.stdout, no_color)
        write_stdout(rule_page(found, Style(colour)))
    return 0


def _explain_line(name: str, at: str, settings: Settings) -> int:
    from tclint.engine.rules.registry import find_rule
    from tclint.engine.sources.silence import why
    from tclint.report.catalogue import silence_text
    from tclint.source.source_rule import SourceRule

    path, _, number = at.rpartition(":")
    if not path or not number.isdigit():
        raise UsageError(f"{at} is no FILE:LINE, such as train.py:120.")
    sides = find_rule(name, settings.rules)
    asked = next((rule for rule in sides if issubclass(rule, SourceRule)), None)
    if asked is None:
        raise UsageError(f"{name} is a rule on traced models; FILE:LINE asks rules on training code.")
    write_stdout(silence_text(asked, why(asked(), path, int(number), settings), path, int(number)))
    return 0


@cli.command()
@list_format_option
@click.option("--verbose", "-v", is_flag=True, help="Show what every calibration is based on.")
@setting_flags("calibration")
@config_options
def gpus(format_name: str, verbose: bool, **flags: Any) -> int:
    """List the supported GPUs, and how well each is calibrated."""
    from tclint.cost.gpu import all_gpus, load_gpu
    from tclint.report.catalogue import gpus_json, gpus_text

    settings, _ = read_settings(flags)
    known = [load_gpu(gpu.id, settings.calibration) for gpu in all_gpus()]
    write_stdout(gpus_json(known) if format_name == "json" else gpus_text(known, verbose))
    return 0


@cli.command("explain-cost")
@click.argument("target", shell_complete=completion.targets)
@click.option(
    "--op",
    "op_name",
    required=True,
    metavar="NAME",
    help="A module's path ('blocks.0.mlp' or a unique end of it), an operator that occurs once, #INDEX, or "
    "optimizer.",
)
@click.option(
    "--pad",
    "pads",
    multiple=True,
    metavar="DIM=SIZE",
    help="Resize out_features, in_channels, batch, ... or the dim of a size (50257=50304), and everything "
    "coupled to it.  [default: what the DIM rules would pad]",
)
@setting_flags(
    "gpu", "precision", "mode", "phase", "prompt", "kv-length", "batch", "input", "input-set", "arg",
    "network", "compiled", "tensor-parallel", "calibration", "timeout", "memory-limit",
)  # fmt: skip
@list_format_option
@config_options
def explain_cost(target: str, op_name: str, pads: tuple[str, ...], format_name: str, **flags: Any) -> int:
    """Explain the predicted time of one operator of a model, and what padding it would change.

    \b
    tclint explain-cost model.py:build_model --op lm_head
    tclint explain-cost model.py:build_model --op layers.3.fc1 --pad out_features=4096 --gpu a100
    """
    settings = settings_of_target(flags, target)

    from tclint.engine.explain_cost import explain_target
    from tclint.report import cost_text

    with ProgressLine() as progress:
        explanation, how = explain_target(target, settings, op_name, pads, progress)
    write_stdout(
        cost_text.render_json(explanation) if format_name == "json" else cost_text.render(explanation, how)
    )
    return 0


for _command in (
    cli_fix.fix_command, cli_fix.baseline, cli_doctor.doctor, cli_init.init, cli_models.models, cli_pad.pad,
    cli_profile.profile, cli_profile.verify, cli_reports.schema, cli_reports.report, cli_reports.diff,
    cli_reports.history, cli_server.server, cli_fleet.sweep, cli_fleet.fleet, cli_fleet.merge,
):  # fmt: skip
    cli.add_command(_command)


def main() -> NoReturn:
    """Entry point of the `tclint` command."""
    # Graphs and programs grow, and hardly any of it is garbage: with Python's own threshold, the collector's
    # walks take a third of the time of a large model.
    gc.set_threshold(100_000)
    cli.main()


if __name__ == "__main__":
    main()
