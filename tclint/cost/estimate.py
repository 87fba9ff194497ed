"""Pricing a graph: scenario applied, lowered to kernels, priced, summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from tclint.config.precisions import PRECISION_FACTS
from tclint.core.units import plural
from tclint.cost.gpu import Gpu, load_gpu
from tclint.cost.gpu.factors import factors_note
from tclint.cost.kernels.pricing import price_works
from tclint.cost.math_units import why_no_formula
from tclint.cost.memory.sharding import is_split, of_one_gpu
from tclint.cost.memory.step_memory import step_memory
from tclint.cost.optimizer import accumulation_kernels, optimizer_assumption, optimizer_kernels
from tclint.cost.rows import Estimate, Memory, Price, Row, shares_of_batch
from tclint.cost.scenario import Scenario
from tclint.cost.transforms.casts import HALF_DTYPES, Running, apply_precision, own_dtype, running
from tclint.cost.transforms.compiled import (
    BALANCE_SHARE,
    PADDED_GAIN,
    padded_gemm,
    turns_channels_last,
)
from tclint.cost.transforms.fusion import fuse
from tclint.cost.transforms.layout import apply_layout
from tclint.cost.transforms.low_precision import converted_layers, in_format, recipe, without_weight_casts
from tclint.graph.dims.tensor_parallel import TensorSplit, split_over
from tclint.graph.lowering.work import Gap, Gemm, Kernel, Traffic, Work
from tclint.graph.ops import Graph, Op

__all__ = ["Estimate", "Memory", "Price", "Row", "estimate"]

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


_STEPS: dict[tuple[int, Running, str, str, bool, str, bool], _Step] = {}

CUDNN_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Layers that cuDNN runs whole; cells are single products of cuBLAS."""
EIGHT_BITS = ("float8_", "int8", "uint8")
"""Starts of the dtypes whose products are written in another one."""


def estimate(graph: Graph, scenario: Scenario) -> Estimate:
    """Predict the time of every kernel of one step of a traced model.

    The step is forward, backward and optimizer in mode 'train', forward in mode 'infer'. Times are the
    GPU's; `Estimate.host_time_us` says what the host needs beside them.

    Raises:
        UsageError: the scenario's GPU is unknown.
    """
    gpu = load_gpu(scenario.gpu, scenario.calibration)
    run = running(scenario.precision, scenario.mode, gpu)
    notes = [run.note] if run.note else []
    if scenario.tensor_parallel > 1:
        split = split_over(graph, scenario.tensor_parallel)
        notes.append(_said_of_split(split, graph, scenario.tensor_parallel))
        graph = split.graph
    step = _prepare(graph, scenario, run)
    if gpu.factors:
        notes.append(factors_note(gpu.factors, scenario.calibration))
    prices = price_works([kernel.work for kernel in step.kernels], gpu, scenario.precision)
    if scenario.accumulation > 1:
        prices = _per_batch(step.kernels, prices, scenario.accumulation)
    if scenario.mode == "train" and scenario.replicas > 1 and is_split("optimizer", scenario.parallel):
        prices = [
            price if price is None or kernel.role != "optimizer" else _scaled(price, 1 / scenario.replicas)
            for kernel, price in zip(step.kernels, prices, strict=True)
        ]
        notes.append(f"each of {scenario.replicas} GPUs updates its part of the parameters")
    if scenario.compiled:
        prices = _with_padding(step.kernels, prices, gpu, scenario)
    priced = [(k, p) for k, p in zip(step.kernels, prices, strict=True) if p is not None]
    missing = [k for k, p in zip(step.kernels, prices, strict=True) if p is None]
    return Estimate(
        scenario,
        gpu,
        tuple(kernel for kernel, _ in priced),
        tuple(price for _, price in priced),
        step.ops,
        step.gaps + _unpriced(missing, step.ops, gpu),
        partial(_memory_of_one, step.memory, graph, scenario),
        (*notes, *step.assumptions),
    )


