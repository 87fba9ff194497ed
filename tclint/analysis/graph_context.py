"""The context of a graph rule: the graph, its prices, its coupled dims, and prices of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from tclint.analysis.change import Change
from tclint.config.settings import Settings
from tclint.core.finding import Effect, GpuEffect, Location, Related
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.rows import FloatArray
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.dims.outputs import with_outputs_cut
from tclint.graph.dims.tensor_parallel import split_over
from tclint.graph.dims.vocabulary import VocabularyHead, vocabulary_heads
from tclint.graph.ops import Graph, Op, Site

T = TypeVar("T")
_WITHOUT_PRICE = 5
"""A finding without a price needs this many times the share of others, since every model has small layers."""


def gpu_effect(before: Estimate, concerned: Iterable[int], gain_us: float) -> GpuEffect:
    """A gain on one GPU, with the present time of the ops concerned there."""
    indices = frozenset(concerned)
    return GpuEffect(
        cost_us=before.time_of_us(indices),
        gain_us=gain_us,
        gain_percent=before.percent_of_step(gain_us),
        uncertainty_percent=before.uncertainty_of_percent(indices),
        calibrated=before.products_calibrated,
    )


def _elsewhere(before: Estimate, gain_us: FloatArray, concerned: Iterable[int]) -> dict[str, float]:
    """Gains in other ops than those concerned, by what they are called, the largest first."""
    found: dict[str, float] = {}
    for position in set(gain_us.nonzero()[0].tolist()) - {index + 1 for index in concerned}:
        name = before.ops[position - 1].name if position else "the optimizer"
        found[name] = found.get(name, 0.0) + float(gain_us[position])
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _felt_us(before: Estimate, after: Estimate, samples: float) -> float | None:
    """What a change saves of the step, which lasts as long as the slower of host and GPU needs; None if that
    is the GPU, before the change and after it."""
    if before.bound == after.bound == "gpu":
        return None
    was, becomes = (max(step.step_time_us, step.host_time_us) for step in (before, after))
    return was - becomes / samples


@dataclass(frozen=True, slots=True)
class _Priced:
    """A change with its priced gain."""

    change: Change
    """Kept alive so that no other change gets its id."""
    effect: Effect
    own_gain_percent: tuple[float, ...]
    """The gain in only the ops concerned, per GPU."""


@dataclass
class GraphContext:
    """One traced entry under the run's settings; estimates are computed once and kept."""

    graph: Graph
    settings: Settings
    target: str = ""
    _estimates: dict[Scenario, Estimate] = field(default_factory=dict, repr=False)
    _analyses: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)
    _effects: dict[tuple[int, frozenset[int] | None], _Priced] = field(default_factory=dict, repr=False)
    """(id of the change, ops concerned) -> priced change."""

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """One per GPU of the settings, in the order given."""
        return tuple(Scenario.of(self.settings, gpu) for gpu in self.settings.gpus)

    @cached_property
    def dims(self) -> CoupledDims:
        """Which dims of the graph must change together."""
        return CoupledDims(self.graph)

    @cached_property
    def vocabulary_heads(self) -> tuple[VocabularyHead, ...]:
        """The products with a vocabulary."""
        return vocabulary_heads(self.dims)

    def once(self, analysis: Callable[[GraphContext], T]) -> T:
        """The result of `analysis` on this context, computed at the first call and shared by all rules."""
        if analysis not in self._analyses:
            self._analyses[analysis] = analysis(self)
        result: T = self._analyses[analysis]
        return result

    def estimate(self, scenario: Scenario) -> Estimate:
        """The price of the unchanged graph."""
        if scenario not in self._estimates:
            self._estimates[scenario] = estimate(self.graph, scenario)
        return self._estimates[scenario]

    @property
    def batch_is_assumed(self) -> bool:
        """Whether the tracer chose the batch because nobody stated it; a small batch is then no fault of the
        model."""
        metadata = self.graph.metadata
        return metadata.get("inputs_from") == "inferred" and "batch" not in metadata

    def share_percent(self, op_indices: Iterable[int]) -> dict[str, float]:
        """GPU id -> percentage of the predicted step that the ops' kernels take, forward and backward."""
        indices = tuple(op_indices)
        estimates = (self.estimate(scenario) for scenario in self.scenarios)
        return {each.gpu.id: each.percent_of_step(each.time_of_us(indices)) for each in estimates}

    def largest_share_percent(self, op_indices: Iterable[int]) -> float:
        """The largest share over the GPUs, in percent: an upper bound on what any change of the ops gains."""
        return max(self.share_percent(op_indices).values(), default=0.0)

    def worth_pricing(self, op_indices: Iterable[int]) -> bool:
        """Whether removing the ops altogether would gain at least what a report lists."""
        return self.largest_share_percent(op_indices) >= self.settings.min_gain_percent

    def worth_saying_unpriced(self, op_indices: Iterable[int]) -> bool:
        """Whether the ops take so much of the step that a finding is useful although its gain cannot be
        predicted."""
        return self.largest_share_percent(op_indices) >= _WITHOUT_PRICE * self.settings.min_gain_percent

    def limiters(self, op: Op, *, products_only: bool = False) -> frozenset[str]:
        """The limits of the op's kernels on the run's GPUs: 'math', 'memory', 'latency'.

        Args:
            products_only: whether only matrix products count, and not kernels that only move data.
        """
        rows = (row for scenario in self.scenarios for row in self.estimate(scenario).rows_of(op.index))
        return frozenset(row.limiter for row in rows if row.flops or not products_only)

    def after(self, change: Change) -> GraphContext:
        """The model and its step with a change made.

        Raises:
            DimsUnresolved: the change does not fit the model; the message says why.
        """
        graph: Graph | None = self.graph
        if change.sizes:
            graph = self.dims.resize(dict(change.sizes))
        if change.edit is not None and graph is not None:
            graph = change.edit(graph)
        if graph is None:
            raise DimsUnresolved(None, "the layers are not as the change takes them")
        if graph is self.graph:
            return self.with_settings(**change.settings)
        return GraphContext(graph, replace(self.settings, **change.settings), self.target)

    def step_us_cut_back(self, change: Change) -> dict[str, float]:
        """The step by GPU after a change, with a slice behind each product whose outputs it makes more, so
        that the model returns what it does now; empty where there is none.

        Raises:
            DimsUnresolved: the change does not fit the model.
        """
        changed = self.after(change)
        graph = with_outputs_cut(self.graph, changed.graph)
        if graph is None:
            return {}
        cut = GraphContext(graph, changed.settings, self.target)
        return {one.gpu.id: one.step_time_us for one in map(cut.estimate, cut.scenarios)}

    def effect(self, cost_of: Iterable[int] | None, change: Change) -> Effect:
        """Price a change over the whole step on every GPU.

        Args:
            cost_of: indices of the ops whose present time is the finding's `cost_us`; None: all that take
                another time with the change, the optimizer among them.
            change: the change.

        Raises:
            DimsUnresolved: the change does not fit the model.
        """
        return self._priced(None if cost_of is None else frozenset(cost_of), change).effect

    def has_priced(self, change: object) -> bool:
        """Whether a change belongs to this model; changes of other models have other groups and ops."""
        return any(known is change for known in (priced.change for priced in self._effects.values()))

    def own_gain_percent(self, ops: Iterable[int], change: Change) -> float:
        """The gain of a change in only these ops, in percent of the step, on the GPU where it is largest.

        Raises:
            DimsUnresolved: it does not fit the model.
        """
        return max(self._priced(frozenset(ops), change).own_gain_percent, default=0.0)

    def _priced(self, cost_of: frozenset[int] | None, change: Change) -> _Priced:
        known = self._effects.get((id(change), cost_of))
        if known is not None:
            return known
        present = self.with_settings(**change.presupposes) if change.presupposes else self
        changed = present.after(change)
        if change.sizes_before:
            present = present.after(Change(change.sizes_before))
        estimates = [
            (present.estimate(own), changed.estimate(other))
            for own, other in zip(present.scenarios, changed.scenarios, strict=True)
        ]
        gains_us = [
            before.times_by_op_us - after.times_by_op_us / change.samples for before, after in estimates
        ]
        concerned = cost_of
        if concerned is None:
            concerned = frozenset(
                index - 1 for gain_us in gains_us for index in gain_us.nonzero()[0].tolist()
            )
        per_gpu: dict[str, GpuEffect] = {}
        own_gain_percent = []
        for (before, after), by_op_us in zip(estimates, gains_us, strict=True):
            gain_us = before.step_time_us - after.step_time_us / change.samples
            own_us = float(by_op_us[[index + 1 for index in concerned]].sum())
            priced = gpu_effect(before, concerned, gain_us)
            per_gpu[before.gpu.id] = replace(
                priced,
                elsewhere_us=_elsewhere(before, by_op_us, concerned),
                felt_us=_felt_us(before, after, change.samples),
            )
            own_gain_percent.append(before.percent_of_step(own_us))
        effect = Effect(per_gpu=per_gpu, op_indices=tuple(sorted(concerned - {-1})))
        found = self._effects[id(change), cost_of] = _Priced(change, effect, tuple(own_gain_percent))
        return found

    def parts_of(self, group: DimGroup) -> int:
        """Over how many GPUs tensor parallelism splits a dim, so that only a part of it is in one product."""
        parts = self.settings.tensor_parallel
        return parts if split_over(self.graph, parts).splits(group) else 1

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
        """The line that makes the layer, if the op's location only calls a library or a helper."""
        site = op.construct_library_site if op.construct_site else op.call_library_site
        if site is None:
            return ()
        return (Related(self._at(site, op.module_path), "the line that constructs the layer"),)

    def root_location(self) -> Location:
        """Where the model is defined, for findings about the whole model."""
        return self._at(self.graph.root_site, "")

    def _at(self, site: Site | None, module_path: str) -> Location:
        known = site or Site(self.target.rsplit(":", 1)[0], 1)
        return Location(path=known.path, line=known.line, module_path=module_path or None)

    def with_settings(self, **changes: Any) -> GraphContext:
        """The same graph under other settings; prices and coupled dims, which do not depend on them, are
        shared."""
        if all(getattr(self.settings, name) == value for name, value in changes.items()):
            return self
        settings = replace(self.settings, **changes)
        context = GraphContext(self.graph, settings, self.target, self._estimates)
        if "dims" in self.__dict__:
            context.__dict__["dims"] = self.dims
        return context
