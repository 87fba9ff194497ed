"""A rule on waiting for the GPU in every round of a training loop."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, Location, Related, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path
from tclint.source.training.step_waits import Wait, waits_of
from tclint.source.training.steps import Step, steps_of


class SyncInLoop(SourceRule):
    """A wait for the GPU in every training step.

    What it does
    Finds what makes every step of a training loop wait for the GPU: `.item()`, `.cpu()`, `.numpy()`,
    `.tolist()` and `.nonzero()` of the loss or of what is computed from the model's outputs; `float`,
    `int`, `print`, f-strings and `%` of the loss; comparisons of it; `torch.cuda.synchronize()`; the same
    in a function of the project that the step calls. There is one finding per loop, which lists all
    lines. Loops that call backward through Accelerate, Fabric, DeepSpeed, Lightning or a scaler's wrapper
    count as well.

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
    triggers = ("backward(", "training_step", "scaler(", "on_before_optimizer_step")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or not (context.on_gpu or _moves_to_device(context)):
            return
        for step in steps_of(context):
            for wait in waits_of(context, step):
                yield self._found(context, step, wait)

    def _found(self, context: SourceContext, step: Step, wait: Wait) -> Finding:
        shown = context.excerpt(wait.node_id)
        backward = tuple(
            context.related(event.call.node_id, "in the step of this backward")
            for event in step.backwards[:1]
        )
        return self.finding(
            context.location(wait.node_id),
            f"`{shown}` waits for the GPU in every step.",
            related=(
                *backward,
                *([Related(Location(wait.path, wait.line), "it waits here")] if wait.path else ()),
            ),
            evidence={"function": step.function.qualified_name},
            effect=Effect(unknown="how far the CPU runs ahead of the GPU is not known from the source"),
            fix=Fix("Keep detached tensors and read them at an interval, outside the step."),
            identity=f"{step.function.qualified_name}:{shown}",
            group=f"{step.function.index}:{step.block}",
        )


def _moves_to_device(context: SourceContext) -> bool:
    """`batch.to(device)` where the caller or an option gives the device."""
    for function, event, _ in context.program.methods("to"):
        for argument in event.call.arguments[:1]:
            possible = context.resolver.evaluate(function, argument.value)
            text = getattr(argument.value, "dotted", "")
            if text.rpartition(".")[2] == "device" and "cpu" not in possible.values:
                return True
    return False
