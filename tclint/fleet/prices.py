"""What a point of a sweep costs: priced here, or by several processes at once."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from tclint.config.settings import Precision, Settings
from tclint.core.errors import TargetError
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Scenario
from tclint.engine.model_pass import as_priced
from tclint.fleet.formulas import Formula, Point
from tclint.fleet.shapes import Shapes
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph

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
    )


@dataclass(frozen=True, slots=True)
class Family:
    """Points that one traced graph is resized to."""

    graph: Graph
    formulas: dict[str, Formula]
    points: tuple[Point, ...]
    """Sizes of the arguments that vary among them."""


class _Worker:
    """Prices chunks of points; resizes each family's graph."""

    def __init__(self, pricing: Pricing, families: Sequence[Family]) -> None:
        self._pricing = pricing
        self._families = families
        self._shapes: tuple[int, Shapes] | None = None

    def costs(self, chunk: tuple[int, int]) -> list[Cost | None]:
        """Of the points of a family from a place on; None where resizing is refused."""
        number, start = chunk
        family = self._families[number]
        if self._shapes is None or self._shapes[0] != number:
            self._shapes = number, Shapes(family.graph, family.formulas)
        shapes = self._shapes[1]
        graphs = (shapes.at(point) for point in family.points[start : start + CHUNK])
        return [None if graph is None else self._pricing.cost_of(graph) for graph in graphs]


_worker: _Worker | None = None


def _start(pricing: Pricing, families: Sequence[Family]) -> None:
    global _worker  # noqa: PLW0603 - the state of a worker process
    _worker = _Worker(pricing, families)


def _costs(chunk: tuple[int, int]) -> list[Cost | None]:
    assert _worker is not None
    return _worker.costs(chunk)


def price_families(
    pricing: Pricing, families: Sequence[Family], on_progress: Callable[[str], None] | None
) -> Iterator[Cost | None]:
    """The costs of all families' points, in order; None where a graph cannot be resized to a point.

    Raises:
        TargetError: a process that priced was ended from outside.
    """
    chunks = [
        (number, start)
        for number, family in enumerate(families)
        for start in range(0, len(family.points), CHUNK)
    ]
    count = sum(len(family.points) for family in families)
    jobs = min(pricing.settings.jobs or os.cpu_count() or 1, len(chunks))

    def said(costs: Iterator[list[Cost | None]]) -> Iterator[Cost | None]:
        done = 0
        for chunk in costs:
            done += len(chunk)
            if on_progress:
                on_progress(f"pricing points ({done:,} of {count:,})")
            yield from chunk

    if jobs <= 1 or count <= FEW_POINTS:
        yield from said(map(_Worker(pricing, families).costs, chunks))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy the lock of the progress line
    with ProcessPoolExecutor(jobs, context, _start, (pricing, families)) as pool:
        try:
            yield from said(pool.map(_costs, chunks))
        except BrokenProcessPool:
            raise TargetError(
                "A process that priced points was ended from outside, probably because memory ran out; sweep "
                "again with fewer --jobs."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
