"""Rules on the value to which programs set cudnn.benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import DETERMINISTIC, FALSE, TRAINS, TRUE

_BENCHMARK = "torch.backends.cudnn.benchmark"


class CudnnBenchmarkOff(SourceRule):
    """cudnn.benchmark switched off for no visible reason.

    What it does
    Finds `torch.backends.cudnn.benchmark = False` that always runs, in a file that says nothing about
    determinism.

    Why it costs
    cuDNN then picks convolution algorithms by a heuristic. Off is the default, so the line only documents
    a decision, and it keeps the auto-tuner from being used.

    Example
        torch.backends.cudnn.benchmark = False

    Use instead
        torch.backends.cudnn.benchmark = True

    When it does not apply
    Next to `deterministic = True` or in a seeding helper, where it is part of a reproducible run; inputs of
    changing sizes, or of unknown ones (`DataLoader(dataset, batch_size=None)`); switches under a condition.
    The rule is silent there.
    """

    code = "RUN002"
    name = "cudnn-benchmark-off"
    level = "info"
    confidence = "medium"
    sources = ("PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: what cudnn.benchmark does",)
    triggers = ("benchmark",)
    pattern = re.compile(rb"cudnn|benchmark\s*=")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        switch = switches.only(_BENCHMARK, FALSE)
        if switch is None or not context.concerns(switch.event):
            return
        if switches.may_be(TRUE, *DETERMINISTIC) or switches.may_be(FALSE, "torch.backends.cudnn.enabled"):
            return context.skip(switch.event, "belongs to a reproducible run, or cuDNN may be off")
        if switches.seeds(switch):
            return context.skip(switch.event, "stands where random numbers are seeded: for reproducible runs")
        if any(context.sizes.vary(step) is not None for step in context.steps.all):
            return context.skip(switch.event, "sizes of inputs change, for which the auto-tuner does not pay")
        if any(map(context.sizes.depend_on_data, context.steps.all)):
            return context.skip(switch.event, "batches are made by a data set that may give them any sizes")
        yield self.finding(
            context.at(switch.event),
            "`cudnn.benchmark = False` keeps cuDNN from choosing the fastest convolution algorithms, and "
            "nothing here asks for determinism.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Set it to True where inputs keep their size; where runs must be reproducible, set "
                "`torch.backends.cudnn.deterministic = True` as well."
            ),
            identity=f"{switch.event.place.function.qualified_name}:{switch.name}",
        )


class DeterministicWithBenchmark(SourceRule):
    """Determinism and cudnn.benchmark both switched on.

    What it does
    Finds `cudnn.benchmark = True` in a program that also sets `cudnn.deterministic = True` or
    `torch.use_deterministic_algorithms(True)`.

    Why it costs
    The two contradict each other. The auto-tuner times algorithms and may choose another one in every
    run, so results differ between runs although each algorithm is deterministic; and it can only choose
    among the deterministic ones.

    Example
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = True

    Use instead
        torch.backends.cudnn.benchmark = True        # speed

        # or, for reproducible runs:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False

    When it does not apply
    Branches of which only one runs; a later line that switches one of them off again.
    """

    code = "RUN003"
    name = "deterministic-with-benchmark"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Reproducibility, CUDA convolution benchmarking: the auto-tuner may choose another "
        "algorithm in every run",
        "PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: what cudnn.benchmark does",
    )
    triggers = ("benchmark",)
    pattern = re.compile(rb"cudnn|benchmark\s*=")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        asked = [switch for switch in switches.of(*DETERMINISTIC) if switch.value == TRUE]
        pairs = (
            (switch.event, other.event, other.name, switch.name)
            for switch in switches.of(_BENCHMARK)
            if switch.value == TRUE and context.concerns(switch.event)
            for other in asked
            if switches.together(switch, other)
        )
        for switch, other, name, switched in distinct(pairs):
            yield self.finding(
                context.at(switch),
                f"`{context.code(switch)}` lets cuDNN choose algorithms by timing, against "
                f"`{context.code(other)}` on {context.where(other, switch)}.",
                related=(context.also(other, "determinism is asked for here"),),
                evidence={"benchmark": True, "deterministic": name},
                fix=Fix(
                    "Keep one of them: benchmark = True for speed, or deterministic with benchmark = "
                    "False for reproducible runs."
                ),
                identity=f"{switch.place.function.qualified_name}:{switched}",
            )


class BenchmarkWithVaryingSizes(SourceRule):
    """cudnn.benchmark on for inputs whose sizes change from step to step.

    What it does
    Finds `cudnn.benchmark = True` in programs that train convolutions on a GPU on inputs whose sizes are seen
    to change: batches padded to their longest item, sizes that are drawn, detectors of torchvision.

    Why it costs
    The auto-tuner times all algorithms of every convolution again for each new shape, which takes many times
    as long as the convolution itself; with sizes that keep changing it seldom has a result to reuse.

    Example
        torch.backends.cudnn.benchmark = True
        for waves in loader:   # padded to the longest of the batch
            ...

    Use instead
        torch.backends.cudnn.benchmark = False   # or pad to one of a few lengths

    When it does not apply
    A few sizes that come again and again: each is timed once.
    """

    code = "RUN023"
    name = "cudnn-benchmark-varying-sizes"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: for inputs of one size",
        "PyTorch Reproducibility, CUDA convolution benchmarking: it runs for each new set of sizes",
    )
    triggers = ("benchmark",)
    pattern = re.compile(rb"cudnn|benchmark\s*=")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        on = [item.event for item in context.switches.of(_BENCHMARK) if item.value == TRUE]
        for switch in distinct(item for item in on if context.is_shown(item)):
            cause = next(
                (
                    cause
                    for step in context.steps.all
                    for cause in [context.sizes.vary(step)]
                    if cause is not None and context.networks.convolves_in(step)
                ),
                None,
            )
            if cause is None or not context.switches.is_always(switch):
                continue
            yield self.finding(
                context.at(switch),
                f"`{context.code(switch)}` times convolutions anew for every new size, and sizes change: "
                f"`{context.shown(cause)}` on {context.where(cause, switch)}.",
                related=(context.also(cause, "sizes change here"),),
                evidence={"benchmark": True, "sizes": cause.name},
                fix=Fix("Leave it off, or bring inputs to one of a few sizes."),
                identity=f"{switch.place.function.qualified_name}:{switch.name}",
            )
            return
