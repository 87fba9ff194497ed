"""A rule on torch's debugging aids left on in training."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Constant, Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import TRUE

_BLOCKING = "os.environ['CUDA_LAUNCH_BLOCKING']"
_NO_GPU = "os.environ['CUDA_VISIBLE_DEVICES']"
_WORKSPACE = "os.environ['CUBLAS_WORKSPACE_CONFIG']"


class DebugApisOn(SourceRule):
    """Autograd's debugging tools switched on in training.

    What it does
    Finds `torch.autograd.set_detect_anomaly(True)` and `with torch.autograd.detect_anomaly():` or
    `emit_nvtx()` around training steps that always run; a profiler without a schedule around all training;
    and `os.environ["CUDA_LAUNCH_BLOCKING"] = "1"` that always runs, in programs that use torch.

    Why it costs
    Anomaly detection records a stack trace for every forward op and looks for NaN after every backward
    op, waiting for the GPU each time; steps take several times as long. emit_nvtx costs an annotation per
    op. CUDA_LAUNCH_BLOCKING makes the CPU wait for each kernel, so none is queued ahead of the GPU.

    Example
        torch.autograd.set_detect_anomaly(True)

    Use instead
        torch.autograd.set_detect_anomaly(args.debug)

    When it does not apply
    Switches behind a flag, tests, helpers that only switch it on, programs that hide every GPU,
    deterministic runs, for which older versions of CUDA need CUDA_LAUNCH_BLOCKING.
    """

    code = "RUN005"
    name = "debug-apis-on"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Disable debugging APIs: anomaly detection and profilers",
        "PyTorch CUDA semantics, Asynchronous execution: CUDA_LAUNCH_BLOCKING",
    )
    triggers = ("detect_anomaly", "emit_nvtx", "emit_itt", "CUDA_LAUNCH_BLOCKING", "profiler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event in distinct(context.record.of("debug")):
            last = event.name.rpartition(".")[2]
            if not context.concerns(event) or not self._is_on(context, event, last):
                continue
            cost = (
                "annotates every op"
                if "emit" in last
                else "checks every backward op for NaN and waits for it"
            )
            yield self._report(context, event, last, f"`{context.code(event)}` always runs: it {cost}.")
        for event in distinct(context.record.of("profile")):
            if event.name.startswith("torch.cuda."):
                continue  # tells a profiler when to record
            chosen = event.arguments.keys() & {"schedule", "enabled", "**", "0"}
            if not chosen and context.concerns(event) and self._covers_steps(context, event):
                message = f"`{context.code(event)}` records every op of every step, and keeps it."
                yield self._report(context, event, "profile", message)
        yield from self._blocking(context)

    def _is_on(self, context: SourceContext, event: Event, last: str) -> bool:
        if last == "set_detect_anomaly":
            return event.first == TRUE and context.switches.is_always(event)
        if event.arguments.get("enabled", TRUE) != TRUE or "**" in event.arguments:
            return False
        if "emit" in last and context.record.of("profile"):
            return False  # annotations for the profiler
        return self._covers_steps(context, event)

    def _covers_steps(self, context: SourceContext, event: Event) -> bool:
        """Whether training steps always run in a context."""
        regions = [
            region
            for step in context.steps.all
            for backward in step.backwards
            for region in backward.regions
            if region.context is event.result and not region.path
        ]
        return bool(regions)

    def _blocking(self, context: SourceContext) -> Iterator[Finding]:
        """Findings on `os.environ["CUDA_LAUNCH_BLOCKING"] = "1"`, with which each launch waits for its
        kernel."""
        switches, found = context.switches, context.switches.environment
        hidden = any(event.first in (Constant(""), Constant("-1")) for event in found.get(_NO_GPU, ()))
        reproducible = _WORKSPACE in found or switches.asks_for_exactness
        if hidden or reproducible or any(event.first != Constant("1") for event in found.get(_BLOCKING, ())):
            return
        for event in found.get(_BLOCKING, ())[:1]:
            if context.concerns(event) and switches.is_always(event) and context.devices.uses_torch:
                message = f"`{context.code(event)}` always runs: the CPU waits for every kernel it launches."
                yield self._report(context, event, "CUDA_LAUNCH_BLOCKING", message)

    def _report(self, context: SourceContext, event: Event, what: str, message: str) -> Finding:
        function = event.place.function.qualified_name
        called = {"variable": what} if what == "CUDA_LAUNCH_BLOCKING" else {"call": event.name}
        fix = {
            "CUDA_LAUNCH_BLOCKING": "Remove it, and set the variable in the shell while debugging.",
            "profile": "Pass schedule=torch.profiler.schedule(...), or profile behind an option.",
        }
        return self.finding(
            context.at(event),
            message,
            evidence={**called, "function": function},
            fix=Fix(fix.get(what, "Remove it, or enable it only with a debugging flag.")),
            identity=f"{function}:{what}",
        )
