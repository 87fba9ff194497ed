"""Pricing a graph: scenario applied, lowered to kernels, priced, summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from tclint.config import Precision
from tclint.cost.compiled import fuse_pointwise, padded_gemm
from tclint.cost.layout import apply_layout
from tclint.cost.optimizer import optimizer_assumption, optimizer_kernels
from tclint.cost.precision import apply_precision
from tclint.cost.pricing import price_works
from tclint.cost.result import Estimate, Memory, Price, Row, amdahl_speedup
from tclint.cost.scenario import Scenario
from tclint.cost.step_memory import step_memory
from tclint.gpu import Gpu, load_gpu
from tclint.graph.graph import Graph
from tclint.graph.op import Op
from tclint.graph.work import Gap, Gemm, Kernel, Traffic, Work

__all__ = ["Estimate", "Memory", "Price", "Row", "amdahl_speedup", "estimate", "linear_time_us"]

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
    memory: Callable[[], Memory]
    """Worked out when asked for: most what-ifs are about time."""
    assumptions: tuple[str, ...]


_STEPS: dict[tuple[int, str, str, str, bool, str], _Step] = {}


def estimate(graph: Graph, scenario: Scenario) -> Estimate:
    """Predict the time of every kernel of one step of a traced model.

    The step is forward, backward and optimizer in mode 'train', forward in mode 'infer'. Times are the
    GPU's; `Estimate.launch_time_us` says what the host needs beside them.

    Raises:
        UsageError: the scenario's GPU is unknown.
    """
    gpu = load_gpu(scenario.gpu)
    step = _prepare(graph, scenario)
    prices = price_works([kernel.work for kernel in step.kernels], gpu, scenario.precision)
    if scenario.compiled:
        prices = _with_padding(step.kernels, prices, gpu, scenario)
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


def _with_padding(
    kernels: Sequence[Kernel], prices: list[Price | None], gpu: Gpu, scenario: Scenario
) -> list[Price | None]:
    """Misaligned products at the price of padded ones, where the copies pay off."""
    padded = {
        position: found
        for position, kernel in enumerate(kernels)
        if isinstance(kernel.work, Gemm) and (found := padded_gemm(kernel.work)) is not None
    }
    works: list[Work] = [work for pair in padded.values() for work in pair]
    priced = iter(price_works(works, gpu, scenario.precision))
    result = list(prices)
    for position in padded:
        product, copies = next(priced), next(priced)
        before = prices[position]
        if product is None or copies is None or before is None:
            continue
        if product.time_us + copies.time_us < before.time_us:
            result[position] = replace(
                product,
                time_us=product.time_us + copies.time_us,
                tensor_core_reason=f"{product.tensor_core_reason}, padded by torch.compile",
                bytes_read=product.bytes_read + copies.bytes_read,
                bytes_written=product.bytes_written + copies.bytes_written,
            )
    return result


def _unpriced(kernels: list[Kernel], ops: tuple[Op, ...], gpu_name: str) -> tuple[Gap, ...]:
    grouped: dict[tuple[str, str], list[int]] = {}
    for kernel in kernels:
        name = ops[kernel.op_index].name if kernel.op_index >= 0 else "optimizer"
        dtype = "" if isinstance(kernel.work, Traffic) else kernel.work.dtype
        reason = f"no formula for {dtype} matrix products on {gpu_name}"
        grouped.setdefault((name, reason), []).append(kernel.op_index)
    return tuple(
        Gap(name, reason, tuple(dict.fromkeys(indices))) for (name, reason), indices in grouped.items()
    )


def linear_time_us(
    batch: int, in_features: int, out_features: int, gpu: str = "a100", precision: Precision = "fp16"
) -> float:
    """Forward time in microseconds of one linear layer, bias and casts left out.

    For anything but a linear layer's forward, price a tclint.graph.work.Gemm with
    tclint.cost.pricing.price_works, which also says why it takes that long.

    >>> aligned, odd = (linear_time_us(8192, 768, size, "a100") for size in (50304, 50257))
    >>> odd > 2.5 * aligned
    True

    Raises:
        UsageError: the GPU is unknown.
    """
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    work = Gemm(batch, out_features, in_features, dtype, b_contiguous="k")
    price = price_works([work], load_gpu(gpu), precision)[0]
    assert price is not None  # the dtypes above exist everywhere
    return price.time_us


def _prepare(graph: Graph, scenario: Scenario) -> _Step:
    from tclint.graph.lowering import lower

    key = (
        id(graph),
        scenario.precision,
        scenario.mode,
        scenario.layout,
        scenario.compiled,
        scenario.optimizer,
    )
    found = _STEPS.get(key)
    if found is not None and found.source is graph:
        return found
    # Inductor lays convolutions out channels last by itself.
    layout = "channels_last" if scenario.compiled and scenario.layout == "as_traced" else scenario.layout
    applied = apply_precision(apply_layout(graph, layout), scenario.precision, scenario.mode)
    lowered, gaps = lower(applied, scenario.mode)
    kernels = list(fuse_pointwise(applied, lowered) if scenario.compiled else lowered)
    assumptions = []
    if scenario.compiled:
        assumptions.append("torch.compile: pointwise chains fused and products padded by simple rules")
    if scenario.mode == "train":
        kernels += optimizer_kernels(applied, scenario.precision, scenario.optimizer)
        assumptions.append(optimizer_assumption(scenario.precision, scenario.optimizer))
    step = _Step(
        graph,
        applied.ops,
        tuple(kernels),
        tuple(gaps),
        cache(partial(step_memory, applied, scenario.mode, scenario.optimizer)),
        tuple(assumptions),
    )
    while len(_STEPS) >= PREPARED_STEPS:
        del _STEPS[next(iter(_STEPS))]
    _STEPS[key] = step
    return step
