"""`tclint pad`: pretrained weights carried over to a padded model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from tclint.cli.command_group import say
from tclint.cli.options import config_options, read_settings, setting_flags
from tclint.core.errors import UsageError
from tclint.core.terminal import ProgressLine, write_stdout
from tclint.core.text import printable
from tclint.core.units import bytes_text, plural

if TYPE_CHECKING:
    from tclint.checkpoints.padding import PaddedFile
    from tclint.graph.weights.plan import PaddingProof, WeightPlan

_MOST_NAMES = 3


@click.command()
@click.argument("checkpoint", type=click.Path(), metavar="[CHECKPOINT]", required=False)
@click.option(
    "--plan",
    "plan_path",
    type=click.Path(),
    metavar="FILE",
    help="The plan written by `tclint fix --plan`; with --check it may be left out.",
)
@click.option("--output", type=click.Path(), metavar="FILE", help="File to write the padded checkpoint to.")
@click.option("--optimizer", is_flag=True, help="Pad the optimizer states in the checkpoint as well.")
@click.option(
    "--inexact",
    is_flag=True,
    help="Pad even if the padded model is not known to compute the same, to continue training it.",
)
@click.option(
    "--check",
    nargs=2,
    metavar="OLD NEW",
    help="Run both models, 'old/model.py:build' and the same with its sizes edited, and compare them.",
)
@setting_flags("input", "arg", "network", "timeout", "memory-limit")
@config_options
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
def pad(
    checkpoint: str | None,
    plan_path: str | None,
    output: str | None,
    *,
    optimizer: bool,
    inexact: bool,
    check: tuple[str, str] | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Pad the weights in CHECKPOINT, a file of safetensors or torch.save, to the sizes of a plan.

    Says whether the padded model computes the same, which runs of both models have shown when the plan was
    made; --check runs them now, with the weights of the CHECKPOINT too. No code in the file is run.

    Exit codes: 0 padded, or with --check alone: the same; 1 with --check alone: not the same, or not known;
    2 usage error, or nothing was written.
    """
    from tclint.checkpoints.padding import check_exact, pad_checkpoint, read_plan

    if (checkpoint is None) != (output is None):
        raise UsageError("CHECKPOINT is padded into the file that --output names; give both.")
    if plan_path is None and check is None:
        raise UsageError("Name the plan with --plan, or both models with --check OLD NEW.")
    if checkpoint is None and check is None:
        raise UsageError("Name the CHECKPOINT to pad, or both models with --check OLD NEW.")
    plan = None if plan_path is None else read_plan(plan_path)
    if check is not None:
        from tclint.engine.padding_check import checked_plan

        settings, _ = read_settings(flags, check)
        with contextlib.nullcontext() if quiet else ProgressLine() as progress:
            plan = checked_plan(*check, settings, plan, checkpoint, progress)
    assert plan is not None
    write_stdout(_told(plan))
    if checkpoint is None or output is None:
        return int(not plan.proof.is_exact)
    if any(edit.kind != "slice_output" for edit in plan.proof.edits):
        say("warning: the model computes something else until its code keeps these numbers.")
    check_exact(plan, inexact=inexact)
    written = pad_checkpoint(checkpoint, plan, output, optimizer=optimizer)
    if not quiet:
        for remark in written.remarks:
            say(f"note: {remark}.")
        say(_summary(output, written))
    return 0


def _told(plan: WeightPlan) -> str:
    lines = []
    for group in plan.groups:
        more = len(group.tensors) - _MOST_NAMES
        names = ", ".join(group.tensors[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"{group.old_size} -> {group.new_size} ({names})")
    lines += _verdict(plan.proof)
    return "".join(f"{printable(line)}\n" for line in lines)


def _verdict(proof: PaddingProof) -> list[str]:
    layers = f", with {proof.layers}" if proof.layers else ""
    gradients = "" if proof.gradients else "; gradients were not compared"
    runs = f"{plural(proof.runs, 'run')} of both models in float64{layers}{gradients}"
    if proof.verdict == "exact":
        return [f"exact ({runs})"]
    if proof.verdict == "exact_with":
        edits = [f"    {edit.text}" for edit in proof.edits]
        return [f"exact only with these edits ({runs}):", *edits]
    if proof.verdict == "inexact":
        return [f"not exact: {proof.reason}"]
    return [f"not known to be exact: {proof.reason}"]


def _summary(output: str, written: PaddedFile) -> str:
    grown = bytes_text(written.bytes_before), bytes_text(written.bytes_after)
    counts = f"{written.padded} of {written.tensors} tensors padded"
    return f"Wrote {printable(output)}: {counts}, {grown[0]} -> {grown[1]}."
