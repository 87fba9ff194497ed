"""Rules on what programs set cudnn.benchmark to."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.questions.switches import BENCHMARK, CUDNN_ENABLED, DETERMINISTIC
from tclint.source.run.facts import distinct
from tclint.source.run.values import FALSE, TRUE


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
    changing sizes; switches under a condition. The rule is silent there.
    """

    code = "RUN002"
    name = "cudnn-benchmark-off"
    level = "info"
    confidence = "medium"
    sources = ("PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: what cudnn.benchmark does",)
    triggers = ("benchmark",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        switch = switches.only(BENCHMARK, FALSE)
        if switch is None or not context.concerns(switch.event):
            return
        if switches.may_be(TRUE, *DETERMINISTIC) or switches.may_be(FALSE, CUDNN_ENABLED):
            return context.skip(switch.event, "belongs to a reproducible run, or cuDNN may be off")
        if switches.seeds(switch):
            return context.skip(switch.event, "stands where random numbers are seeded: for reproducible runs")
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

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        asked = [switch for switch in switches.of(*DETERMINISTIC) if switch.value == TRUE]
        pairs = (
            (switch.event, other.event, other.name, switch.name)
            for switch in switches.of(BENCHMARK)
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
