"""The command `profile`: what a GPU really did, from a trace of torch.profiler."""

from __future__ import annotations

import json
import sys

import click

from tclint.cli.options import debug_option
from tclint.core.errors import UsageError, closest
from tclint.core.files import check_writable, write_atomically
from tclint.core.progress import ProgressLine
from tclint.core.terminal import report_width, write_stdout

FORMATS = ("text", "json", "markdown")


@click.command("profile")
@click.argument("trace", metavar="TRACE", type=click.Path())
@click.option(
    "--format",
    "format_name",
    default="text",
    metavar="FORMAT",
    help="text, json or markdown.  [default: text]",
)
@click.option("--output", metavar="FILE", help="Write the report to a file.")
@click.option("--verbose", "-v", is_flag=True, help="List more operators.")
@debug_option
def profile(trace: str, format_name: str, output: str | None, verbose: bool) -> int:
    """Show where a GPU's time went, and which of it used Tensor Cores, from a trace of torch.profiler.

    TRACE is what export_chrome_trace wrote (.json or .json.gz), or a folder with one such file per rank.
    Record it with record_shapes=True (sizes) and with_stack=True (modules and lines).
    """
    if format_name not in FORMATS:
        raise UsageError(
            f"There is no format {format_name!r}.{closest(format_name, FORMATS)} The formats are "
            f"{', '.join(FORMATS)}."
        )
    if output is not None:
        check_writable(output)

    from tclint.profile.profile import read_profile

    with ProgressLine() as progress:
        profiles = read_profile(trace, progress)
    if format_name == "json":
        from tclint.profile.json import to_dict
        from tclint.report.formats.json import clean, rounded

        text = json.dumps(clean(rounded(to_dict(profiles))), indent=2, allow_nan=False) + "\n"
    elif format_name == "markdown":
        from tclint.profile.markdown import render as markdown

        text = markdown(profiles)
    else:
        from tclint.profile.text import render

        text = render(profiles, width=report_width(sys.stdout), verbose=verbose)
    if output is not None:
        write_atomically(output, text)
    else:
        write_stdout(text)
    return 0
