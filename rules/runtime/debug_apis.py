"""A rule on torch's debugging aids left on in training."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Assignment, Call, Finding, Fix, Function, Literal, SourceContext, SourceRule
from tclint.source.names.queries import Called, any_word, has_star, is_test_path, keyword, words
from tclint.source.training.cudnn_switches import SEEDING

_DEBUGGING = words(
    "debug debugging debugger profile profiler profiling bench benchmark benchmarks benchmarking"
)
"""Words of a file's name or a function's that say what it is for."""
_DETECTION = words("nan nans anomaly")
"""Of a function's name alone: a file may train a detector of anomalies."""
_PROFILERS = (
    "torch.cuda.profiler.profile",
    "torch.cuda.profiler.start",
    "torch.cuda.cudart",
    "torch.profiler.profile",
    "torch.autograd.profiler.profile",
)
"""A file that profiles wants the annotations."""
_ANOMALY = (
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
    "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.detect_anomaly",
)
_RECORDERS = ("torch.profiler.profile", "torch.autograd.profiler.profile")
_BLOCKING = re.compile(r"""environ\[["']CUDA_LAUNCH_BLOCKING["']\]""")
_NO_GPU = re.compile(r"""CUDA_VISIBLE_DEVICES["']\]?\s*[=,]\s*["'](?:-1)?["']""")
_NVTX = ("torch.autograd.profiler.emit_nvtx", "torch.autograd.profiler.emit_itt")