def _memory_of_one(of_all: Callable[[], Memory], graph: Graph, scenario: Scenario) -> Memory:
    if scenario.mode != "train":
        return of_all()
    return of_one_gpu(of_all(), graph, scenario.parallel, scenario.replicas)


def _said_of_split(split: TensorSplit, graph: Graph, parts: int) -> str:
    text = f"tensor parallel over {parts} GPUs: "
    made = plural(len(graph.products), "product")
    if not split.products:
        return f"{text}none of {made} is split, and each GPU runs the whole model"
    be = "is" if len(split.products) == 1 else "are"
    text += f"{len(split.products)} of {made} {be} split, and all else is whole on each"
    if split.uneven:
        sizes = ", ".join(map(str, split.uneven[:3])) + (", ..." if len(split.uneven) > 3 else "")
        text += f"; the largest parts of {sizes} are priced"
    return text


def _per_batch(kernels: Sequence[Kernel], prices: Sequence[Price | None], batches: int) -> list[Price | None]:
    """What runs once for several batches at its share of one of them."""
    shares = shares_of_batch(batches)
    return [
        price if price is None or kernel.role not in shares else _scaled(price, shares[kernel.role])
        for kernel, price in zip(kernels, prices, strict=True)
    ]


def _scaled(price: Price, share: float) -> Price:
    return replace(
        price,
        time_us=price.time_us * share,
        parts_us=tuple((name, part_us * share) for name, part_us in price.parts_us),
        flops=round(price.flops * share),
        bytes_read=round(price.bytes_read * share),
        bytes_written=round(price.bytes_written * share),
    )


def _with_padding(
    kernels: Sequence[Kernel], prices: list[Price | None], gpu: Gpu, scenario: Scenario
) -> list[Price | None]:
    """Misaligned products at the price of padded ones, where the copies pay off."""
    padded = {
        position: found
        for position, (kernel, price) in enumerate(zip(kernels, prices, strict=True))
        if isinstance(kernel.work, Gemm)
        and price is not None
        and _is_math_bound(kernel.work, price, gpu)
        and (found := padded_gemm(kernel.work)) is not None
    }
    works: list[Work] = [work for pair in padded.values() for work in pair]
    priced = iter(price_works(works, gpu, scenario.precision))
    result = list(prices)
    for position in padded:
        product, copies = next(priced), next(priced)
        before = prices[position]
        if product is None or copies is None or before is None:
            continue
        if PADDED_GAIN * (product.time_us + copies.time_us) < before.time_us:
            result[position] = replace(
                product,
                time_us=product.time_us + copies.time_us,
                tensor_core_reason=f"{product.tensor_core_reason}, padded by torch.compile",
                bytes_read=product.bytes_read + copies.bytes_read,
                bytes_written=product.bytes_written + copies.bytes_written,
            )
    return result


def _is_math_bound(work: Gemm, price: Price, gpu: Gpu) -> bool:
    """Inductor's own test (is_mm_compute_bound): multiply-adds per element of the three matrices against half
    of the FLOPs per byte that the GPU is balanced at; long bf16 products before Hopper always pass."""
    if work.dtype == "bfloat16" and work.k > max(work.m, work.n) and gpu.compute_capability < (9, 0):
        return True
    elements = work.m * work.k + work.n * work.k + work.m * work.n
    return work.m * work.n * work.k > BALANCE_SHARE * price.balance * elements


def _unpriced(kernels: list[Kernel], ops: tuple[Op, ...], gpu: Gpu) -> tuple[Gap, ...]:
    grouped: dict[tuple[str, str], list[int]] = {}
    for kernel in kernels:
        name = ops[kernel.op_index].name if kernel.op_index >= 0 else "optimizer"
        reason = why_no_formula(gpu, "" if isinstance(kernel.work, Traffic) else kernel.work.dtype)
        grouped.setdefault((name, reason), []).append(kernel.op_index)
    return tuple(
        Gap(name, reason, tuple(dict.fromkeys(indices))) for (name, reason), indices in grouped.items()
    )


