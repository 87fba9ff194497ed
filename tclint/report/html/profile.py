"""What the HTML report draws of a step: every op and kernel of an entry, per GPU and precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tclint.config.precisions import PRECISION_FACTS
from tclint.config.settings import REPORTED_PRECISIONS, Precision, Settings
from tclint.core.text import printable
from tclint.core.units import percent_text, time_text, uncertainty_text
from tclint.cost.gpu import load_gpu
from tclint.cost.rows import Estimate, Row
from tclint.engine.check import relative_path
from tclint.engine.report import Entry
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work
from tclint.graph.ops import Graph, Op

LIMITERS = ("math", "memory", "latency")
"""The page knows them by their position here."""

OPTIMIZER = "(optimizer)"
ROOT = "(model)"


@dataclass
class Texts:
    """Strings of the page, each once: layers of a deep model share most of theirs."""

    listed: list[str] = field(default_factory=list)
    _positions: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> int:
        """The position of `text`, made fit to be shown."""
        found = self._positions.get(text)
        if found is None:
            found = self._positions[text] = len(self.listed)
            self.listed.append(printable(text))
        return found


LEAST_MODULES = 50
"""Modules that a profile lists, whatever its limit."""


def profiles(entry: Entry, settings: Settings) -> Iterator[Profile]:
    """One per GPU of the run and precision of its units; none where no graph was kept."""
    from tclint.analysis.graph_context import GraphContext

    if entry.graph is None:
        return
    context = GraphContext(entry.graph, settings)
    # By precision first: a step is lowered once per precision and priced on every GPU.
    for precision in dict.fromkeys((settings.precision, *REPORTED_PRECISIONS)):
        for scenario in context.scenarios:
            if precision == settings.precision or load_gpu(scenario.gpu).supports(precision):
                estimate = context.estimate(replace(scenario, precision=precision))
                yield Profile.of(estimate, entry.graph, is_run=precision == entry.precision)


@dataclass(frozen=True, slots=True)
class Profile:
    """A step on one GPU in one precision: its ops and kernels, the longest first."""

    head: dict[str, Any]
    ops: list[_OpTotal]
    kernels: list[list[Row]]
    graph: Graph

    @classmethod
    def of(cls, estimate: Estimate, graph: Graph, *, is_run: bool) -> Profile:
        gpu, precision = estimate.gpu, estimate.scenario.precision
        step = f"{time_text(estimate.step_time_us)} {uncertainty_text(estimate.uncertainty_percent)}"
        head = {
            "gpu": gpu.id,
            "precision": precision,
            "is_run": is_run,
            "calibrated": estimate.products_calibrated,
            "dram_gb_per_s": gpu.dram_gb_per_s,
            "roofs": [
                {"name": name, "tflops": gpu.peak_tflops[key]}
                for key, name in _roofs(precision)
                if key in gpu.peak_tflops
            ],
            "step_time_us": _short(estimate.step_time_us),
            "facts": [
                ["step", step],
                ["ready", percent_text(estimate.readiness_percent)],
                ["on Tensor Cores", percent_text(estimate.tensor_core_time_percent)],
                ["forward", time_text(estimate.forward_time_us)],
                ["backward", time_text(estimate.backward_time_us)],
                ["optimizer", time_text(estimate.optimizer_time_us)],
            ],
        }
        return cls(head, _ops(estimate), _kernels(estimate), graph)

    def to_json(self, texts: Texts, limit: int) -> dict[str, Any]:
        """At most so many ops and kernels, the longest first. Times are microseconds, traffic is bytes, rates
        1e12 FLOP/s and 1e9 bytes/s; text is a position in `texts`."""
        return {
            **self.head,
            "ops": [op.to_json(self.graph, texts) for op in self.ops[:limit]],
            "ops_left_out": max(len(self.ops) - limit, 0),
            "kernels": [_kernel(rows, texts) for rows in self.kernels[:limit]],
            "kernels_left_out": max(len(self.kernels) - limit, 0),
            "modules": _modules(self.ops, self.graph, texts, max(limit, LEAST_MODULES)),
        }


def _roofs(precision: Precision) -> tuple[tuple[str, str], ...]:
    """Keys of Gpu.peak_tflops with their names: what the products run in, and what everything else does."""
    unit = PRECISION_FACTS[precision].unit
    cuda_cores = ("fp32", "fp32 CUDA cores")
    if unit == "fp32":
        return (cuda_cores,)
    rest = (("bf16", "bf16 Tensor Cores"),) if unit in ("fp8", "int8") else ()
    return ((unit, "fp64" if unit == "fp64" else f"{unit} Tensor Cores"), *rest, cuda_cores)


@dataclass(slots=True)
class _OpTotal:
    """All kernels of an op together, forward and backward."""

    index: int
    time_us: float = 0.0
    flops: int = 0
    bytes_moved: int = 0
    by_limiter: dict[str, float] = field(default_factory=dict)
    longest: Row | None = None

    def add(self, row: Row) -> None:
        self.time_us += row.time_us
        self.flops += row.flops
        self.bytes_moved += row.bytes_read + row.bytes_written
        self.by_limiter[row.limiter] = self.by_limiter.get(row.limiter, 0.0) + row.time_us
        if self.longest is None or row.time_us > self.longest.time_us:
            self.longest = row

    def to_json(self, graph: Graph, texts: Texts) -> list[Any]:
        """[name, module, place, time, FLOPs, bytes, limiter, on Tensor Cores, reason]."""
        assert self.longest is not None
        op = graph.ops[self.index] if self.index >= 0 else None
        limiter = max(self.by_limiter, key=lambda name: self.by_limiter[name])
        return [
            texts.of(self.longest.name),
            texts.of(OPTIMIZER if op is None else op.module_path or ROOT),
            texts.of(_place(op)),
            _short(self.time_us),
            self.flops,
            self.bytes_moved,
            LIMITERS.index(limiter),
            int(self.longest.uses_tensor_cores),
            texts.of(self.longest.tensor_core_reason),
        ]


def _place(op: Op | None) -> str:
    site = None if op is None else op.construct_site or op.call_site
    return "" if site is None else f"{relative_path(site.path)}:{site.line}"


def _ops(estimate: Estimate) -> list[_OpTotal]:
    totals: dict[int, _OpTotal] = {}
    for row in estimate.rows:
        totals.setdefault(row.op_index, _OpTotal(row.op_index)).add(row)
    return sorted(totals.values(), key=lambda op: -op.time_us)


def _kernels(estimate: Estimate) -> list[list[Row]]:
    """Kernels that are tiled, equal ones together: the twelve layers of a transformer are one row."""
    equal: dict[tuple[str, str, Work], list[Row]] = {}
    for row in estimate.rows:
        if row.tile is not None:
            equal.setdefault((row.name, row.role, row.work), []).append(row)
    return sorted(equal.values(), key=lambda rows: -sum(row.time_us for row in rows))


def _kernel(rows: Sequence[Row], texts: Texts) -> list[Any]:
    """[name, modules, role, sizes, tile, number, time of all, waves, tile %, wave %, peak %]."""
    row = rows[0]
    others = len({row.module_path for row in rows}) - 1
    tile = "x".join(str(size) for size in row.tile or ())
    if row.split_k > 1:
        tile += f", K split {row.split_k} ways"
    return [
        texts.of(row.name),
        texts.of((row.module_path or ROOT) + (f" and {others} more" if others else "")),
        texts.of(row.role),
        texts.of(sizes_text(row)),
        texts.of(tile),
        len(rows),
        _short(sum(row.time_us for row in rows)),
        _short(row.waves),
        _percent(row.tile_efficiency),
        _percent(row.wave_efficiency),
        _percent(row.fraction_of_peak),
    ]


def sizes_text(row: Row) -> str:
    """'8192 x 50257 x 768' (M x N x K), or what else a kernel of its kind is known by."""
    work = row.work
    if isinstance(work, Gemm):
        times = "".join(f" x {number}" for number in (work.batch, work.repeats) if number > 1)
        return f"{work.m} x {work.n} x {work.k}{times}"
    if isinstance(work, Convolution):
        kernel = "x".join(str(size) for size in work.kernel_size)
        groups = f", {work.groups} groups" if work.groups > 1 else ""
        return (
            f"batch {work.batch}, {work.in_channels} to {work.out_channels} channels, {kernel} kernel{groups}"
        )
    if isinstance(work, Attention):
        return f"batch {work.batch}, {work.heads} heads of {work.head_dim}, length {work.query_length}"
    assert isinstance(work, Traffic)
    return f"{work.bytes_read + work.bytes_written} bytes"


def _modules(ops: Sequence[_OpTotal], graph: Graph, texts: Texts, limit: int) -> list[list[float | None]]:
    """[path, time of the module's own ops]; what is too little to be listed counts with its parent."""
    times: dict[str, float] = {}
    for op in ops:
        path = graph.ops[op.index].module_path if op.index >= 0 else OPTIMIZER
        times[path] = times.get(path, 0.0) + op.time_us
    while len(times) > limit:
        deepest = max(path.count(".") for path in times)
        folded: dict[str, float] = {}
        for path, time_us in times.items():
            parent = path.rpartition(".")[0] if path.count(".") == deepest else path
            folded[parent] = folded.get(parent, 0.0) + time_us
        times = folded
    return [[texts.of(path), _short(time_us)] for path, time_us in times.items()]


def _short(value: float) -> float | None:
    # Four digits: more than an estimate knows, and half the bytes. JSON has no infinity.
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _percent(share: float) -> float | None:
    return round(100.0 * share, 1) if math.isfinite(share) else None