class DebugApisOn(SourceRule):
    """Autograd's debugging tools switched on in training.

    What it does
    Finds `torch.autograd.set_detect_anomaly(True)` and `with torch.autograd.detect_anomaly():` or
    `emit_nvtx()` that always run, in files that train; a profiler without a schedule around all training;
    and `os.environ["CUDA_LAUNCH_BLOCKING"] = "1"` that always runs, in files that use torch.

    Why it costs
    Anomaly detection records a stack trace for every forward op and looks for NaN after every backward
    op, waiting for the GPU each time; steps take several times as long. emit_nvtx costs an annotation per
    op. CUDA_LAUNCH_BLOCKING makes the CPU wait for each kernel, so none is queued ahead of the GPU.

    Example
        torch.autograd.set_detect_anomaly(True)

    Use instead
        torch.autograd.set_detect_anomaly(args.debug)

    When it does not apply
    Switches behind a flag, tests, scripts for profiling or debugging, programs that hide every GPU,
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
    triggers = ("detect_anomaly", "emit_nvtx", "CUDA_LAUNCH_BLOCKING", "profiler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        file_name = context.path.rpartition("/")[2].removesuffix(".py")
        if is_test_path(context.path) or _words_of(file_name) & _DEBUGGING:
            return
        yield from self._blocking(context)
        yield from self._profiled(context)
        for called in program.calls(*_ANOMALY, *_NVTX):
            if not _always(context, called.function, called.block):
                continue
            last = called.qualified.rpartition(".")[2]
            if last == "set_detect_anomaly":
                given = keyword(called.call, "mode", 0)
                on = given is not None and context.resolver.evaluate(called.function, given)
                if not on or on.only is not True or has_star(called.call):
                    continue
            elif not _entered(called.function, called.call) or _wanted(context, called):
                continue
            if (
                not any(
                    training.function.index == called.function.index or not called.function.index
                    for training in program.trainings
                )
                and "backward" not in context.tables.identifiers
                and last != "set_detect_anomaly"
            ):
                continue
            cost = (
                "annotates every op"
                if "emit" in last
                else "checks every backward op for NaN and waits for it"
            )
            yield self.finding(
                context.location(called.call.node_id),
                f"`{context.excerpt(called.call.node_id)}` always runs: it {cost}.",
                evidence={"call": called.qualified, "function": called.function.qualified_name},
                fix=Fix("Remove it, or enable it only with a debugging flag."),
                identity=f"{called.function.qualified_name}:{last}",
            )

    def _profiled(self, context: SourceContext) -> Iterator[Finding]:
        """`with torch.profiler.profile(...) as prof:` around the whole training, without a schedule."""
        for called in context.program.calls(*_RECORDERS):
            given = {argument.keyword for argument in called.call.arguments}
            positional_too = len(given) < len(called.call.arguments)
            if given & {"schedule", "enabled"} or has_star(called.call) or positional_too:
                continue
            recorded = {
                index
                for index, block in enumerate(called.function.blocks)
                for item in block.items
                if isinstance(item.value, Call) and item.value.node_id == called.call.node_id
            }
            trains = any(
                training.function.index == called.function.index
                and training.block
                and recorded & set(called.function.enclosing(training.block))
                for training in context.program.trainings
            )
            if trains and _always(context, called.function, called.block):
                yield self.finding(
                    context.location(called.call.node_id),
                    f"`{context.excerpt(called.call.node_id)}` records every op of every step, and keeps it.",
                    evidence={"call": called.qualified, "function": called.function.qualified_name},
                    fix=Fix("Pass schedule=torch.profiler.schedule(...), or profile behind an option."),
                    identity=f"{called.function.qualified_name}:profile",
                )

    def _blocking(self, context: SourceContext) -> Iterator[Finding]:
        """`os.environ["CUDA_LAUNCH_BLOCKING"] = "1"`: each launch waits for its kernel."""
        if "torch" not in context.tables.identifiers or any(map(_NO_GPU.search, context.lines())):
            return
        for function in context.tables.functions:
            for event in function.events:
                if (
                    isinstance(event, Assignment)
                    and event.operator == "[]"
                    and event.value == Literal("1")
                    and _BLOCKING.search(context.excerpt(event.node_id))
                    and _always(context, function, event.block)
                    and not _for_determinism(context, function)
                ):
                    yield self.finding(
                        context.location(event.node_id),
                        f"`{context.excerpt(event.node_id)}` always runs: the CPU waits for every kernel it "
                        "launches.",
                        evidence={"variable": "CUDA_LAUNCH_BLOCKING", "function": function.qualified_name},
                        fix=Fix("Remove it, and set the variable in the shell while debugging."),
                        identity=f"{function.qualified_name}:CUDA_LAUNCH_BLOCKING",
                    )
                    return


def _for_determinism(context: SourceContext, function: Function) -> bool:
    """Older CUDA needed the variable for deterministic recurrent layers, beside cuBLAS's workspace."""
    return any(any_word(outer.name, SEEDING) for outer in context.program.outer_functions(function)) or any(
        isinstance(event, Assignment) and "CUBLAS_WORKSPACE_CONFIG" in context.excerpt(event.node_id)
        for event in function.events
        if getattr(event, "operator", "") == "[]"
    )


def _always(context: SourceContext, function: Function, block: int) -> bool:
    """Nothing chooses whether it runs, and nothing around it is about debugging."""
    return context.program.unconditional(function, block) and not any(
        _words_of(outer.name) & (_DEBUGGING | _DETECTION)
        for outer in context.program.outer_functions(function)
    )


def _words_of(name: str) -> set[str]:
    """'detect', 'nan' of `detect_nan`."""
    return set(re.split(r"[_\W]+", name.lower()))


def _wanted(context: SourceContext, called: Called) -> bool:
    """Annotations for a profiler that the file starts, or `emit_nvtx(enabled=args.profile)`: an option, or
    False."""
    if "emit" in called.qualified and context.program.calls(*_PROFILERS):
        return True
    enabled = keyword(called.call, "enabled", 0) if "emit" in called.qualified else None
    if enabled is None:
        return has_star(called.call)
    return context.resolver.evaluate(called.function, enabled).only is not True


def _entered(function: Function, call: Call) -> bool:
    """The call is the context of a with block."""
    return any(
        isinstance(item.value, Call) and item.value.node_id == call.node_id
        for block in function.blocks
        for item in block.items
    )
