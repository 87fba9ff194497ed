"""A rule on loops that launch small kernels one by one."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import TRAINS, LaunchLoop

_MULTI_AVERAGE = "torch 2.1"
"""The first version of torch whose AveragedModel averages all parameters at once (get_ema_multi_avg_fn)."""


class SmallKernels(SourceRule):
    """Parameters updated one by one in every training step.

    What it does
    Finds loops over the parameters of a model, or over its state dict, that every training step runs and that
    compute on the GPU: moving averages of weights, target networks, gradients that are scaled or clipped by
    hand, steps of the project's own optimizers. There is one finding for a program; it lists the other loops.

    Why it costs
    Each operation in the loop launches a kernel for each parameter tensor, of which networks have hundreds. A
    launch takes some 20 us of the CPU, most of these kernels far less of the GPU.

    Example
        for p, average in zip(model.parameters(), ema.parameters()):
            average.data.mul_(0.999).add_(p.data, alpha=0.001)

    Use instead
        # made once: it computes all parameters with a few kernels
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        ...
        ema.update_parameters(model)

    When it does not apply
    Loops behind an interval or an option, such as those of an optimizer that an option chooses, and those
    that only set attributes such as `requires_grad`; programs on the CPU; versions of torch before 2.1, which
    have no other way.
    """

    code = "RUN028"
    name = "parameters-one-by-one"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch torch.optim, Weight averaging: AveragedModel, and get_ema_multi_avg_fn",
        "PyTorch Performance Tuning Guide, Fuse operations: each operation of its own launches a kernel",
    )
    triggers = ("parameters()", "param_groups", "state_dict()")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Location] = set()
        for found in context.launches.over_parameters():
            first = found.kernels[0]
            if context.is_shown(first) and (at := context.at(first)) not in seen:
                seen.add(at)
                yield self._found(context, found, first)

    def _found(self, context: SourceContext, found: LaunchLoop, first: Event) -> Finding:
        count, function = len(found.kernels), first.place.function.qualified_name
        kernels = "a kernel" if count == 1 else f"{count} kernels"
        if len({event.path for event in found.kernels}) > 1:
            kernels = f"up to {kernels}"
        calls = () if context.lints(first) else (context.also(first, "by this loop"),)
        shown = "This loop" if context.lints(first) else f"`{context.shown(first)}`"
        return self.finding(
            context.at(first),
            f"{shown} launches {kernels} for each parameter tensor, in every step.",
            related=(*calls, context.also(found.step.backwards[0], "the backward pass of this step")),
            evidence={"function": function, "kernels": count},
            effect=Effect(unknown="how many parameters the model has is not known from the source"),
            fix=Fix(
                "Average with torch.optim.swa_utils.AveragedModel(model, "
                "multi_avg_fn=get_ema_multi_avg_fn(decay)), which takes a few kernels for all of them.",
                needs=_MULTI_AVERAGE,
            )
            if self._averages(context, found)
            else Fix("Put the loop into a function and compile it (torch.compile), which fuses its kernels."),
            identity=f"{function}:{context.code(first)}",
            group=self.name,
        )

    def _averages(self, context: SourceContext, found: LaunchLoop) -> bool:
        """Whether a loop computes with the parameters of two modules."""
        owners = {
            owner
            for event in found.kernels
            for value in event.inputs
            for part in context.facts.within(value)
            for owner in context.facts.parameters_of(part)
        }
        return len(owners) > 1
