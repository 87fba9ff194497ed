"""A sweep: every point of a grid priced, most of them by resizing the graph of one that was traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tclint.config.settings import Precision, Settings
from tclint.core.errors import UsageError
from tclint.core.text import listed
from tclint.cost.gpu import load_gpu
from tclint.cost.gpu.factors import factors_note
from tclint.engine.script.as_built import Runs, Traced, runs_as_built
from tclint.fleet.grid import Grid
from tclint.fleet.prices import Cost, Family, Pricing, price_families
from tclint.fleet.shapes import Point, Samples, Shapes, Unresolved, is_same_program, learn, samples_of
from tclint.graph.ops import Graph
from tclint.tracing import shared_worker, trace_runs

Progress = Callable[[str], None]

_MOST_LISTED = 12
WORTH_RESIZING = 1.5
"""How many times as many points as samples there have to be, for samples to save anything."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the points of a grid cost; points go by their positions in it."""

    target: str
    grid: Grid
    settings: Settings
    costs: Mapping[int, Cost]
    errors: Mapping[int, str]
    """Why the other points have no cost."""
    traced: int
    """Points that were traced, not had by resizing."""
    notes: tuple[str, ...]
    """Why points that resizing might have given were traced."""
    assumptions: tuple[str, ...] = ()
    """What the prices rest on, of the user's own and of the project's."""


def sweep(
    target: str,
    grid: Grid,
    settings: Settings,
    precisions: tuple[Precision, ...],
    *,
    trace_all: bool = False,
    on_progress: Progress | None = None,
    scheduler: str = "",
) -> Sweep:
    """Price every point of a grid on every GPU, in every precision.

    Points that differ in sizes alone are had by resizing one traced graph. How its dims follow from the
    arguments is learned from points that are traced (`samples_of`); where resizing gives another step than
    one of these traces, every such point is traced.

    Args:
        target: what builds the model.
        grid: the points.
        settings: without what is swept; its GPUs are known ones.
        precisions: to price in.
        trace_all: resize nothing.
        on_progress: called with one line about what is being done.
        scheduler: of dask.distributed, whose workers price what is resized; '' for processes here. Points are
            traced here.

    Raises:
        UsageError: the settings have several sets of inputs, or a spec of them is malformed.
        TargetError: a process that priced was ended from outside.
    """
    if settings.input_sets:
        raise UsageError("A sweep runs the model on one set of inputs; give --input instead of --input-set.")
    run = _Run(target, grid, settings, Pricing(settings, precisions), on_progress, scheduler)
    with shared_worker():
        if not trace_all:
            run.resize()
        run.trace(range(len(grid.points)))
    notes = tuple(dict.fromkeys(run.notes))
    gpus = (load_gpu(name, settings.calibration) for name in settings.gpus)
    assumptions = [factors_note(gpu.factors, settings.calibration) for gpu in gpus if gpu.factors]
    if stated := run.settings.arguments[len(settings.arguments) :]:
        assumptions.append(f"{target} is made with {listed(stated, _MOST_LISTED)}, as its project does")
    if settings.tensor_parallel > 1:
        parts = settings.tensor_parallel
        assumptions.append(f"tensor parallel over {parts} GPUs: step time and memory are of one of them")
    return Sweep(target, grid, settings, run.costs, run.errors, len(run.traced), notes, tuple(assumptions))


@dataclass(frozen=True, slots=True)
class _Slice:
    """Points that have everything in common but some sizes."""

    free: tuple[int, ...]
    """The axes of those sizes."""
    positions: Mapping[Point, int]
    """In the grid, by the sizes."""

    def traces_of(self, graphs: Mapping[int, Graph], points: Iterable[Point]) -> list[tuple[Point, Graph]]:
        """Those of some of its points."""
        return [(point, graphs[self.positions[point]]) for point in points]


