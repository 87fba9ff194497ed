"""Lints one traced model: prices it on every GPU, runs the graph rules, and prices it with the fixes made."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tclint.analysis.advice import advice
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.what_if.combined import all_fixes
from tclint.analysis.what_if.comparisons import WhatIf, batch_limits
from tclint.analysis.what_if.usual_batch import with_usual_batch
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.config.settings import REPORTED_PRECISIONS, Precision, Settings
from tclint.core.finding import Finding
from tclint.core.units import percent_text, time_text
from tclint.cost.communication import communication_bytes, sums
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.gaps import with_flops
from tclint.cost.transforms.loss import computes_loss, with_cross_entropy
from tclint.engine.doubts import ranged, unpriced, untrained, written_backward
from tclint.engine.report import Entry, Metrics, PlannedFix
from tclint.engine.run_cost import RunCost
from tclint.engine.size_origins import with_origins
from tclint.graph.dims.tensor_parallel import split_over
from tclint.graph.lowering.step import forward_flops
from tclint.graph.lowering.work import Attention, Convolution, Gap, Gemm, Traffic, Work
from tclint.graph.ops import Assumption, Graph, TensorSpec
from tclint.tracing import TraceResult


def check_graph(
    result: TraceResult, rules: Sequence[GraphRule], settings: Settings
) -> tuple[Entry, list[Finding], GraphContext]:
    """The entry of a traced model, its findings, and the context that priced them."""
    graph = result.graph
    assert graph is not None
    started = time.perf_counter()
    settings, notes = _as_compiled(graph, settings)
    traced = graph
    if settings.mode == "train":
        notes += tuple(untrained(graph))
        written = written_backward(graph)
        notes += () if written is None else (written,)
        graph = _with_loss(graph, settings)
    context, fitted = with_usual_batch(GraphContext(graph, settings, result.entry))
    graph = context.graph
    notes += (*fitted, *_loss_left_out(context))
    for scenario in context.scenarios:
        context.estimate(scenario)  # kept in the context, where the rules ask for it
    priced = time.perf_counter()
    found = [replace(finding, target=result.entry) for rule in rules for finding in advice(rule, context)]
    found = with_origins([in_doubt(finding) for finding in found], graph)
    ruled = time.perf_counter()
    metrics = {}
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        metrics[estimate.gpu.id] = Metrics(
            gpu=estimate.gpu.id,
            step_time_us=estimate.step_time_us,
            forward_time_us=estimate.forward_time_us,
            backward_time_us=estimate.backward_time_us,
            optimizer_time_us=estimate.optimizer_time_us,
            readiness_percent=estimate.readiness_percent,
            tensor_core_time_percent=estimate.tensor_core_time_percent,
            amdahl_ceiling=estimate.amdahl_ceiling,
            uncertainty_percent=estimate.uncertainty_percent,
            calibrated=estimate.products_calibrated,
            step_flops=estimate.flops,
            aligned_flops_percent=aligned_flops_percent(estimate),
            memory_bytes=estimate.memory.total_bytes,
            memory=estimate.memory,
            batch_limits=batch_limits(context, scenario),
            launch_count=estimate.launch_count,
            host_time_us=estimate.host_time_us,
            bound=estimate.bound,
            **_communication(graph, settings, estimate),
            step_time_us_by_precision={
                precision: context.estimate(replace(scenario, precision=precision)).step_time_us
                for precision in REPORTED_PRECISIONS
                if estimate.gpu.supports(precision)
            },
        )
        if estimate.gaps and not estimate.kernels:
            metrics[estimate.gpu.id] = _unknown(metrics[estimate.gpu.id])
    steps_us = {gpu: one.step_time_us for gpu, one in metrics.items()}
    assumptions, ranges = ranged(traced, context.scenarios, steps_us, context if fitted else None)
    metrics = {gpu: replace(one, step_time_range_us=ranges.get(gpu)) for gpu, one in metrics.items()}
    run = RunCost.of(settings)
    if run is not None:
        found = [run.with_savings(finding, metrics) for finding in found]
        metrics = {gpu: run.with_run(of_gpu) for gpu, of_gpu in metrics.items()}
    gaps = _gaps(context)
    left_out = unpriced(graph, gaps)
    notes += () if left_out is None else (left_out,)
    comparisons = WhatIf(context).compare(settings.compare)
    cost_s = priced - started + time.perf_counter() - ruled
    entry = Entry(
        target=result.entry,
        model=str(graph.metadata.get("model", "")),
        mode=settings.mode,
        precision=settings.precision,
        parameters=graph.parameter_count,
        flops=forward_flops(graph),
        op_count=len(graph.ops),
        metrics=metrics,
        assumptions=(*assumptions, *notes, *_priced_as(context)),
        not_analysed=gaps,
        seconds={**result.seconds, "cost": cost_s, "rules": ruled - priced},
        inputs=tuple((spec.input_name or "", spec.dtype, spec.shape) for spec in graph.inputs),
        graph_hash=graph_hash(traced),
        torch_version=str(graph.metadata.get("torch", "")),
        comparisons=comparisons,
        input_set=result.input_set,
        captured_output=result.captured_output,
        settings=settings,
        graph=graph,
    )
    return entry, found, context


def in_doubt(finding: Finding) -> Finding:
    """The finding, lowered to level info if its gain is within the error of the times on every GPU."""
    gains = finding.effect.per_gpu.values()
    if finding.level != "warning" or not gains or not all(one.is_within_error for one in gains):
        return finding
    return replace(finding, level="info")


def as_priced(graph: Graph, settings: Settings) -> tuple[Graph, Settings]:
    """The graph that an entry prices, with the loss that the settings name, and the settings for its
    price."""

    settings, _ = _as_compiled(graph, settings)
    return _with_loss(graph, settings), settings


def _communication(graph: Graph, settings: Settings, priced: Estimate) -> dict[str, Any]:
    split = split_over(graph, settings.tensor_parallel)
    bytes_per_us = priced.gpu.link_gb_per_s * 1e3
    found: dict[str, Any] = {}
    if settings.parallel != "none" and settings.mode == "train":
        scenario = priced.scenario
        sent = communication_bytes(split.graph, scenario.parallel, scenario.replicas, scenario.accumulation)
        found = {"communication_bytes": sent, "communication_bound_us": sent / bytes_per_us}
    if settings.tensor_parallel > 1:
        summed = sums(split, priced.ops, settings.tensor_parallel, settings.mode)
        found |= {
            "tensor_parallel_sums": summed.count,
            "tensor_parallel_bytes": summed.sent_bytes,
            "tensor_parallel_bound_us": summed.sent_bytes / bytes_per_us,
        }
    return found


_FELT_PERCENT = 1.0
"""A missing loss below this percentage of the step is reported as adding less than it."""


def _with_loss(graph: Graph, settings: Settings) -> Graph:
    """The graph with the loss that the settings name, if it lacks one that can be added."""
    if settings.mode == "train" and settings.loss == "cross_entropy" and not computes_loss(graph):
        return with_cross_entropy(graph) or graph
    return graph


def _loss_left_out(context: GraphContext) -> Iterator[Assumption]:
    """What is said of a loss that a training step lacks."""
    graph, settings = context.graph, context.settings
    if settings.mode != "train" or computes_loss(graph):
        return
    ended = with_cross_entropy(graph)
    if ended is None:
        why = ", because no linear layer makes the model's output" if settings.loss == "cross_entropy" else ""
        yield Assumption(f"the loss is not in the step{why}")
        return
    scenario = context.scenarios[0]
    without = context.estimate(scenario)
    added_us = estimate(ended, scenario).step_time_us - without.step_time_us
    percent = without.percent_of_step(added_us)
    felt = f"{time_text(added_us)} ({percent_text(percent)})" if percent >= _FELT_PERCENT else "less than 1 %"
    what = (
        f"the loss is not in the step: cross-entropy over {graph.outputs[0].shape[-1]} classes would add "
        f"{felt} on {without.gpu.id}"
    )
    yield Assumption(what + ("; --loss cross_entropy adds it" if percent >= _FELT_PERCENT else ""))


_COMPILED_SHARE = 0.5
"""A model is priced as compiled if this share of its operators is in blocks that are compiled one by one."""


def _as_compiled(graph: Graph, settings: Settings) -> tuple[Settings, tuple[Assumption, ...]]:
    """The settings adapted to the model's own calls of torch.compile, and an assumption that says so."""
    parts: list[str] = graph.metadata.get("compiled", [])
    if not parts or settings.compiled or "compiled" in settings.explicit:
        return settings, ()
    if parts == [""]:
        what = "the model calls torch.compile"
    else:
        listed = ", ".join(parts[:3]) + (", ..." if len(parts) > 3 else "")
        what = f"torch.compile is called on {listed}"
        inside = tuple(f"{part}." for part in parts)
        count = sum(op.module_path in parts or op.module_path.startswith(inside) for op in graph.ops)
        if count < _COMPILED_SHARE * len(graph.ops):
            note = f"{what} alone, so the step is priced without it; --compiled prices it with"
            return settings, (Assumption(note),)
    note = f"compiled: yes: {what}; --no-compiled prices the eager step"
    return replace(settings, compiled=True), (Assumption(note),)


