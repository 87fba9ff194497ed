"""The command `profile`: what a GPU really did, from a trace of torch.profiler."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from tclint.cli import completion
from tclint.cli.options import config_options, debug_option, read_settings, setting_flags
from tclint.core.errors import UsageError, closest
from tclint.core.files import check_writable, write_atomically
from tclint.core.progress import ProgressLine
from tclint.core.terminal import report_width, write_stdout

if TYPE_CHECKING:
    from tclint.profile.beside import Beside
    from tclint.profile.profile import RankProfile

FORMATS = ("text", "json", "markdown", "html")


@click.command("profile")
@click.argument("trace", metavar="TRACE", type=click.Path())
@click.argument("target", required=False, metavar="[TARGET]", shell_complete=completion.targets)
@setting_flags(
    "gpu", "precision", "mode", "layout", "batch", "input", "input-set", "arg", "network", "compiled",
    "timeout", "memory-limit",
)  # fmt: skip
@click.option(
    "--format",
    "format_name",
    default="text",
    metavar="FORMAT",
    help="text, json, markdown or html.  [default: text]",
)
@click.option("--output", metavar="FILE", help="Write the report to a file.")
@click.option("--verbose", "-v", is_flag=True, help="List more operators.")
@config_options
@debug_option
def profile(
    trace: str,
    target: str | None,
    format_name: str,
    output: str | None,
    verbose: bool,
    config: str | None,
    isolated: bool,
    **flags: Any,
) -> int:
    """Show where a GPU's time went, and which of it used Tensor Cores, from a trace of torch.profiler.

    TRACE is what export_chrome_trace wrote (.json or .json.gz), or a folder with one such file per rank.
    Record it with record_shapes=True (sizes) and with_stack=True (modules and lines).

    With a TARGET (model.py:build_model), the model is built and traced as by 'tclint check', and predictions
    and findings stand beside what was measured; GPU, mode and precision are the trace's unless given.

    \b
    tclint profile trace.json.gz
    tclint profile trace.json.gz model.py:build_model --batch 32
    """
    if format_name not in FORMATS:
        raise UsageError(
            f"There is no format {format_name!r}.{closest(format_name, FORMATS)} The formats are "
            f"{', '.join(FORMATS)}."
        )
    if output is not None:
        check_writable(output)
    settings, _ = read_settings(config, isolated, flags)

    from tclint.profile.profile import read_profile

    compared = None
    with ProgressLine() as progress:
        profiles = read_profile(trace, progress)
        if target is not None:
            from tclint.profile.beside import beside

            longest = max(profiles, key=lambda one: one.summary.kernel_time_us)
            given = {field for field, value in flags.items() if value is not None and value != ()}
            compared = beside(longest, target, settings, given, progress)
    text = _RENDERERS[format_name](profiles, compared, verbose)
    if output is not None:
        write_atomically(output, text)
    else:
        write_stdout(text)
    return 0


def _text(profiles: list[RankProfile], compared: Beside | None, verbose: bool) -> str:
    from tclint.profile.text import render

    width = report_width(sys.stdout)
    text = render(profiles, width=width, verbose=verbose)
    if compared is not None:
        from tclint.profile.beside_text import render as render_beside

        text += render_beside(compared, width=width, verbose=verbose)
    return text


def _markdown(profiles: list[RankProfile], compared: Beside | None, _verbose: bool) -> str:
    from tclint.profile.markdown import render

    text = render(profiles)
    if compared is not None:
        from tclint.profile.beside_text import markdown

        text += markdown(compared)
    return text


def _json(profiles: list[RankProfile], compared: Beside | None, _verbose: bool) -> str:
    from tclint.profile.json import to_dict
    from tclint.report.formats import json as report_json

    document = to_dict(profiles)
    if compared is not None:
        from tclint.profile.beside_text import add_to_report

        document = add_to_report(compared, report_json.to_dict(compared.report))
    cleaned = report_json.clean(report_json.rounded(document))
    return json.dumps(cleaned, indent=2, allow_nan=False) + "\n"


def _html(profiles: list[RankProfile], compared: Beside | None, _verbose: bool) -> str:
    from tclint.profile.html import render

    return render(profiles, compared)


_RENDERERS = {"text": _text, "json": _json, "markdown": _markdown, "html": _html}
