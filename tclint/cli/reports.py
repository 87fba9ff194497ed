"""Commands on reports that were written before: `schema`, `diff`, `history`. They lint nothing."""

from __future__ import annotations

import click

from tclint.cli.command_group import say
from tclint.cli.options import debug_option
from tclint.config.settings import FAIL_ON
from tclint.core.errors import UsageError, closest
from tclint.core.files import check_writable, write_atomically
from tclint.core.terminal import write_stdout


@click.command()
@debug_option
def schema() -> int:
    """Print the JSON Schema of the JSON report (and, as $defs/record, of a line of --format jsonl)."""
    import json

    from tclint.report.formats.json import schema as report_schema

    write_stdout(json.dumps(report_schema(), indent=2) + "\n")
    return 0


@click.command()
@click.argument("old", metavar="OLD.json")
@click.argument("new", metavar="NEW.json")
@click.option("--format", "format_name", default="text", help="text, markdown or json.  [default: text]")
@click.option(
    "--threshold",
    default="1%",
    metavar="PERCENT",
    help="A metric that gets worse by more is a regression: percent of its old value, points for shares."
    "  [default: 1%]",
)
@click.option(
    "--fail-on",
    default="warning",
    metavar="error|warning|info|never",
    help="A new finding of this level or above is a regression.  [default: warning]",
)
@debug_option
def diff(old: str, new: str, format_name: str, threshold: str, fail_on: str) -> int:
    """Show new, fixed and changed findings and moved metrics between two JSON reports.

    Exit codes: 0 no regression, 1 a regression over --threshold or --fail-on, 2 wrong usage.
    """
    from tclint.config.kinds import PERCENT
    from tclint.report.comparison import diff as compare
    from tclint.report.formats.diff import FORMATS, render_diff
    from tclint.report.load import load_report

    _one_of("--format", format_name, FORMATS)
    _one_of("--fail-on", fail_on, FAIL_ON)
    try:
        threshold_percent = PERCENT.parse(threshold)
    except ValueError:
        raise UsageError(
            f"--threshold expects percent such as 1 or '0.5%', not {threshold!r}; 0 allows nothing."
        ) from None
    found = compare(
        load_report(old),
        load_report(new),
        threshold_percent=threshold_percent,
        fail_on=next(level for level in FAIL_ON if level == fail_on),
    )
    write_stdout(render_diff(found, format_name))
    return found.exit_code


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--output", metavar="FILE", help="Write the table to a file.")
@debug_option
def history(folder: str, output: str | None) -> int:
    """Turn a folder of JSON reports into one CSV table: a row per report, model, GPU and precision.

    Files that are no reports are named on standard error and left out.
    """
    from tclint.report.history import history as read
    from tclint.report.history import to_csv

    if output is not None:
        check_writable(output)
    found = read(folder)
    for sentence in found.skipped:
        say(f"skipped: {sentence}")
    if output is not None:
        write_atomically(output, to_csv(found.rows))
    else:
        write_stdout(to_csv(found.rows))
    return 0


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{option} expects one of {', '.join(known)}, not {value!r}.{closest(value, known)}")
