"""What a point of a sweep costs: priced here, or by several processes at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Precision, Settings
from tclint.core.errors import TargetError
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.memory.step_memory import fits
from tclint.cost.scenario import Scenario
from tclint.engine.model_pass import as_priced
from tclint.fleet.cluster import Lost, Workplace, completed, connected
from tclint.fleet.processes import completed as completed_by_processes
from tclint.fleet.shapes import Formula, Point, Shapes
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph
from tclint.tracing.worker.client import in_order

CHUNK = 50
"""Points that a process is handed at once."""
FEW_POINTS = 300
"""Up to which starting processes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class Price:
    """The predicted step of a point on one GPU, in one precision."""

    gpu: str
    precision: str
    step_time_us: float
    """NaN: no operator has a formula there."""
    readiness_percent: float
    memory_bytes: int
    fits: bool
    """Whether the GPU's memory holds it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one point is, and what it costs."""

    parameters: int
    flops: int
    """Forward, 2 per multiply-add."""
    batch: int | None
    """Leading dim of the model's inputs; None where they differ in it."""
    prices: tuple[Price, ...]


@dataclass(frozen=True, slots=True)
class Pricing:
    """How points are priced."""

    settings: Settings
    precisions: tuple[Precision, ...]

    def cost_of(self, graph: Graph) -> Cost:
        """What the point with this graph costs on every GPU, in every precision."""
        priced, _ = as_priced(graph, self.settings)
        batches = {spec.shape[0] for spec in graph.inputs if spec.shape}
        return Cost(
            parameters=priced.parameter_count,
            flops=forward_flops(priced),
            batch=batches.pop() if len(batches) == 1 else None,
            prices=tuple(_price(found) for found in self.estimates(graph)),
        )

    def estimates(self, graph: Graph) -> Iterator[Estimate]:
        """One per precision and GPU."""
        priced, settings = as_priced(graph, self.settings)
        for precision in self.precisions:
            for gpu in settings.gpus:
                yield estimate(priced, Scenario.of(replace(settings, precision=precision), gpu))

    def is_same_step(self, one: Graph, other: Graph) -> bool:
        """Whether two graphs have equal kernels, prices and memory everywhere."""
        if self.cost_of(one) != self.cost_of(other):
            return False
        pairs = zip(self.estimates(one), self.estimates(other), strict=True)
        return all(
            first.kernels == second.kernels and first.prices == second.prices for first, second in pairs
        )


def _price(found: Estimate) -> Price:
    is_known = bool(found.kernels) or not found.gaps
    return Price(
        found.gpu.id,
        found.scenario.precision,
        found.step_time_us if is_known else math.nan,
        found.readiness_percent if is_known else math.nan,
        found.memory.total_bytes,
        fits(found.memory.total_bytes, found.gpu),
    )


@dataclass(frozen=True, slots=True)
class Family:
    """Points that one traced graph is resized to."""

    graph: Graph
    formulas: dict[str, Formula]
    points: tuple[Point, ...]
    """Sizes of the arguments that vary among them."""


def price_families(
    pricing: Pricing,
    families: Sequence[Family],
    on_progress: Callable[[str], None] | None,
    scheduler: str = "",
) -> Iterator[Cost | None]:
    """The costs of all families' points, in order; None where a graph cannot be resized to a point.

    Raises:
        TargetError: a process that priced was ended from outside.
        UsageError: the cluster is of no use.
    """
    chunks = [
        replace(family, points=family.points[start : start + CHUNK])
        for family in families
        for start in range(0, len(family.points), CHUNK)
    ]
    count = sum(len(family.points) for family in families)
    processes = min(pricing.settings.jobs or os.cpu_count() or 1, len(chunks))
    found: Iterator[list[Cost | None] | Lost]
    if scheduler and chunks:
        found = in_order(_on_cluster(pricing, chunks, scheduler))
    elif processes <= 1 or count <= FEW_POINTS:
        found = (costs_of_points(pricing, chunk) for chunk in chunks)
    else:
        jobs = [(pricing, chunk) for chunk in chunks]
        found = in_order(completed_by_processes(costs_of_points, jobs, processes))
    done = 0
    for costs in found:
        if isinstance(costs, Lost):
            raise TargetError(
                f"A process that priced points was ended from outside, probably because memory ran out "
                f"({costs.reason}); sweep again with fewer --jobs."
            )
        done += len(costs)
        if on_progress:
            on_progress(f"pricing points ({done:,} of {count:,})")
        yield from costs


def costs_of_points(pricing: Pricing, family: Family) -> list[Cost | None]:
    """The costs of one family's points; None where resizing is refused."""
    shapes = Shapes(family.graph, family.formulas)
    return [None if graph is None else pricing.cost_of(graph) for graph in map(shapes.at, family.points)]


def costs_in_place(place: Workplace, pricing: Pricing, family: Family) -> list[Cost | None]:
    """As `costs_of_points`, in a worker of a cluster."""
    with place.entered():
        return costs_of_points(pricing, family)


def _on_cluster(
    pricing: Pricing, chunks: Sequence[Family], scheduler: str
) -> Generator[tuple[int, list[Cost | None] | Lost], None, None]:
    file = pricing.settings.calibration
    place = Workplace.here([file] if file else [])
    with connected(scheduler, place) as client:
        yield from completed(client, costs_in_place, [(place, pricing, chunk) for chunk in chunks])