def _unknown(metrics: Metrics) -> Metrics:
    """Metrics for a model without any priced operator: its time is unknown and not zero."""
    nan = math.nan
    return replace(
        metrics,
        step_time_us=nan,
        forward_time_us=nan,
        backward_time_us=nan,
        readiness_percent=nan,
        tensor_core_time_percent=nan,
        amdahl_ceiling=nan,
        uncertainty_percent=nan,
        step_time_us_by_precision=dict.fromkeys(metrics.step_time_us_by_precision, nan),
    )


def _priced_as(context: GraphContext) -> Iterator[Assumption]:
    """The assumptions of the prices; those of a single GPU appear once."""
    estimates = [context.estimate(scenario) for scenario in context.scenarios]
    for what in dict.fromkeys(what for one in estimates for what in one.assumptions):
        yield Assumption(what)


def _gaps(context: GraphContext) -> tuple[Gap, ...]:
    """The gaps on any of the GPUs; an op may be a gap on one and have a price on another."""

    found = (gap for scenario in context.scenarios for gap in context.estimate(scenario).gaps)
    return with_flops(dict.fromkeys(found), context.graph)


def with_fixes_made(
    entry: Entry, context: GraphContext, listed: Sequence[Finding], below: Sequence[Finding]
) -> Entry:
    """The entry with the step after its listed fixes, and after those below the listing limit that then gain
    enough."""

    fixed = all_fixes(
        context,
        [finding for finding in listed if context.has_priced(finding.change)],
        [finding for finding in below if context.has_priced(finding.change)],
        min_gain_percent=context.settings.min_gain_percent,
    )
    if fixed is None:
        return entry
    metrics = {
        gpu: replace(
            found,
            step_time_fixed_us=fixed.step_time_us[gpu],
            readiness_fixed_percent=fixed.readiness_percent[gpu],
            step_time_cut_back_us=fixed.cut_back_us.get(gpu),
        )
        for gpu, found in entry.metrics.items()
    }
    run = RunCost.of(context.settings)
    if run is not None:
        metrics = {gpu: run.with_run(of_gpu) for gpu, of_gpu in metrics.items()}
    late = {id(finding) for finding in below}
    plan = tuple(
        PlannedFix(
            step.finding.code,
            step.finding.name,
            step.finding.location,
            step.step_time_us,
            step.readiness_percent,
            id(step.finding) in late,
        )
        for step in fixed.steps
    )
    return replace(entry, metrics=metrics, fixes_made=len(fixed.made), plan=plan)


