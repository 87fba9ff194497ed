"""What a GPU really did: `profile` reads it from a trace of torch.profiler, `verify` makes such a trace."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tclint.cli import completion
from tclint.cli.command_group import say
from tclint.cli.options import (
    config_options,
    file_option,
    format_of,
    parse_flags,
    read_settings,
    setting_flags,
    settings_of_target,
    together,
    write_output,
)
from tclint.core.document import Document, as_markdown, as_page, as_text
from tclint.core.errors import UsageError
from tclint.core.files import check_writable
from tclint.core.terminal import ProgressLine, report_width

if TYPE_CHECKING:
    from tclint.profile.beside import Beside
    from tclint.profile.profile import RankProfile

_report_options = together(
    format_of("text", "json", "markdown", "html"),
    file_option,
    click.option("--verbose", "-v", is_flag=True, help="List more operators."),
)


@click.command("profile")
@click.argument("trace", metavar="TRACE", type=click.Path())
@click.argument("target", required=False, metavar="[TARGET|TRACE]", shell_complete=completion.targets)
@setting_flags(
    "gpu", "precision", "mode", "layout", "batch", "input", "input-set", "arg", "network", "compiled",
    "calibration", "timeout", "memory-limit",
)  # fmt: skip
@_report_options
@click.option(
    "--calibrate",
    metavar="FILE",
    help="Fit one factor per kind and precision to the trace, and write those to FILE that lower the error "
    "on shapes they were not fitted on.",
)
@config_options
def profile(
    trace: str,
    target: str | None,
    format_name: str,
    output: str | None,
    calibrate: str | None,
    verbose: bool,
    **flags: Any,
) -> int:
    """Show from a torch.profiler trace where a GPU spent its time, and how much of it on Tensor Cores.

    TRACE is a file written by export_chrome_trace (.json or .json.gz), or a folder with one file per
    rank.
    Record it with record_shapes=True (sizes) and with_stack=True (modules and lines).

    With a TARGET (model.py:build_model), the model is built and traced as by 'tclint check', and
    predictions and findings are shown next to the measured times; GPU, mode and precision default to
    those of the trace.

    With a second TRACE, a step of both is compared: what got slower and what faster, by module and kind.

    \b
    tclint profile trace.json.gz
    tclint profile before.json.gz after.json.gz
    tclint profile trace.json.gz model.py:build_model --batch 32
    tclint profile trace.json.gz --calibrate my_gpu.json
    """
    if target is not None and _is_trace(target):
        if calibrate is not None or parse_flags(flags):
            raise UsageError(
                "Two traces are compared as they were measured; options of models are for a TARGET."
            )
        _compare(trace, target, format_name, output, verbose)
        return 0
    settings, _ = read_settings(flags)
    if calibrate is not None:
        from tclint.profile.calibrate import kept_factors

        check_writable(calibrate)
        kept_factors(calibrate)  # a file of something else is refused before minutes of work
        settings = replace(settings, calibration="")  # what is fitted are errors of tclint's own times

    from tclint.profile.profile import check_same_gpu, read_profile, slowest_first

    given = set(parse_flags(flags))
    besides: list[Beside] = []
    with ProgressLine() as progress:
        profiles = read_profile(trace, progress)
        if target is not None or calibrate is not None:
            check_same_gpu(profiles)
        if target is not None:
            from tclint.profile.beside import beside

            besides = beside(slowest_first(profiles), target, settings, given, progress)
    _show(profiles, besides, format_name, output, verbose)
    if calibrate is not None:
        _calibrate(calibrate, profiles, besides, settings.gpus[:1] if "gpus" in given else ())
    return 0


@click.command("verify")
@click.argument("target", shell_complete=completion.targets)
@click.option(
    "--finding",
    default="",
    metavar="CODE",
    help="Run the step with this finding's fix too, where a built model can be given it: channels_last, a "
    "precision, torch.compile.",
)
@setting_flags(
    "gpu", "precision", "mode", "layout", "batch", "input", "arg", "network", "compiled", "optimizer", "loss",
    "calibration", "timeout", "memory-limit",
)  # fmt: skip
@_report_options
@config_options
def verify(
    target: str, finding: str, format_name: str, output: str | None, verbose: bool, **flags: Any
) -> int:
    """Profile a model's step on this machine's GPU, and compare it with the prediction.

    The model is built with its own weights (random ones where they are missing) and runs on its inputs, or
    on random ones of the sizes that 'tclint check' takes, a few steps to warm up and then those that count.

    \b
    tclint verify model.py:build_model --batch 32
    tclint verify model.py:build_model --finding FMT001
    """
    settings = settings_of_target(flags, target)

    from tclint.profile.verify import verify as run

    with ProgressLine() as progress:
        gpus = settings.gpus if flags["gpus"] else ()
        compared = run(target, settings, gpus, finding, progress)
    _show([compared.profile], [compared], format_name, output, verbose)
    return 0


def _is_trace(path: str) -> bool:
    from tclint.profile.events import SUFFIXES

    return os.path.isdir(path) or (os.path.isfile(path) and path.endswith(SUFFIXES))


def _compare(before: str, after: str, format_name: str, output: str | None, verbose: bool) -> None:
    from tclint.profile.compared import compare, compared_document
    from tclint.profile.json import compared_dict
    from tclint.profile.profile import read_profile

    with ProgressLine() as progress:
        compared = compare(read_profile(before, progress), read_profile(after, progress))
    if format_name == "json":
        write_output(_json(compared_dict(compared)), output)
    else:
        most = 12 if format_name == "text" and not verbose else 80
        write_output(_rendered(compared_document(compared, most), format_name), output)


def _show(
    profiles: list[RankProfile], besides: list[Beside], format_name: str, output: str | None, verbose: bool
) -> None:
    from tclint.profile.document import MOST, profile_document
    from tclint.profile.json import add_to_report, to_dict
    from tclint.profile.profile import slowest_first
    from tclint.report.formats.json import to_dict as report_dict

    if format_name == "json":
        found = add_to_report(besides, report_dict(besides[0].report)) if besides else to_dict(profiles)
        write_output(_json(found), output)
        return
    shown = slowest_first(profiles)[:1] if format_name == "text" else profiles
    how = "brief" if format_name == "text" and not verbose else format_name
    write_output(_rendered(profile_document(profiles, shown, besides, MOST[how]), format_name), output)


def _rendered(document: Document, format_name: str) -> str:
    if format_name == "markdown":
        return as_markdown(document)
    if format_name == "html":
        return as_page(document, "tclint profile")
    return as_text(document, report_width(sys.stdout))


def _json(values: dict[str, Any]) -> str:
    from tclint.report.formats.json import clean, rounded

    return json.dumps(clean(rounded(values)), indent=2, allow_nan=False) + "\n"


def _calibrate(path: str, profiles: list[RankProfile], besides: list[Beside], gpus: Sequence[str]) -> None:
    """Fit factors, write those that help, and say so of each."""
    from tclint.profile.beside import recorded_gpu
    from tclint.profile.calibrate import fit, samples_of_model, samples_of_traces, write_factors

    gpu = besides[0].estimate.gpu if besides else recorded_gpu(profiles[0], gpus)
    fitted_on = f"{profiles[0].summary.gpu or gpu.id}, {os.path.basename(profiles[0].summary.path)}"
    samples = samples_of_model(besides) if besides else samples_of_traces(profiles, gpu)
    fitted = fit(samples, gpu, fitted_on)
    for one in fitted:
        say(f"calibration: {one.text}")
    if not write_factors(path, fitted, gpu):
        raise UsageError(
            f"No factor lowers the error on shapes that it was not fitted on, so {path!r} was not written."
            if fitted
            else f"The trace tells no operator's work (record_shapes=True records it), so {path!r} was not "
            "written."
        )
    say(f'{path} is written; to use it: calibration = "{path}" under [tool.tclint], or --calibration {path}')
