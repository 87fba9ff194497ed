"""Many models in one run: the commands `fleet`, which lints them, `merge`, which joins results, and `sweep`,
which prices one model over a grid of its arguments."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tclint.cli import completion
from tclint.cli.command_group import say
from tclint.cli.options import (
    config_options,
    format_of,
    format_option,
    output_of,
    precisions_option,
    read_settings,
    scheduler_option,
    setting_flags,
    shown_options,
)
from tclint.cli.reports import show
from tclint.config.settings import SETTINGS, Precision
from tclint.core.errors import UsageError
from tclint.core.files import write_atomically
from tclint.core.target import is_model_target
from tclint.core.terminal import ProgressLine, write_stdout
from tclint.report.render import FORMATS


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=completion.targets)
@click.option(
    "--targets",
    "files",
    multiple=True,
    metavar="FILE",
    help="Take targets from a file too: one per line, with options for that target alone, as in "
    "'gpt.py:GPT --arg width=512 --gpu h100'.",
)
@click.option("--shard", default="", metavar="I/N", help="Only part I of N of the targets, such as 2/4.")
@click.option(
    "--resume",
    "resumed",
    default="",
    metavar="FILE",
    help="Append results to FILE instead of printing them, skipping the targets already in it.",
)
@format_of(
    *FORMATS,
    help="What goes to standard output: jsonl as results come, else at the end a report on all of them: {}",
    default="jsonl",
)
@shown_options
@scheduler_option
@precisions_option
@setting_flags(*(item.key for item in SETTINGS if item.has_flag and item.key != "precision"))
@config_options
def fleet(
    targets: tuple[str, ...],
    files: tuple[str, ...],
    shard: str,
    resumed: str,
    format_name: str,
    outputs: list[tuple[str, str]],
    verbose: int,
    no_color: bool,
    scheduler: str,
    precisions: tuple[Precision, ...],
    **flags: Any,
) -> int:
    """Lint many models, and write each one's results as JSON Lines as soon as it is done, or report on all.

    \b
    tclint fleet 'timm:resnet*' --gpu a100,h100 --resume results.jsonl
    tclint fleet 'timm:*' --gpu a100,h100 --format text --output html=report.html
    tclint fleet 'models.py:*' 'package.module:build_*' hf:gpt2 > results.jsonl
    tclint fleet --targets zoo.txt --shard 1/2 --resume first.jsonl
    tclint merge first.jsonl second.jsonl
    tclint fleet 'timm:*' --resume results.jsonl --scheduler tcp://10.0.0.1:8786

    A target that fails, hangs or crashes does not affect the others. Results are filed under the target
    and the options of its line.

    Exit codes: 0 clean, 1 findings at or above --fail-on, 2 usage error or a target that failed.
    """
    settings, _ = read_settings(flags)
    if precisions:
        settings = replace(settings, precision=precisions[0])
    if settings.baseline:
        raise UsageError("Results of many models take no baseline; leave --baseline out.")

    from tclint.engine.caches import ReportCache
    from tclint.engine.check import check
    from tclint.fleet.bulk import check_tasks
    from tclint.fleet.results import Known, header, locked, merge, resume
    from tclint.fleet.targets import tasks_of

    settings = check((), settings).settings  # what is wrong is refused before anything is written
    tasks = tasks_of(targets, files, settings, shard, precisions)
    streams = format_name == "jsonl"
    with contextlib.ExitStack() as stack:
        results = resumed
        if resumed:
            stack.enter_context(locked(resumed))
        elif outputs or not streams:
            results = stack.enter_context(_temporary())
        known = resume(results, settings) if results else Known()
        left = tuple(task for task in tasks if task.name not in known.names)
        if len(left) < len(tasks):
            say(f"note: {resumed} has {len(tasks) - len(left)} of {len(tasks)} targets already.")
        prints = streams and not resumed
        if prints:
            write_stdout(header(settings))
        worst = known.exit_code
        kept = ReportCache() if settings.cache else None
        with ProgressLine() as progress:
            for done in check_tasks(left, settings.jobs, progress, scheduler, kept):
                if results:
                    _append(results, done.lines)
                if prints:
                    write_stdout(done.lines)
                for error in done.errors:
                    say(f"error: {error}")
                worst = max(worst, done.exit_code)
        if streams and not outputs:
            return worst
        show(
            merge([results]), (results,), format_name=None if streams else format_name, outputs=outputs,
            verbose=verbose, no_color=no_color,
        )  # fmt: skip
        return worst


@contextlib.contextmanager
def _temporary() -> Iterator[str]:
    """A file for results, which stays if the run ends before they are reported."""
    folder = tempfile.mkdtemp(prefix="tclint-")
    results = os.path.join(folder, "results.jsonl")
    try:
        yield results
    except BaseException:
        if os.path.exists(results) and '"type": "metric"' in Path(results).read_text(encoding="utf-8"):
            say(f"note: the results so far are in {results}; '--resume {results}' goes on from them.")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _append(path: str, lines: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(lines)
    except OSError as error:
        raise UsageError(f"Cannot write to {path!r}: {error.strerror or error}.") from None


@click.command()
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
@format_option
@shown_options
def merge(reports: tuple[str, ...], **shown: Any) -> int:
    """Merge the results of several runs on different models into one report: shards, or JSON reports.

    Exit codes: those of the runs, as if they had been one.
    """
    from tclint.fleet.results import merge as merged

    document = merged(reports)
    show(document, reports, **shown)
    exit_code: int = document["summary"]["exit_code"]
    return exit_code


_FORMATS = ("text", "csv", "json", "html")


@click.command()
@click.argument("target", shell_complete=completion.targets)
@setting_flags("arg")
@click.option(
    "--batch", default="", metavar="SIZES", help="Resize the leading dim of every input: 8,16 or 8:64:8."
)
@click.option(
    "--where",
    default="",
    metavar="CONDITION",
    help="Only points for which this holds: 'width % heads == 0 and width >= 32 * heads'.",
)
@setting_flags("gpu")
@precisions_option
@setting_flags(
    "mode", "phase", "prompt", "kv-length", "layout", "compiled", "tensor-parallel", "optimizer",
    "accumulation", "loss", "input", "network", "calibration", "timeout", "memory-limit", "jobs",
)  # fmt: skip
@scheduler_option
@click.option("--trace-all", is_flag=True, help="Trace every point; resize no graph.")
@format_of(*_FORMATS, help="text, csv, json or html")
@output_of(*_FORMATS, help="Write it to a file as well; may be repeated.")
@config_options
def sweep(
    target: str,
    batch: str,
    where: str,
    precisions: tuple[Precision, ...],
    scheduler: str,
    trace_all: bool,
    format_name: str,
    outputs: list[tuple[str, str]],
    **flags: Any,
) -> int:
    """Price a model at every point of a grid of its arguments, and show which points are worth
    considering.

    \b
    tclint sweep gpt.py:build --arg width=256:1024:64 --arg heads=4,8,16 --where "width % heads == 0"
    tclint sweep gpt.py:build --arg vocabulary=50257,50304 --batch 8:32:8 --gpu a100,h100 --precision bf16

    START:STOP:STEP is a range that includes STOP; commas separate values. Points that differ only in
    sizes are computed by resizing one traced graph.

    Exit codes: 0 all points were priced, 2 usage error, or a point failed.
    """
    if not is_model_target(target):
        raise UsageError(f"A sweep builds a model: name it as 'path/file.py:callable', not {target!r}.")
    settings, _ = read_settings(flags)

    from tclint.cost.gpu import load_gpu
    from tclint.cost.scenario import Scenario
    from tclint.fleet.grid import grid_of
    from tclint.fleet.sweep import sweep as run
    from tclint.fleet.sweep_report import render

    settings = settings.in_phase()
    gpus = (load_gpu(gpu, settings.calibration).id for gpu in settings.gpus)
    settings = replace(settings, gpus=tuple(dict.fromkeys(gpus)))
    chosen = precisions or (settings.precision,)
    for precision in chosen:
        Scenario.of(replace(settings, precision=precision))  # what cannot run is refused before any trace
    grid, settings = grid_of(settings, batch, where)
    with ProgressLine() as progress:
        found = run(
            target, grid, settings, chosen, trace_all=trace_all, on_progress=progress, scheduler=scheduler
        )
    for name, file in outputs:
        write_atomically(file, render(found, name))
    write_stdout(render(found, format_name))
    return 2 if found.errors else 0
