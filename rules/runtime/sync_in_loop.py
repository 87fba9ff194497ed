"""A rule on waiting for the GPU in every round of a training loop."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.core.finding import Finding, Fix
from tclint.source.context import SourceContext
from tclint.source.facts.program import Training
from tclint.source.names.queries import contains, is_test_path
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Call, Expression, Function, dotted, method_of, render


class SyncInLoop(SourceRule):
    """A wait for the GPU in every training step.

    What it does
    Finds `loss.item()`, `print(loss)` and `torch.cuda.synchronize()` that run in every step of a training
    loop on CUDA, for the loss that the same loop takes backward.

    Why it costs
    The CPU normally runs ahead and queues kernels. Reading a value waits until everything before it is done;
    then the GPU is idle until the next kernels arrive. For small models that is a large part of a step.

    Example
        for images, labels in loader:
            ...
            loss.backward()
            total += loss.item()

    Use instead
            total += loss.detach()      # a tensor: read it once per epoch, or every 100 steps

    When it does not apply
    Reads behind a logging interval, checks for NaN, values that decide whether to go backward, timing with
    synchronize, programs on the CPU.

    References
    PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
    """

    code = "RUN014"
    name = "sync-in-loop"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch recipes, Performance Tuning Guide: Avoid unnecessary CPU-GPU synchronization",)
    triggers = (".item()", "synchronize()", "print(")
    requires = ("cuda", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda:
            return
        if program.words & {"isfinite", "isnan", "isinf", "nan"}:
            return
        for training in program.trainings:
            waits = _waits(context, training)
            if not waits:
                continue
            yield self.finding(
                context.location(waits[0].node_id),
                f"`{context.excerpt(waits[0].node_id)}` waits for the GPU in every step.",
                related=(
                    context.related(training.backward.call.node_id, "in the loop of this backward"),
                    *(context.related(wait.node_id, "this waits as well") for wait in waits[1:]),
                ),
                evidence={"waits": len(waits), "function": training.function.qualified_name},
                fix=Fix("Keep detached tensors and read them at an interval, outside the step."),
                identity=f"{training.function.qualified_name}:{render(waits[0])}",
            )


RULES = (SyncInLoop,)


def _waits(context: SourceContext, training: Training) -> list[Call]:
    """Calls that wait for the GPU in each round of the loop."""
    program = context.program
    function = training.function
    if not training.block:
        return []
    receiver, _ = method_of(training.backward.call)
    loss = ""
    if isinstance(receiver, Call):  # scaler.scale(loss).backward()
        loss = dotted(receiver.arguments[0].value) if receiver.arguments else ""
    elif receiver is not None:
        loss = dotted(receiver)
    timed = bool(program.words & {"elapsed", "perf", "time", "timer", "profiler"})
    found = []
    for event in function.calls:
        if not _each_round(function, event.block, training.block):
            continue
        on, method = method_of(event.call)
        read = method == "item" and on is not None and _is_loss(on, loss)
        read = read and not _decides(function, training, event.call)
        shown = (
            method == "print"
            and on is None
            and any(_is_loss(argument.value, loss) for argument in event.call.arguments)
        )
        waited = method == "synchronize" and not timed and _is_cuda_wait(context, function, event.call)
        if read or shown or waited:
            found.append(event.call)
    return found


def _decides(function: Function, training: Training, call: Call) -> bool:
    """The value decides whether to go backward: `if loss.item() < limit: loss.backward()`."""
    return any(
        contains(condition, lambda part: isinstance(part, Call) and part.node_id == call.node_id)
        for index in function.enclosing(training.backward.block)
        if (condition := function.blocks[index].condition) is not None
    )


def _is_cuda_wait(context: SourceContext, function: Function, call: Call) -> bool:
    return "torch.cuda.synchronize" in context.resolver.called(function, call)


def _is_loss(expression: Expression, loss: str) -> bool:
    """`loss`, `loss.data`, `loss.detach()`."""
    if isinstance(expression, Call):
        on, method = method_of(expression)
        return on is not None and method in ("detach", "cpu", "mean", "sum") and _is_loss(on, loss)
    return bool(loss) and dotted(expression) in (loss, f"{loss}.data")


def _each_round(function: Function, block: int, loop: int) -> bool:
    """The block runs in every round of the loop: nothing but with blocks in between."""
    for index in function.enclosing(block):
        if index == loop:
            return True
        if function.blocks[index].kind != "with":
            return False
    return False
