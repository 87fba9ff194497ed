"""What a graph rule sees: the graph, its prices, its coupled dims, and the price of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from tclint.config.settings import Settings
from tclint.core.finding import Effect, GpuEffect, Location, Related
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.ops import Graph, Op, Site

T = TypeVar("T")


def gpu_effect(before: Estimate, concerned: Iterable[int], gain_us: float) -> GpuEffect:
    """A gain on one GPU, beside what the ops concerned take there now."""
    indices = frozenset(concerned)
    return GpuEffect(
        cost_us=before.time_of_us(indices),
        gain_us=gain_us,
        gain_percent=before.percent_of_step(gain_us),
        uncertainty_percent=before.uncertainty_of_percent(indices),
        calibrated=before.products_calibrated,
    )


@dataclass
class GraphContext:
    """One traced entry under the run's settings; estimates are computed once and kept."""

    graph: Graph
    settings: Settings
    target: str = ""
    _estimates: dict[Scenario, Estimate] = field(default_factory=dict, repr=False)
    _analyses: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """One per GPU of the settings, in the order given."""
        return tuple(Scenario.of(self.settings, gpu) for gpu in self.settings.gpus)

    @cached_property
    def dims(self) -> CoupledDims:
        """Which dims of the graph must change together."""
        return CoupledDims(self.graph)

    def once(self, analysis: Callable[[GraphContext], T]) -> T:
        """What `analysis` says of this context: computed at the first call, shared by all rules."""
        if analysis not in self._analyses:
            self._analyses[analysis] = analysis(self)
        result: T = self._analyses[analysis]
        return result

    def estimate(self, scenario: Scenario) -> Estimate:
        """The price of the graph as it is."""
        if scenario not in self._estimates:
            self._estimates[scenario] = estimate(self.graph, scenario)
        return self._estimates[scenario]

    def effect(
        self,
        cost_of: Iterable[int],
        *,
        graph: Graph | None = None,
        change: Callable[[Scenario], Scenario] | None = None,
        start: Callable[[Scenario], Scenario] | None = None,
        work_ratio: float = 1.0,
        only_concerned: bool = False,
    ) -> Effect:
        """Price a change of the graph, of the scenario, or of both, over the whole step on every GPU.

        Args:
            cost_of: indices of the ops whose present time is the finding's `cost_us`.
            graph: the changed graph; None: the same.
            change: maps each scenario to the changed one; None: the same.
            start: maps each scenario to the one that the change starts from, where a fix presupposes
                another (a kernel that exists in channels_last only); None: the run's own.
            work_ratio: samples per step of the changed graph over samples per step as it is, for changes
                of the batch: the changed step's time is then that of the same number of samples.
            only_concerned: count what these ops gain and not what the change does elsewhere.
        """
        concerned = frozenset(cost_of)
        per_gpu: dict[str, GpuEffect] = {}
        for scenario in (start(own) if start else own for own in self.scenarios):
            before = self.estimate(scenario)
            after = estimate(graph or self.graph, change(scenario) if change else scenario)
            gain_us = before.step_time_us - after.step_time_us / work_ratio
            if only_concerned:
                gain_us = before.time_of_us(concerned) - after.time_of_us(concerned) / work_ratio
            per_gpu[before.gpu.id] = gpu_effect(before, concerned, gain_us)
        return Effect(per_gpu=per_gpu, op_indices=tuple(sorted(concerned)))

    def location(self, op: Op) -> Location:
        """Where the user would edit: the line that constructed the op's layer, else the line that called
        it, else where the model is defined."""
        site = op.construct_site or op.call_site or self.graph.root_site
        return self._at(site, op.module_path)

    def call_location(self, op: Op) -> Location:
        """The line that called the op, for findings about how it is used."""
        site = op.call_site or op.construct_site or self.graph.root_site
        return self._at(site, op.module_path)

    def related(self, op: Op) -> tuple[Related, ...]:
        """The library's own line, where the user's line only called a library."""
        site = op.construct_library_site if op.construct_site else op.call_library_site
        if site is None:
            return ()
        return (Related(self._at(site, op.module_path), "the library line that constructs the layer"),)

    def root_location(self) -> Location:
        """Where the model is defined, for findings about the whole model."""
        return self._at(self.graph.root_site, "")

    def _at(self, site: Site | None, module_path: str) -> Location:
        known = site or Site(self.target.rsplit(":", 1)[0], 1)
        return Location(path=known.path, line=known.line, module_path=module_path or None)

    def with_settings(self, **changes: object) -> GraphContext:
        """The same graph under other settings; prices and coupled dims, which hang on neither, are shared."""
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        context = GraphContext(self.graph, settings, self.target, self._estimates)
        if "dims" in self.__dict__:
            context.__dict__["dims"] = self.dims
        return context
