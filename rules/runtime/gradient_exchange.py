"""A rule on programs for several GPUs that exchange gradients in every accumulation step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Defaults

_DDP = ("torch.nn.parallel.DistributedDataParallel",)
_BY_HAND = frozenset({"require_backward_grad_sync"})
_CALLS = (".no_sync", ".register_comm_hook", ".set_requires_gradient_sync")

_NO_SYNC = "model.no_sync()"
_POSTPONING = frozenset({"accumulate", "no_sync"})


class DdpAccumulationWithoutNoSync(SourceRule):
    """Gradient accumulation under DistributedDataParallel that reduces in every micro-step.

    What it does
    Finds loops that call backward several times for one step of the optimizer (`if step % n == 0:
    optimizer.step()`, or a loop over parts of the batch), on a model in DistributedDataParallel, in programs
    that never use `no_sync`. A model that Accelerate or Fabric prepares counts if the program asks which
    process it is, a sign that it is meant for several.

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
    program = ("DistributedDataParallel", "DDP", "accelerat", "fabric")

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
        for step in context.steps.all if not by_hand else ():
            accumulated = (
                (backward, stepped)
                for backward in step.backwards
                for stepped in step.steps
                if step.is_accumulated(backward, stepped) and context.concerns(backward)
            )
            backward, stepped = next(accumulated, (None, None))
            if backward is None or stepped is None:
                continue
            networks = facts.networks_of(facts.loss_of(backward))
            wraps = [wrapped[item] for item in networks if item in wrapped]
            by_framework = next(
                (text for item in networks if (text := Defaults().constant(item.fields.get("@exchange")))),
                None,
            )
            # A function that makes a context in one of two ways is not followed.
            may_be_postponed = any(
                thing.is_unknown or thing.kind == "managed" or thing.name in _POSTPONING
                for region in backward.regions
                for thing in facts.things(region.context)
            )
            is_for_several = bool(wraps or (by_framework and context.steps.asks_for_process))
            if may_be_postponed or not is_for_several:
                continue
            yield self.finding(
                context.at(backward),
                f"{'Gradients' if wraps else 'On several GPUs, gradients'} are reduced in every backward "
                f"pass, but the optimizer steps only every few rounds ({context.where(stepped, backward)}).",
                related=(
                    *[context.also(event, "the model is wrapped here") for event in wraps[:1]],
                    context.also(stepped, "the optimizer steps here"),
                ),
                evidence={"function": backward.place.function.qualified_name},
                fix=Fix(f"Run forward and backward of the other steps under `{by_framework or _NO_SYNC}`."),
                identity=f"{backward.place.function.qualified_name}:no_sync",
            )
