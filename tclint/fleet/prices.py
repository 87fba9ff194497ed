"""What a point of a sweep costs: priced here, or by several processes at once."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.config.settings import Precision, Settings
from tclint.core.errors import TargetError
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.memory.step_memory import fits
from tclint.cost.scenario import Scenario
from tclint.engine.model_pass import as_priced
from tclint.fleet.cluster import Place
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


_SERVE = "from tclint.fleet.prices import serve; serve()"

Chunk = tuple[int, int]
"""Which family, and where in its points: CHUNK of them, or what is left."""


def _costs(
    pricing: Pricing, families: Sequence[Family], chunks: Iterable[Chunk]
) -> Iterator[list[Cost | None]]:
    """By chunk, the costs of its points; None where resizing is refused."""
    number, shapes = -1, None
    for family, start in chunks:
        if shapes is None or family != number:
            number, shapes = family, Shapes(families[family].graph, families[family].formulas)
        graphs = map(shapes.at, families[family].points[start : start + CHUNK])
        yield [None if graph is None else pricing.cost_of(graph) for graph in graphs]


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
        (number, start)
        for number, family in enumerate(families)
        for start in range(0, len(family.points), CHUNK)
    ]
    count = sum(len(family.points) for family in families)
    jobs = min(pricing.settings.jobs or os.cpu_count() or 1, len(chunks))
    if scheduler and chunks:
        found = _costs_on_cluster(pricing, families, chunks, scheduler)
    elif jobs <= 1 or count <= FEW_POINTS:
        found = _costs(pricing, families, chunks)
    else:
        found = _costs_by_processes(pricing, families, chunks, jobs)
    done = 0
    for costs in found:
        done += len(costs)
        if on_progress:
            on_progress(f"pricing points ({done:,} of {count:,})")
        yield from costs


def _costs_by_processes(
    pricing: Pricing, families: Sequence[Family], chunks: Sequence[Chunk], jobs: int
) -> Iterator[list[Cost | None]]:
    """As `_costs`; of so many processes, each prices every so many-th chunk."""
    # Not multiprocessing: it would import the caller's main module again, or copy its threads' locks.
    code = f"import sys; sys.path[:] = {sys.path!r}; {_SERVE}"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(jobs)
    ]
    try:
        for number, process in enumerate(processes):
            assert process.stdin is not None
            pickle.dump((pricing, families, chunks[number::jobs]), process.stdin)
            process.stdin.close()
        for at in range(len(chunks)):
            output = processes[at % jobs].stdout
            assert output is not None
            yield pickle.load(output)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        raise TargetError(
            "A process that priced points was ended from outside, probably because memory ran out; sweep "
            "again with fewer --jobs."
        ) from None
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # of what was left to write
                    pipe.close()


def _costs_on_cluster(
    pricing: Pricing, families: Sequence[Family], chunks: Sequence[Chunk], scheduler: str
) -> Iterator[list[Cost | None]]:
    """As `_costs`, by the workers of a scheduler of dask.distributed."""
    from tclint.fleet.cluster import Lost, Place, completed, connected

    file = pricing.settings.calibration
    place = Place.here([file] if file else [])
    jobs = []
    for number, start in chunks:
        family = families[number]
        jobs.append((place, pricing, replace(family, points=family.points[start : start + CHUNK])))
    early: dict[int, list[Cost | None]] = {}
    following = 0
    with connected(scheduler, place) as client:
        for at, costs in completed(client, costs_of_points, jobs):
            if isinstance(costs, Lost):
                raise TargetError(f"Workers that priced points were lost over and over: {costs.reason}")
            early[at] = costs
            while following in early:
                yield early.pop(following)
                following += 1


def costs_of_points(place: Place, pricing: Pricing, family: Family) -> list[Cost | None]:
    """The costs of one family's points, in a worker of a cluster."""
    with place.entered():
        return [cost for costs in _costs(pricing, [family], [(0, 0)]) for cost in costs]


def serve() -> None:
    """Price the chunks that stand on stdin, and write each one's costs to stdout, pickled."""
    for costs in _costs(*pickle.load(sys.stdin.buffer)):
        pickle.dump(costs, sys.stdout.buffer)
        sys.stdout.buffer.flush()
