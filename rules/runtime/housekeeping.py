"""A rule on housekeeping in every training step: emptied caches, garbage collections, barriers."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import Step

_WHAT = {
    "empty_cache": (
        "returns memory to the driver that the next step has to ask for again",
        "Leave it out: the next step reuses cached memory; or call it once, after a change of sizes.",
    ),
    "collect": (
        "goes through all objects of the Python process",
        "Leave it out, or call it at an interval.",
    ),
    "barrier": (
        "stops all processes until the last one arrives",
        "Leave it out: the exchange of gradients already waits for all processes.",
    ),
}
"""Kind of event -> what it does, and what to do about it."""


class Housekeeping(SourceRule):
    """Housekeeping in every training step.

    What it does
    Finds `torch.cuda.empty_cache()`, `gc.collect()`, `Accelerator.free_memory()`, which does both, and
    barriers of processes (`torch.distributed.barrier`, `Accelerator.wait_for_everyone`) that every training
    step calls, itself or in a function of the project.

    Why it costs
    torch keeps freed memory of the GPU for the next tensors. `empty_cache` waits for the GPU and frees it, so
    that the next step has to ask the driver for memory again, which waits as well. `gc.collect` goes through
    every object of the process, in tens of milliseconds or more. A barrier makes each process wait for the
    slowest, where the exchange of gradients alone would let it run ahead.

    Example
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            torch.cuda.empty_cache()

    Use instead
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()

    When it does not apply
    Calls behind an interval, an option or a test; once per epoch; before or after the training; around
    validation; barriers that come before one process reads what another has written.
    """

    code = "RUN031"
    name = "housekeeping-per-step"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, Memory management: the caching allocator, and what empty_cache is for",
        "PyTorch Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: which calls wait",
    )
    triggers = ("empty_cache", "free_memory", "gc.collect", "barrier", "wait_for_everyone")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Location] = set()
        for step in context.steps.all:
            for event in step.events:
                if event.kind not in _WHAT or not context.is_shown(event) or not step.steps:
                    continue
                at = context.at(event)
                if at not in seen and context.steps.every_time(step, event):
                    seen.add(at)
                    yield self._found(context, step, event, at)

    def _found(self, context: SourceContext, step: Step, event: Event, at: Location) -> Finding:
        what, advice = _WHAT[event.kind]
        shown, function = context.shown(event), step.place.function.qualified_name
        return self.finding(
            at,
            f"`{shown}` {what}, in every step.",
            related=(context.also(step.backwards[0], "the backward pass of this step"),),
            evidence={"function": function},
            effect=Effect(unknown="how long it takes depends on what the program holds"),
            fix=Fix(advice),
            identity=f"{function}:{shown}",
            group=f"{self.name} {event.kind}",
        )
