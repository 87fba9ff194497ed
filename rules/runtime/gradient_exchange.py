"""A rule on DistributedDataParallel that exchanges gradients in every accumulation step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Expression, Finding, Fix, Function, SourceContext, SourceRule, render
from tclint.source.facts.program import Training
from tclint.source.names.queries import is_test_path

_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")


class DdpAccumulationWithoutNoSync(SourceRule):
    """Gradient accumulation under DistributedDataParallel that reduces in every micro-step.

    What it does
    Finds loops that step the optimizer every n-th time only (`if step % n == 0: optimizer.step()`) and call
    backward each time, in files that wrap the model in DistributedDataParallel and never use `no_sync`.

    Why it costs
    DistributedDataParallel reduces all gradients between the GPUs in every backward pass. With
    accumulation only the last of n is needed: the others are n-1 reductions of the whole model for
    nothing.

    Example
        for step, batch in enumerate(loader):
            loss = model(batch) / n
            loss.backward()
            if (step + 1) % n == 0:
                optimizer.step()

    Use instead
        for step, batch in enumerate(loader):
            last = (step + 1) % n == 0
            with nullcontext() if last else model.no_sync():
                loss = model(batch) / n
                loss.backward()
            if last:
                optimizer.step()

    When it does not apply
    `require_backward_grad_sync` set by hand, FSDP, frameworks that do it themselves.
    """

    code = "RUN018"
    name = "ddp-accum-no-sync"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Skip unnecessary all-reduce if training with "
        "DistributedDataParallel and gradient accumulation: no_sync",
    )
    triggers = ("DistributedDataParallel", "DDP")
    requires = (".backward(", "%")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or context.amp.framework or program.speaks_of("fsdp", "fully_shard"):
            return
        if identifiers & {
            "no_sync",
            "require_backward_grad_sync",
            "register_comm_hook",
            "set_requires_gradient_sync",
        }:
            return
        wrapped = program.calls(*_DDP)
        if not wrapped:
            return
        for training in program.trainings:
            function = training.function
            guard = _interval_guard(function, training)
            if guard is None or not training.block:
                continue
            if context.neighbours.mention(("no_sync", "require_backward_grad_sync")):
                return
            yield self.finding(
                context.location(training.backward.call.node_id),
                f"Gradients are reduced in every backward, although the optimizer steps only where "
                f"`{render(guard)}`.",
                related=(
                    context.related(wrapped[0].call.node_id, "the model is wrapped here"),
                    context.related(training.step.call.node_id, "the optimizer steps here"),
                ),
                evidence={"condition": render(guard), "function": function.qualified_name},
                fix=Fix("Run forward and backward of the other steps under `model.no_sync()`."),
                identity=f"{function.qualified_name}:no_sync",
            )


def _interval_guard(function: Function, training: Training) -> Expression | None:
    """The test with `%` under which the optimizer steps, where backward runs without it."""
    around_backward = set(function.enclosing(training.backward.block))
    for index in function.enclosing(training.step.block):
        block = function.blocks[index]
        if index in around_backward:
            return None
        if block.kind == "if" and block.condition is not None and "%" in render(block.condition):
            return block.condition
    return None
