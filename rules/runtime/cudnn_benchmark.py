"""Rules on what programs set cudnn.benchmark to."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.program import Program
from tclint.source.facts.switches import Switch
from tclint.source.names.queries import is_test_path, words
from tclint.source.training.cudnn_switches import (
    CUDNN_ENABLED,
    SEEDING,
    VARIABLE_SIZE,
    in_any_with,
    inside_named,
)

_BENCHMARK = "torch.backends.cudnn.benchmark"
_DETERMINISTIC = (
    "torch.backends.cudnn.deterministic",
    "torch.use_deterministic_algorithms",
    "torch.set_deterministic",
)
_ENTRANCES = words("main main_worker __init__ run train setup worker")
"""Functions that run although nothing in their file calls them."""


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
    requires = ("cudnn",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or program.speaks_of("deterministic"):
            return
        switches = program.switches_of(_BENCHMARK)
        if len(switches) != 1 or program.words & VARIABLE_SIZE:
            return
        if any(other.value.values != (True,) for other in program.switches_of(CUDNN_ENABLED)):
            return
        switch = switches[0]
        if switch.value.only is not False:
            return
        if not program.unconditional(switch.function, switch.block) or in_any_with(switch):
            return
        named = inside_named(program, switch, (*SEEDING, "disable", "dynamic", "variable"))
        if named or _seeds(program, switch):
            return
        yield self.finding(
            context.location(switch.node_id),
            "`cudnn.benchmark = False` keeps cuDNN from choosing the fastest convolution algorithms, and "
            "nothing here asks for determinism.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Set it to True where inputs keep their size; where runs must be reproducible, set "
                "`torch.backends.cudnn.deterministic = True` as well."
            ),
            identity=f"{switch.function.qualified_name}:{switch.name}",
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
    requires = ("deterministic",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        seen: set[int] = set()
        for switch in _lasting(program.switches_of(_BENCHMARK)):
            if switch.function.index in seen:
                continue
            for other in _lasting(program.switches_of(*_DETERMINISTIC)):
                if not _run_together(program, switch, other):
                    continue
                seen.add(switch.function.index)
                yield self.finding(
                    context.location(switch.node_id),
                    f"`{context.excerpt(switch.node_id)}` lets cuDNN choose algorithms by timing, against "
                    f"`{context.excerpt(other.node_id)}` on line {context.location(other.node_id).line}.",
                    related=(context.related(other.node_id, "determinism is asked for here"),),
                    evidence={"benchmark": True, "deterministic": other.name},
                    fix=Fix(
                        "Keep one of them: benchmark = True for speed, or deterministic with benchmark = "
                        "False for reproducible runs."
                    ),
                    identity=f"{switch.function.qualified_name}:{switch.name}",
                )
                break


def _seeds(program: Program, switch: Switch) -> bool:
    return any(
        function.index == switch.function.index
        for function, _, _ in program.methods(
            "manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed"
        )
    )


def _lasting(switches: list[Switch]) -> list[Switch]:
    """Those that switch on and that no later line of their function switches off again."""
    found = []
    for switch in switches:
        if switch.value.only is not True:
            continue
        later = (
            other
            for other in switches
            if other.function.index == switch.function.index and other.node_id > switch.node_id
        )
        if not any(other.name == switch.name and other.value.values != (True,) for other in later):
            found.append(switch)
    return found


def _resets(program: Program, benchmark: Switch, deterministic: Switch) -> bool:
    """The function that asks for determinism switches the benchmark off itself, and is not seen to run
    before the line that switches it on again."""
    seeding = deterministic.function.index
    if not any(
        switch.function.index == seeding and switch.value.values != (True,)
        for switch in program.switches_of(_BENCHMARK)
    ):
        return False
    seeded_before = any(
        caller.index == benchmark.function.index and event.call.node_id < benchmark.node_id
        for caller, event in program.resolver.callers.get(seeding, [])
    )
    benchmark_after = any(
        caller.index == seeding and event.call.node_id > deterministic.node_id
        for caller, event in program.resolver.callers.get(benchmark.function.index, [])
    )
    return not seeded_before and not benchmark_after


def _run_together(program: Program, first: Switch, second: Switch) -> bool:
    if first.function.index == second.function.index:
        return not program.mutually_exclusive(first.function, first.block, second.block) and (
            program.unconditional(first.function, first.block)
            or program.unconditional(second.function, second.block)
            or set(first.function.enclosing(first.block)) & set(first.function.enclosing(second.block)) - {0}
            != set()
        )
    # In different functions: once the benchmark is always on, it meets whatever asks for determinism.
    if not program.unconditional(first.function, first.block):
        return False
    if _resets(program, first, second):
        return False
    return all(
        not switch.function.index
        or bool(program.resolver.callers.get(switch.function.index))
        or switch.function.name in _ENTRANCES
        for switch in (first, second)
    )
