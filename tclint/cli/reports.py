"""Commands on reports that were written before: `schema`, `report`, `diff`, `history`. They lint nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import click

from tclint.cli.command_group import say
from tclint.cli.options import (
    config_options,
    file_option,
    format_of,
    format_option,
    read_settings,
    setting_flags,
    shown_options,
    write_output,
)
from tclint.config.kinds import PERCENT
from tclint.core.errors import UsageError
from tclint.core.files import write_atomically
from tclint.core.terminal import write_stdout
from tclint.report.render import Style, render


@click.command()
def schema() -> int:
    """Print the JSON Schema of the JSON report (and, as $defs/record, of a line of --format jsonl)."""
    from tclint.report.formats.json import schema as report_schema

    write_stdout(json.dumps(report_schema(), indent=2) + "\n")
    return 0


@click.command()
@click.argument("saved", metavar="REPORT.json")
@format_option
@shown_options
def report(saved: str, **shown: Any) -> int:
    """Render a saved JSON or JSON Lines report in another format, without linting again.

    What JSON does not hold is left out: charts of operators, and lines of files that are not in the working
    directory or have changed since.

    Exit codes: 0 it was shown, 2 it cannot be. The verdict of the run is in its summary.
    """
    from tclint.report.saved import load_report

    show(load_report(saved), (saved,), **shown)
    return 0


@click.command()
@click.argument("old", metavar="OLD.json")
@click.argument("new", metavar="NEW.json")
@format_of("text", "markdown", "json")
@click.option(
    "--threshold",
    metavar="PERCENT",
    help="Step time, readiness (points) and memory may get worse by this much.  [default: as "
    "tool.tclint.budget has it, else 1% of the step, 1 point, 5% of memory]",
)
@setting_flags("fail-on")
@config_options
def diff(old: str, new: str, format_name: str, threshold: str | None, **flags: Any) -> int:
    """Compare two JSON reports: what got worse than the budget allows, and everything else that changed.

    Models are judged in the scenario that they are run in: GPU, precision and mode of the report.

    Exit codes: 0 passed, 1 a regression beyond the budget, 2 usage error.
    """
    from tclint.report.comparison import diff as compare
    from tclint.report.formats.diff import render_diff
    from tclint.report.saved import load_report

    settings, _ = read_settings(flags)
    budget = settings.budget
    if threshold is not None:
        try:
            limit = PERCENT.parse(threshold)
        except ValueError:
            raise UsageError(
                f"--threshold expects percent such as 1 or '0.5%', not {threshold!r}; 0 allows nothing."
            ) from None
        budget = replace(budget, step_percent=limit, readiness_points=limit, memory_percent=limit)
    found = compare(load_report(old), load_report(new), budget=budget, fail_on=settings.fail_on)
    write_stdout(render_diff(found, format_name))
    return found.exit_code


@click.command()
@click.argument("folder", metavar="DIR")
@file_option
def history(folder: str, output: str | None) -> int:
    """Turn a folder of JSON reports into one CSV table: a row per report, model, GPU and precision.

    Files that are not reports are listed on standard error and skipped.
    """
    from tclint.report.history import history as read
    from tclint.report.history import to_csv

    found = read(folder)
    for sentence in found.skipped:
        say(f"skipped: {sentence}")
    write_output(to_csv(found.rows), output)
    return 0


def show(
    document: dict[str, Any],
    read: Sequence[str],
    *,
    format_name: str | None,
    outputs: Sequence[tuple[str, str]],
    verbose: int,
    no_color: bool,
) -> None:
    """Write a document that was read from files in formats: one to standard output, others to files.

    Args:
        format_name: None: nothing goes to standard output.
    """
    from tclint.report.formats.jsonlines import records
    from tclint.report.saved import report_of

    made = cache(lambda: report_of(document, ", ".join(read)))

    def text_of(name: str, style: Style) -> str:
        # These two are the document itself, with what a Report does not hold.
        if name == "json":
            return json.dumps(document, indent=2) + "\n"
        if name == "jsonl":
            return "".join(json.dumps(record) + "\n" for record in records(document))
        return render(made(), name, style)

    verbosity = min(verbose, 1)
    for name, file in outputs:
        write_atomically(file, text_of(name, Style(verbosity=verbosity)))
    if format_name is not None:
        write_stdout(text_of(format_name, Style.of_stream(sys.stdout, no_color, verbosity=verbosity)))
