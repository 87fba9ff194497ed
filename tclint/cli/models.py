"""The command `models`: what in a path can be linted as a model, and how. It runs nothing.

`check_declared` is what `tclint check --models` does: it lints the models that the project declares.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tclint.cli.command_group import say
from tclint.cli.options import config_options, list_format_option, parse_flags, read_settings
from tclint.cli.show import files_of
from tclint.config.settings import Settings
from tclint.core.target import is_model_target, is_recipe
from tclint.core.terminal import write_stdout
from tclint.engine.report import Report

if TYPE_CHECKING:
    from tclint.engine.caches import TraceCache
    from tclint.engine.check import Progress


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@list_format_option
@config_options
def models(paths: tuple[str, ...], format_name: str, **flags: Any) -> int:
    """List functions that return models, and model classes, in files and folders, without running them.
    Files that `exclude` names are left out, unless they are named here.

    Every line is a command. '(by its name)' marks functions recognised as builders only by their name.
    """
    import json

    from tclint.engine.model_listing.candidates import list_models

    settings, _ = read_settings(flags, paths)
    found, unread = list_models(files_of(paths, settings))
    for path in unread:
        say(f"note: {path} cannot be read as Python 3.")
    if format_name == "json":
        write_stdout(json.dumps([dataclasses.asdict(candidate) for candidate in found], indent=2) + "\n")
        return 0
    if not found:
        say(f"note: no model found in {', '.join(paths)}; name a callable as 'path/file.py:callable'.")
        return 0
    commands = [
        f"tclint {shlex.quote(candidate.target)}{' --arg NAME=VALUE' if candidate.needs else ''}"
        for candidate in found
    ]
    width = min(60, max(map(len, commands)))
    lines = []
    for command, candidate in zip(commands, found, strict=True):
        facts = f"{candidate.kind}, line {candidate.line}"
        facts += f", needs {', '.join(candidate.needs)}" if candidate.needs else ""
        facts += f", inputs of {candidate.inputs}" if candidate.inputs else ""
        facts += "" if candidate.certain else " (by its name)"
        lines.append(f"{command:{width}}  # {facts}\n")
    write_stdout("".join(lines))
    return 0


def check_declared(
    settings: Settings,
    config_file: Path | None,
    flags: dict[str, Any],
    progress: Progress | None,
    *,
    targets: Sequence[str] = (),
    use_cache: bool,
    verbose: bool,
) -> Report:
    """Lint the models of `[tool.tclint] models`, and targets; with no model declared, say so."""
    from tclint.engine.caches import TraceCache
    from tclint.engine.declared_models import check_declared as run

    if not settings.models:
        where = "[tool.tclint] of pyproject.toml" if config_file is None else str(config_file)
        say(f'note: no models are declared in {where}: add models = ["model.py:build_model"] to lint some.')
    cache = None
    if use_cache and config_file is not None:
        cache = TraceCache(str(config_file.absolute().parent), say if verbose else lambda _: None)
    return run(settings, targets, flags=set(parse_flags(flags)), cache=cache, on_progress=progress)


def user_cache(targets: Sequence[str], settings: Settings, *, verbose: bool) -> TraceCache | None:
    """Where the graphs of models are kept that are named on the command line."""
    if not settings.cache or not any(is_model_target(target) or is_recipe(target) for target in targets):
        return None
    from tclint.engine.caches import TraceCache

    return TraceCache.of_user(say if verbose else lambda _: None)


def check_kept(
    targets: Sequence[str], settings: Settings, run: Callable[[], Report], *, with_graphs: bool, verbose: bool
) -> Report:
    """What `run` gives for targets, or gave in an earlier run for a single model that is unchanged.

    Args:
        with_graphs: whether the report is asked for what no run keeps.
    """
    if with_graphs or not settings.cache or len(targets) != 1 or not is_model_target(targets[0]):
        return run()
    from tclint.engine.caches import ReportCache

    report = ReportCache().check(targets[0], settings, run)
    if verbose and all(entry.graph is None for entry in report.entries):
        say(f"cache: {targets[0]} is unchanged, and so is its report")
    return report


_OF_MODELS = frozenset({"ARC", "DIM", "FMT"})
"""Families of rules whose findings have a price in a traced model."""


def mention_models(targets: Sequence[str], report: Report) -> None:
    """Say of what was only read how its models are linted, which takes running them: together with the script
    that trains one, so that the findings there get prices, else of a single file or folder."""
    if report.entries or report.errors:
        return
    unpriced = {
        finding.location.path
        for finding in report.findings
        if finding.is_about_speed and finding.effect.best_gain_percent is None
    }
    trained = [(script, models[0]) for script, models in report.models_trained.items() if models]
    if unpriced and trained:
        pair = next((one for one in trained if one[0] in unpriced), trained[0])
        say(
            "note: only source was read; with the model that it trains, findings have prices: "
            f"'tclint {shlex.join(pair)}'"
        )
        return
    if len(targets) != 1:
        return
    families = {finding.code[:3] for finding in report.findings}
    if Path(targets[0]).is_dir() and families & _OF_MODELS:
        say(f"note: only source was read; 'tclint models {shlex.quote(targets[0])}' lists models to price.")
    if not targets[0].endswith(".py") or not Path(targets[0]).is_file():
        return
    from tclint.engine.model_listing.candidates import list_models

    candidates = [candidate for candidate in list_models([targets[0]])[0] if candidate.certain]
    if not candidates:
        return
    first = min(candidates, key=lambda candidate: len(candidate.needs))
    more = (
        f"; 'tclint models {shlex.quote(targets[0])}' lists {len(candidates)}" if len(candidates) > 1 else ""
    )
    say(
        "note: only the source was read; its model, built and traced: "
        f"'tclint {shlex.quote(first.target)}'{more}"
    )
