"""A rule on losses that the processes of a training exchange in every step, for a log."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import TRAINS


class ReducedLosses(SourceRule):
    """A loss that processes exchange in every step, for a log.

    What it does
    Finds what sends the loss of every training step, or what is computed from it, to the other processes:
    `torch.distributed.all_reduce` and its like, `gather` and `reduce` of Accelerate and Fabric, and
    Lightning's `self.log(..., sync_dist=True)`, also in functions that the step calls.

    Why it costs
    Gradients are exchanged while the backward pass runs. A reduction of one number comes after it: it takes
    a launch and the time to the slowest process and back, of which nothing is hidden, for a value that only a
    log reads.

    Example
        loss = model(batch).loss
        accelerator.backward(loss)
        optimizer.step()
        total += accelerator.reduce(loss.detach(), "mean")

    Use instead
        loss = model(batch).loss
        accelerator.backward(loss)
        optimizer.step()
        total += loss.detach()      # every process sums its own
        ...
        total = accelerator.reduce(total, "mean")     # once per epoch, or every 100 steps

    When it does not apply
    Reductions behind an interval or an option; values that decide whether a step is taken; validation; losses
    that are reduced before they are differentiated; a single device that the script states.
    """

    code = "RUN035"
    name = "loss-reduced-every-step"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch torch.distributed, Collective functions: every process of the group has to call them",
        "Lightning Logging, sync_dist: reduces the metric across devices and may lead to a significant "
        "communication overhead",
    )
    triggers = ("all_reduce", "all_gather", "reduce", "gather", "sync_dist")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Location] = set()
        for step in context.steps.all:
            for reduction, inner in context.reductions.of(step):
                if not context.is_shown(reduction) or (at := context.at(reduction)) in seen:
                    continue
                seen.add(at)
                shown, function = context.shown(reduction), step.place.function.qualified_name
                is_inside = not inner.place.file.is_library and context.at(inner) != at
                yield self.finding(
                    at,
                    f"`{shown}` exchanges the loss between all processes in every step, for a log.",
                    related=(context.also(inner, "it is reduced here"),) if is_inside else (),
                    evidence={"function": function},
                    effect=Effect(unknown="how many processes train is not known from the source"),
                    fix=Fix("Sum the losses of each process, and reduce the sum where it is logged."),
                    identity=f"{function}:{shown}",
                    group=f"{step.place.file.path}:{step.place.node_id} in {at.path}",
                )