@dataclass
class _Run:
    """One sweep while it runs."""

    target: str
    grid: Grid
    settings: Settings
    pricing: Pricing
    on_progress: Progress | None
    scheduler: str
    costs: dict[int, Cost] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    traced: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def trace(self, positions: Iterable[int]) -> None:
        """Trace and price the points that have no cost yet."""
        for _ in self._graphs(positions):
            pass

    def resize(self) -> None:
        """Price what resizing gives, beside the points that are traced for it."""
        fixed = [number for number, axis in enumerate(self.grid.axes) if not axis.is_size]
        families: list[tuple[_Slice, Family]] = []
        graphs: dict[int, Graph] = {}
        pending = self._slices(range(len(self.grid.points)), fixed)
        while pending:
            planned = [(part, samples_of(list(part.positions))) for part in pending]
            planned = [
                (part, samples)
                for part, samples in planned
                if len(part.positions) >= WORTH_RESIZING * len(samples.all)
            ]
            graphs |= self._graphs(
                part.positions[point] for part, samples in planned for point in samples.all
            )
            pending = []
            for part, samples in planned:
                missing = [point for point in samples.all if part.positions[point] not in graphs]
                if missing:
                    self.notes.append(f"{len(missing)} of {len(samples.all)} points tried first failed")
                    continue
                branching = _branching_axes(part, samples, graphs)
                if branching and len(branching) < len(part.free):
                    held = {axis for axis in range(len(self.grid.axes)) if axis not in part.free}
                    pending += self._slices(part.positions.values(), [*held, *branching])
                    continue
                found = self._family(part, samples, graphs)
                if isinstance(found, Unresolved):
                    self.notes.append(found.reason)
                else:
                    families.append((part, found))
        self._price(families)

    def _graphs(self, positions: Iterable[int]) -> Iterator[tuple[int, Graph]]:
        """Traces of the points that have no cost yet, priced as they come."""
        wanted = [at for at in dict.fromkeys(positions) if at not in self.costs and at not in self.errors]
        if not wanted:
            return
        self.traced.update(wanted)
        points = (self.grid.points[at] for at in wanted)
        runs = [(self.target, self.grid.settings_at(point, self.settings)) for point in points]

        def trace(some: Runs) -> Traced:
            return trace_runs(some, jobs=self.settings.jobs, on_progress=self.on_progress)

        for number, (result,) in runs_as_built(runs, trace):
            stated = dict.fromkeys((*self.settings.arguments, *result.arguments))
            self.settings = replace(self.settings, arguments=tuple(stated))  # the other points need the same
            if result.graph is None:
                self.errors[wanted[number]] = str(result.error)
            else:
                self.costs[wanted[number]] = self.pricing.cost_of(result.graph)
                yield wanted[number], result.graph

    def _slices(self, positions: Iterable[int], held: Iterable[int]) -> list[_Slice]:
        """The points by their values on some axes; those that differ on no other axis are left out."""
        points = self.grid.points
        others = sorted(set(held))
        groups: dict[str, list[int]] = {}
        for at in positions:
            groups.setdefault(repr([points[at][axis] for axis in others]), []).append(at)
        parts = []
        for group in groups.values():
            sizes = [axis for axis in range(len(self.grid.axes)) if axis not in others]
            free = tuple(axis for axis in sizes if len({points[at][axis] for at in group}) > 1)
            if free:
                by_size = {tuple(points[at][axis] for axis in free): at for at in group}
                parts.append(_Slice(free, by_size))
        return parts

    def _family(self, part: _Slice, samples: Samples, graphs: Mapping[int, Graph]) -> Family | Unresolved:
        """The points as resizings of the base, if resizing gives the steps that were traced."""
        base = graphs[part.positions[samples.base]]
        learned_from = part.traces_of(graphs, samples.learned_from)
        if any(not is_same_program(base, graph) for _, graph in learned_from):
            return Unresolved("the model runs other operators or strides at other points")
        points = tuple(part.positions)
        formulas = learn(base, learned_from, points)
        if isinstance(formulas, Unresolved):
            return formulas
        shapes = Shapes(base, formulas)
        for point, graph in part.traces_of(graphs, samples.all):
            resized = shapes.at(point)
            if resized is None or not self.pricing.is_same_step(resized, graph):
                where = self.grid.text_at(part.positions[point])
                return Unresolved(f"resizing gives another step than a trace does, at {where}")
        missing = tuple(point for point in points if part.positions[point] not in self.costs)
        return Family(base, formulas, missing)

    def _price(self, families: Sequence[tuple[_Slice, Family]]) -> None:
        positions = (part.positions[point] for part, family in families for point in family.points)
        costs = price_families(
            self.pricing, [family for _, family in families], self.on_progress, self.scheduler
        )
        refused = 0
        for at, cost in zip(positions, costs, strict=True):
            if cost is None:
                refused += 1
            else:
                self.costs[at] = cost
        if refused:
            self.notes.append("at some points a dim is no whole multiple of what it is made of")


def _branching_axes(part: _Slice, samples: Samples, graphs: Mapping[int, Graph]) -> list[int]:
    """The axes along which the model runs other operators, as it does with another number of layers."""
    base = graphs[part.positions[samples.base]]
    return [
        part.free[axis]
        for axis, line in samples.lines.items()
        if any(not is_same_program(base, graph) for _, graph in part.traces_of(graphs, line))
    ]
