"""`tclint pad`: pretrained weights carried over to a padded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tclint.cli.command_group import say
from tclint.cli.options import debug_option
from tclint.core.terminal import write_stdout
from tclint.core.text import printable
from tclint.core.units import bytes_text

if TYPE_CHECKING:
    from tclint.checkpoints.padding import PaddedFile
    from tclint.graph.weights.plan import GroupPlan, WeightPlan

_MOST_NAMES = 3


@click.command()
@click.argument("checkpoint", type=click.Path(), metavar="CHECKPOINT")
@click.option(
    "--plan",
    "plan_path",
    type=click.Path(),
    required=True,
    metavar="FILE",
    help="The plan written by `tclint fix --plan`.",
)
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="FILE",
    help="File to write the padded checkpoint to.",
)
@click.option("--optimizer", is_flag=True, help="Pad the optimizer states in the checkpoint as well.")
@click.option(
    "--inexact",
    is_flag=True,
    help="Pad even if the padded model computes something else, to continue training it.",
)
@debug_option
def pad(checkpoint: str, plan_path: str, output: str, *, optimizer: bool, inexact: bool) -> None:
    """Pad the weights in CHECKPOINT, a file of safetensors or torch.save, to the sizes of a plan.

    Says for every dim that grows whether the padded model computes the same. No code in the file is run.
    """
    from tclint.checkpoints.padding import check_exact, pad_checkpoint, read_plan

    plan = read_plan(plan_path)
    write_stdout(_verdicts(plan))
    check_exact(plan, inexact=inexact)
    written = pad_checkpoint(checkpoint, plan, output, optimizer=optimizer)
    for remark in written.remarks:
        say(f"note: {remark}.")
    say(_summary(output, written))


def _verdicts(plan: WeightPlan) -> str:
    return "".join(line + "\n" for group in plan.groups for line in _verdict(group))


def _verdict(group: GroupPlan) -> list[str]:
    more = len(group.tensors) - _MOST_NAMES
    names = ", ".join(map(printable, group.tensors[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
    verdict = {"exact": "exact", "exact_with": "exact with", "inexact": "not exact"}[group.verdict]
    head = f"{group.old_size} -> {group.new_size} ({names}): {verdict}"
    if group.verdict == "inexact":
        return [f"{head}: {printable(group.reason or '')}"]
    if group.verdict == "exact":
        return [head]
    return [head, *(f"    {printable(edit.text)}" for edit in group.edits)]


def _summary(output: str, written: PaddedFile) -> str:
    grown = bytes_text(written.bytes_before), bytes_text(written.bytes_after)
    counts = f"{written.padded} of {written.tensors} tensors padded"
    return f"Wrote {printable(output)}: {counts}, {grown[0]} -> {grown[1]}."
