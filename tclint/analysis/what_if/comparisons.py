"""What-ifs: the traced graph re-priced under other circumstances, without building or tracing again.

`tclint --compare gpu --compare batch model.py:build_model` shows these tables; each row is one estimate, a
few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tclint.analysis.graph_context import GraphContext
from tclint.config.precisions import PRECISION_FACTS, why_impossible
from tclint.config.settings import COMPARISONS, PRECISIONS, ComparisonKind, Precision
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.gpu import all_gpus
from tclint.cost.math_units import tf32_switches, unit_class
from tclint.cost.memory.step_memory import BatchMemory, batch_memory, fits
from tclint.cost.scenario import Layout, Scenario
from tclint.cost.transforms.casts import running
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.lowering.work import Convolution, Gemm
from tclint.graph.ops import Graph

BATCH_FACTORS = (0.25, 0.5, 1, 2, 4, 8, 16)
"""Batches to compare, relative to the traced one."""

COMPARED_LAYOUTS: tuple[Layout, ...] = ("contiguous", "channels_last")
COMPARED_PRECISIONS: tuple[Precision, ...] = (
    "fp32", "tf32-cudnn", "tf32", "fp16", "bf16", "pure-fp16", "pure-bf16", "fp8", "int8",
)  # fmt: skip
SWITCHED_PRECISIONS: frozenset[Precision] = frozenset({"tf32-cudnn"})
"""Precisions that get a row only if cuDNN has work to do."""


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """One row: a step under other circumstances."""

    label: str
    step_time_us: float
    speedup: float
    """Samples per second over those of the row that is marked `present`."""
    samples_per_s: float | None
    """Samples per second; None if the inputs have no batch dim."""
    readiness_percent: float
    tensor_core_time_percent: float
    uncertainty_percent: float
    memory_bytes: int
    fits: bool
    """Whether the step fits the GPU's memory."""
    calibrated: bool
    present: bool = False
    """Whether these are the circumstances of the run itself."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table: the same step with one of its circumstances varied."""

    kind: ComparisonKind
    gpu: str | None
    """The GPU of all rows; None if the rows are GPUs."""
    rows: tuple[ComparedStep, ...] = ()
    unavailable: str | None = None
    """The reason why there are no rows."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The largest batches that fit a GPU."""

    batch: int | None
    """The traced batch; None if the inputs have no batch dim."""
    largest: int | None
    largest_checkpointed: int | None
    """The largest batch with every repeated block checkpointed; None if no such block saves memory."""
    unknown: str | None = None
    """The reason why the limits are None."""
    of_half: int | None = None
    """The largest batch that takes half of the memory."""


class WhatIf:
    """The variations of one context's step."""

    def __init__(self, context: GraphContext) -> None:
        self._context = context

    def compare(self, kinds: Sequence[ComparisonKind]) -> tuple[Comparison, ...]:
        """The tables of these kinds, for every GPU of the settings; kind 'gpu' is one table of all GPUs."""
        tables: list[Comparison] = []
        for kind in COMPARISONS:
            if kind not in kinds:
                continue
            if kind == "gpu":
                tables.append(self._gpus())
            else:
                tables += [_VARIATIONS[kind](self, scenario) for scenario in self._context.scenarios]
        return tuple(tables)

    # --- one method per kind

    def _gpus(self) -> Comparison:
        first = self._context.scenarios[0]
        own = [estimate(self._graph, scenario) for scenario in self._context.scenarios]
        others = [gpu for gpu in all_gpus() if gpu.id not in {e.gpu.id for e in own}]
        found = own + [estimate(self._graph, replace(first, gpu=gpu.id)) for gpu in others]
        ordered = sorted(found, key=lambda e: e.step_time_us)
        rows = tuple(self._row(e, e.gpu.id, own[0], _said_of(e)) for e in ordered)
        return Comparison("gpu", None, rows)

    def _precisions(self, scenario: Scenario) -> Comparison:
        before = self._context.estimate(scenario)
        wanted = [p for p in PRECISIONS if p == scenario.precision or p in COMPARED_PRECISIONS]
        rows = []
        for precision in wanted:
            if why_impossible(precision, scenario.mode) is not None:
                continue
            after = self._context.estimate(replace(scenario, precision=precision))
            if precision in SWITCHED_PRECISIONS and not _uses_cudnn(after):
                continue
            rows.append(self._row(after, precision, before, _said_of(after)))
        return Comparison("precision", before.gpu.id, tuple(rows))

    def _layouts(self, scenario: Scenario) -> Comparison:
        before = self._context.estimate(scenario)
        if not any(op.kind == "conv" for op in self._graph.ops):
            return Comparison("layout", before.gpu.id, unavailable="the model has no convolutions")
        rows = [self._row(before, "as traced", before)]
        for layout in COMPARED_LAYOUTS:
            after = estimate(self._graph, replace(scenario, layout=layout))
            rows.append(self._row(after, layout, before))
        return Comparison("layout", before.gpu.id, tuple(rows))

    def _compiled(self, scenario: Scenario) -> Comparison:
        before = self._context.estimate(scenario)
        rows = []
        for label, compiled in (("eager", False), ("torch.compile", True)):
            after = self._context.estimate(replace(scenario, compiled=compiled))
            rows.append(self._row(after, label, before))
        return Comparison("compiled", before.gpu.id, tuple(rows))

    def _batches(self, scenario: Scenario) -> Comparison:
        before = self._context.estimate(scenario)
        batches = batch_groups(self._dims)
        if not batches:
            return Comparison("batch", before.gpu.id, unavailable=_NO_BATCH)
        present = batches[0].size
        rows, reasons = [], []
        for size in dict.fromkeys(int(present * factor) for factor in BATCH_FACTORS if present * factor >= 1):
            try:
                graph = self.at_batch(size)
            except DimsUnresolved as error:
                reasons.append(str(error))
                continue
            after = before if graph is self._graph else estimate(graph, scenario)
            rows.append(self._row(after, str(size), before, batch=size))
        if len(rows) < 2:
            return Comparison("batch", before.gpu.id, unavailable=reasons[0] if reasons else _NO_BATCH)
        return Comparison("batch", before.gpu.id, tuple(rows))

    # --- helpers

    @property
    def _graph(self) -> Graph:
        return self._context.graph

    @property
    def _dims(self) -> CoupledDims:
        return self._context.dims

    def at_batch(self, size: int) -> Graph:
        """The graph at another batch; built once.

        Raises:
            DimsUnresolved: an op prevents it.
        """
        graphs = self._context.once(_resized_graphs)
        if size not in graphs:
            batches = batch_groups(self._dims)
            present = batches[0].size if batches else None
            graphs[size] = self._graph if size == present else self._dims.resize(dict.fromkeys(batches, size))
        return graphs[size]

    def _row(
        self, after: Estimate, label: str, before: Estimate, note: str = "", batch: int | None = None
    ) -> ComparedStep:
        batches = batch_groups(self._dims)
        own = batches[0].size if batches else None
        size = own if batch is None else batch
        ratio = size / own if size and own else 1.0
        memory = after.memory.total_bytes
        return ComparedStep(
            label=label,
            step_time_us=after.step_time_us,
            speedup=before.step_time_us * ratio / after.step_time_us if after.step_time_us else 1.0,
            samples_per_s=None if size is None or not after.step_time_us else 1e6 * size / after.step_time_us,
            readiness_percent=after.readiness_percent,
            tensor_core_time_percent=after.tensor_core_time_percent,
            uncertainty_percent=after.uncertainty_percent,
            memory_bytes=memory,
            fits=fits(memory, after.gpu),
            calibrated=after.products_calibrated,
            present=ratio == 1.0 and after.scenario == before.scenario,
            note=note,
        )


