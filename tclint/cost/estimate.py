"""Pricing a graph: scenario applied, lowered to kernels, priced, summed."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.cost.layout import apply_layout
from tclint.cost.optimizer import optimizer_assumption, optimizer_kernels
from tclint.cost.precision import apply_precision
from tclint.cost.pricing import price_works
from tclint.cost.result import Estimate, Memory, Price, Row, amdahl_speedup
from tclint.cost.scenario import Scenario
from tclint.cost.step_memory import step_memory
from tclint.gpu import load_gpu
from tclint.graph.graph import Graph
from tclint.graph.op import Op
from tclint.graph.work import Gap, Kernel

__all__ = ["Estimate", "Memory", "Price", "Row", "amdahl_speedup", "estimate"]

PREPARED_STEPS = 6
"""How many lowered steps are kept, for pricing one graph on several GPUs."""


@dataclass(frozen=True)
class _Step:
    """A graph lowered under everything but the GPU."""

    source: Graph
    """Kept alive so that its id stays its own."""
    ops: tuple[Op, ...]
    kernels: tuple[Kernel, ...]
    gaps: tuple[Gap, ...]
    memory: Memory
    assumptions: tuple[str, ...]


_STEPS: dict[tuple[int, str, str, str, bool], _Step] = {}


def estimate(graph: Graph, scenario: Scenario) -> Estimate:
    """Predict the time of every kernel of one step of a traced model.

    The step is forward, backward and optimizer in mode 'train', forward in mode 'infer'. Times are the
    GPU's: a step whose kernels are shorter than the host needs to launch them takes longer.

    Raises:
        UsageError: the scenario's GPU is unknown.
    """
    gpu = load_gpu(scenario.gpu)
    step = _prepare(graph, scenario)
    prices = price_works([kernel.work for kernel in step.kernels], gpu, scenario.precision)
    if None not in prices:
        return Estimate(
            scenario,
            gpu,
            step.kernels,
            tuple(p for p in prices if p),
            step.ops,
            step.gaps,
            step.memory,
            step.assumptions,
        )
    priced = [(k, p) for k, p in zip(step.kernels, prices, strict=True) if p is not None]
    missing = [k for k, p in zip(step.kernels, prices, strict=True) if p is None]
    return Estimate(
        scenario,
        gpu,
        tuple(kernel for kernel, _ in priced),
        tuple(price for _, price in priced),
        step.ops,
        step.gaps + _unpriced(missing, step.ops, gpu.name),
        step.memory,
        step.assumptions,
    )


def _unpriced(kernels: list[Kernel], ops: tuple[Op, ...], gpu_name: str) -> tuple[Gap, ...]:
    grouped: dict[tuple[str, str], list[int]] = {}
    for kernel in kernels:
        name = ops[kernel.op_index].name if kernel.op_index >= 0 else "optimizer"
        reason = f"no formula for {kernel.work.dtype} matrix products on {gpu_name}"
        grouped.setdefault((name, reason), []).append(kernel.op_index)
    return tuple(
        Gap(name, reason, tuple(dict.fromkeys(indices))) for (name, reason), indices in grouped.items()
    )


def _prepare(graph: Graph, scenario: Scenario) -> _Step:
    from tclint.graph.lowering import lower

    key = (id(graph), scenario.precision, scenario.mode, scenario.layout, scenario.compiled)
    found = _STEPS.get(key)
    if found is not None and found.source is graph:
        return found
    applied = apply_precision(apply_layout(graph, scenario.layout), scenario.precision, scenario.mode)
    lowered, gaps = lower(applied, scenario.mode)
    kernels = list(lowered)
    assumptions = []
    if scenario.mode == "train":
        kernels += optimizer_kernels(applied, scenario.precision)
        assumptions.append(optimizer_assumption(scenario.precision))
    step = _Step(
        graph,
        applied.ops,
        tuple(kernels),
        tuple(gaps),
        step_memory(applied, scenario.mode),
        tuple(assumptions),
    )
    while len(_STEPS) >= PREPARED_STEPS:
        del _STEPS[next(iter(_STEPS))]
    _STEPS[key] = step
    return step
