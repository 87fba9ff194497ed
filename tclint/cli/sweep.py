"""The command `sweep`: one model over a grid of its arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tclint.cli import completion
from tclint.cli.options import (
    config_options,
    format_of,
    output_of,
    precisions_option,
    read_settings,
    scheduler_option,
    setting_flags,
)
from tclint.config.settings import Precision
from tclint.core.errors import UsageError
from tclint.core.files import write_atomically, write_bytes_atomically
from tclint.core.target import is_model_target
from tclint.core.terminal import ProgressLine, write_stdout

_FORMATS = ("text", "csv", "json", "html", "parquet")


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
    "mode", "phase", "prompt", "kv-length", "layout", "compiled", "optimizer", "accumulation", "loss",
    "input", "network", "calibration", "timeout", "memory-limit", "jobs",
)  # fmt: skip
@scheduler_option
@click.option("--trace-all", is_flag=True, help="Trace every point; resize no graph.")
@format_of(*_FORMATS, help="text, csv, json or html")
@output_of(*_FORMATS, help="Write it to a file as well, also as parquet; may be repeated.")
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
    if format_name == "parquet":
        raise UsageError("Parquet is a binary format: write it with --output parquet=FILE.")
    if not is_model_target(target):
        raise UsageError(f"A sweep builds a model: name it as 'path/file.py:callable', not {target!r}.")
    settings, _ = read_settings(flags)

    from tclint.cost.gpu import load_gpu
    from tclint.cost.scenario import Scenario
    from tclint.fleet.grid import grid_of
    from tclint.fleet.sweep import sweep as run
    from tclint.fleet.sweep_page import render as page
    from tclint.fleet.sweep_report import check_parquet, parquet, render

    if any(name == "parquet" for name, _ in outputs):
        check_parquet()

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
        if name == "parquet":
            write_bytes_atomically(file, parquet(found))
        else:
            write_atomically(file, page(found) if name == "html" else render(found, name))
    write_stdout(page(found) if format_name == "html" else render(found, format_name))
    return 2 if found.errors else 0