_NO_BATCH = "the model's inputs have no batch dim that can be resized"

_VARIATIONS: dict[ComparisonKind, Callable[[WhatIf, Scenario], Comparison]] = {
    "precision": WhatIf._precisions,
    "batch": WhatIf._batches,
    "layout": WhatIf._layouts,
    "compiled": WhatIf._compiled,
}


def batch_groups(dims: CoupledDims) -> tuple[DimGroup, ...]:
    """The batch: the leading dims of the inputs if all have one size; empty otherwise."""
    groups = [group for group in dims.groups if group.is_batch]
    return tuple(group for group in groups if group.size == groups[0].size)


def batch_limits(context: GraphContext, scenario: Scenario) -> BatchLimits:
    """The largest batches that fit the scenario's GPU, from the memory of the traced batch and twice it."""
    gpu = context.estimate(scenario).gpu
    # On a GPU without units for the precision something else runs, which takes different memory.
    run = running(scenario.precision, scenario.mode, gpu)
    key = (run.precision, run.linear, scenario.layout, scenario.compiled)
    lines = context.once(_batch_lines).get(key)
    if lines is None:
        lines = context.once(_batch_lines)[key] = _lines_of(context, scenario)
    if isinstance(lines, str):
        return BatchLimits(None, None, None, lines)
    plain, checkpointed = lines
    return BatchLimits(
        plain.batch,
        plain.largest(gpu),
        None if checkpointed is None else checkpointed.largest(gpu),
        of_half=plain.largest(gpu, 0.5),
    )


_Lines = tuple[BatchMemory, BatchMemory | None]


def _batch_lines(_: GraphContext) -> dict[tuple[str, str | None, str, bool], _Lines | str]:
    return {}


def _resized_graphs(_: GraphContext) -> dict[int, Graph]:
    return {}


def _lines_of(context: GraphContext, scenario: Scenario) -> _Lines | str:
    batches = batch_groups(context.dims)
    names = [spec.input_name or "" for spec in context.graph.inputs]
    if not batches or not batches[0].size or any("][" in name for name in names):  # a list of dicts
        return _NO_BATCH
    batch = batches[0].size
    try:
        doubled = estimate(WhatIf(context).at_batch(2 * batch), scenario).memory
    except DimsUnresolved as error:
        return str(error)
    memory = context.estimate(scenario).memory
    plain = batch_memory(batch, memory, doubled, checkpointed=False)
    assert plain is not None
    return plain, batch_memory(batch, memory, doubled, checkpointed=True)


def _uses_cudnn(found: Estimate) -> bool:
    works = (kernel.work for kernel in found.kernels)
    return any(isinstance(work, Convolution) or (isinstance(work, Gemm) and work.in_cudnn) for work in works)


def _said_of(found: Estimate) -> str:
    """Remarks on a row, such as what runs instead if the GPU has no units for the precision."""
    precision, gpu = found.scenario.precision, found.gpu
    facts = PRECISION_FACTS[precision]
    if facts.linear is not None:
        return "; ".join(text for text in found.assumptions if facts.linear in text)
    unit = unit_class(gpu, facts.dtype, tf32=True in tf32_switches(precision))
    if unit is None:
        return f"{gpu.name} computes no {facts.dtype} products"
    if not unit.tensor_cores and precision != "fp32":
        return unit.reason
    if facts.converted and facts.unit != "fp64" and found.scenario.mode == "train":
        return "weights, gradients and optimizer states have 16 bits"
    return ""
