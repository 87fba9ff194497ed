"""A rule on DistributedDataParallel that exchanges gradients in every accumulation step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.questions.steps import steps_at_intervals

_DDP = ("torch.nn.parallel.DistributedDataParallel",)
_BY_HAND = frozenset({"require_backward_grad_sync"})
_CALLS = (".no_sync", ".register_comm_hook", ".set_requires_gradient_sync")


class DdpAccumulationWithoutNoSync(SourceRule):
    """Gradient accumulation under DistributedDataParallel that reduces in every micro-step.

    What it does
    Finds loops that step the optimizer every n-th time only (`if step % n == 0: optimizer.step()`) and call
    backward each time, on a model in DistributedDataParallel, in programs that never use `no_sync`.

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
    triggers = ("backward(",)
    program = ("DistributedDataParallel", "DDP")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts = context.facts
        wrapped = {
            thing: event
            for event in context.record.of("wrap")
            if event.name in _DDP
            for thing in facts.things(event.result)
            if not thing.fields.keys() & _BY_HAND
        }
        by_hand = [event for event in context.record.of("call") if event.name in _CALLS]
        for step in context.steps.all if wrapped and not by_hand else ():
            backward = step.backwards[0]
            wraps = [wrapped[item] for item in facts.networks_of(facts.loss_of(backward)) if item in wrapped]
            stepped = next((event for event in step.steps if steps_at_intervals(step, event)), None)
            if not wraps or stepped is None or not context.concerns(backward):
                continue
            yield self.finding(
                context.at(backward),
                "Gradients are reduced in every backward, although the optimizer steps only every few rounds "
                f"({context.where(stepped, backward)}).",
                related=(
                    context.also(wraps[0], "the model is wrapped here"),
                    context.also(stepped, "the optimizer steps here"),
                ),
                evidence={"function": backward.place.function.qualified_name},
                fix=Fix("Run forward and backward of the other steps under `model.no_sync()`."),
                identity=f"{backward.place.function.qualified_name}:no_sync",
            )
