"""A rule on waiting for the GPU in every round of a training loop."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import Step

_MOST_RELATED = 4
"""The most waits to show inside one call."""


class SyncInLoop(SourceRule):
    """A wait for the GPU in every training step.

    What it does
    Finds what makes every step of a training loop wait for the GPU: `.item()`, `.cpu()`, `.numpy()`,
    `.tolist()` and `.nonzero()` of the loss or of what is computed from the model's outputs; `float`, `int`,
    `print`, f-strings and `%` of the loss; comparisons of it; slices up to a computed number;
    `torch.cuda.synchronize()`; metrics of TorchMetrics that check the values they get (`validate_args`, since
    0.11, and `nan_strategy`, whose 'disable' came with 1.6.2); the same in a function of the project that the
    step calls. There is one finding per loop, which lists all lines. Loops that call backward through
    Accelerate, Fabric, DeepSpeed, Lightning or a scaler's wrapper count as well.

    Why it costs
    The CPU normally runs ahead and queues kernels. Reading a value waits until everything before it is
    done; then the GPU is idle until the next kernels arrive. How long that is depends on how far ahead
    the CPU was, which the source does not show: much of a small model's step, little of a large one's.

    Example
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            total += loss.item()

    Use instead
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            total += loss.detach()      # a tensor: read it once per epoch, or every 100 steps

    When it does not apply
    Reads behind a logging interval or an option, or once per epoch; checks for NaN; values that decide
    whether to call backward; actions for an environment; timing with synchronize; programs on the CPU.
    """

    code = "RUN014"
    name = "sync-in-loop"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: which calls wait",
    )
    triggers = ("backward(", "training_step", "scaler(", "on_before_optimizer_step", "compute_loss")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for step in context.steps.all:
            found: dict[Location, tuple[Event, list[Event]]] = {}
            for wait, inner in context.waits.of(step):
                if context.is_shown(wait):
                    found.setdefault(context.at(wait), (wait, []))[1].extend(inner)
            for at, (wait, inner) in found.items():
                yield self._found(context, step, wait, inner, at)

    def _found(
        self, context: SourceContext, step: Step, wait: Event, inner: list[Event], at: Location
    ) -> Finding:
        shown, function = context.shown(wait), step.place.function.qualified_name
        without = {event.unless for event in inner}
        fix = "Keep detached tensors and read them at an interval, outside the step."
        if len(without) == 1 and "=" in (option := without.pop()):
            fix = f"Give it `{option}`, which leaves out this check, or call it at an interval."
        inside = (context.also(event, "it waits here") for event in inner if not event.place.file.is_library)
        return self.finding(
            at,
            f"`{shown}` waits for the GPU in every step.",
            related=(
                context.also(step.backwards[0], "the backward pass of this step"),
                *[related for related in inside if related.location != at][:_MOST_RELATED],
            ),
            evidence={"function": function},
            effect=Effect(unknown="how far the CPU runs ahead of the GPU is not known from the source"),
            fix=Fix(fix),
            identity=f"{function}:{shown}",
            group=f"{step.place.file.path}:{step.place.node_id} in {at.path}",
        )