def _prepare(graph: Graph, scenario: Scenario, run: Running) -> _Step:
    from tclint.graph.lowering.step import lower

    mode = scenario.mode
    accumulates = scenario.accumulation > 1
    key = (id(graph), run, mode, scenario.layout, scenario.compiled, scenario.optimizer, accumulates)
    found = _STEPS.get(key)
    if found is not None and found.source is graph:
        return found
    layout = scenario.layout
    if scenario.compiled and layout != "channels_last" and turns_channels_last(graph, mode):
        layout = "channels_last"
    applied = apply_precision(apply_layout(graph, layout), run.precision, mode)
    assumptions = _said_of_dtypes(graph, run)
    chosen: frozenset[int] = frozenset()
    if run.linear is not None:
        chosen, left = converted_layers(applied, run.linear, mode)
        applied = without_weight_casts(applied, chosen, run.linear, mode)
        assumptions.append(_said_of_layers(run, chosen, left, scenario.compiled))
    lowered, gaps = lower(applied, mode)
    kernels = _as_libraries_run(lowered, applied.ops)
    if scenario.compiled:
        kernels = list(fuse(applied, kernels, mode))
        assumptions.append("torch.compile: pointwise chains fused and products padded by simple rules")
    if run.linear is not None:
        kernels = in_format(applied, kernels, chosen, run.linear, mode, compiled=scenario.compiled)
    if mode == "train":
        kernels += optimizer_kernels(applied, run.precision, scenario.optimizer)
        assumptions.append(optimizer_assumption(run.precision, scenario.optimizer))
        if accumulates:
            kernels += accumulation_kernels(applied)
            assumptions.append("gradients are accumulated: of the optimizer's time, a batch has its share")
    regions = {op.checkpoint.region for op in applied.ops if op.checkpoint is not None}
    if regions and mode == "train":
        calls = "call" if len(regions) == 1 else "calls"
        assumptions.append(f"{len(regions)} {calls} of torch.utils.checkpoint run again in the backward pass")
    step = _Step(
        graph,
        tuple(applied.ops),
        tuple(kernels),
        tuple(gaps),
        cache(partial(step_memory, applied, mode, scenario.optimizer)),
        tuple(assumptions),
    )
    while len(_STEPS) >= PREPARED_STEPS:
        del _STEPS[next(iter(_STEPS))]
    _STEPS[key] = step
    return step


def _as_libraries_run(kernels: Sequence[Kernel], ops: Sequence[Op]) -> list[Kernel]:
    """Products with what only their op knows: the dtype of the result, and whose TF32 switch holds."""
    changed = list(kernels)
    for position, kernel in enumerate(kernels):
        work = kernel.work
        if not isinstance(work, Gemm) or kernel.op_index < 0:
            continue
        op = ops[kernel.op_index]
        if op.name in CUDNN_RECURRENT:
            changed[position] = replace(kernel, work=replace(work, in_cudnn=True))
        elif work.dtype.startswith(EIGHT_BITS) and op.outputs:
            changed[position] = replace(kernel, work=replace(work, out_dtype=op.outputs[0].dtype))
    return changed


def _said_of_dtypes(graph: Graph, run: Running) -> list[str]:
    facts = PRECISION_FACTS[run.precision]
    own = own_dtype(graph)
    if facts.converted or own not in (*HALF_DTYPES, "float64"):
        return []
    return [f"the model's weights are {own}: priced in the dtypes it was traced in, without autocast"]


def _said_of_layers(run: Running, chosen: frozenset[int], left: dict[str, int], compiled: bool) -> str:
    assert run.linear is not None
    text = f"{len(chosen)} linear layers in {run.linear} ({recipe(run.linear).title}"
    text += ", conversions fused)" if compiled else ", conversions unfused as without torch.compile)"
    if left:
        reasons = sorted(left.items(), key=lambda item: -item[1])
        count = sum(left.values())
        text += f"; {count} {'stays' if count == 1 else 'stay'} in 16 bits: {reasons[0][0]}"
        text += f" and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
    return f"{text}; no time of {run.linear} products has been measured, the constants are those of 16 bits"