_PRECISIONS: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


def graph_hash(graph: Graph) -> str:
    """A hash, of 16 hex digits, of the model's computation: operators, shapes, dtypes, parameters, in order.

    Files, lines, timings and versions do not enter, so an edit that changes no computation keeps the hash.
    """
    document = {
        "ops": [
            {
                "name": op.name,
                "inputs": [_spec(spec) for spec in op.inputs],
                "outputs": [_spec(spec) for spec in op.outputs],
                "attributes": dict(op.attributes),
                "module_path": op.module_path,
            }
            for op in graph.ops
        ],
        "parameters": [[p.name, p.shape, p.dtype, p.trainable, p.is_buffer] for p in graph.parameters],
        "inputs": [_spec(spec) for spec in graph.inputs],
    }
    text = json.dumps(document, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.shape, spec.dtype, spec.strides, spec.parameter, spec.producer, spec.output_index]


def aligned_flops_percent(estimate: Estimate) -> float | None:
    """The percentage of the step's matrix-product FLOPs whose contiguous dims are aligned for Tensor Cores.

    A dim is aligned if it is a multiple of 8 for fp16 and bf16, of 4 for tf32 (NVIDIA, Matrix Multiplication
    Background, Table 1). Kernels that autocast leaves in fp32 and depthwise convolutions have no such
    multiple and do not count. None if nothing counts.
    """
    aligned = counted = 0
    for kernel in estimate.kernels:
        work = kernel.work
        if isinstance(work, Traffic) or (isinstance(work, Convolution) and work.is_depthwise):
            continue
        multiple = _multiple(work.dtype, estimate.scenario.precision)
        if multiple is None:
            continue
        counted += work.flops
        if all(size % multiple == 0 for size in _contiguous_sizes(work)):
            aligned += work.flops
    return 100.0 * aligned / counted if counted else None


def _multiple(dtype: str, precision: Precision) -> int | None:
    if dtype == "float32":
        return efficient_multiple("tf32") if precision == "tf32" else None
    if dtype == "int8" or dtype.startswith("float8_"):
        return efficient_multiple("int8")
    return efficient_multiple(_PRECISIONS[dtype]) if dtype in _PRECISIONS else None


def _contiguous_sizes(work: Work) -> tuple[int, ...]:
    """The sizes of the contiguous dims of both operands and of the result."""
    if isinstance(work, Gemm):
        return tuple(size for _, size in work.contiguous)
    if isinstance(work, Convolution):
        return (work.in_channels // work.groups, work.out_channels // work.groups)
    if isinstance(work, Attention):
        return (work.head_dim, work.value_head_dim)
    return ()
