"""One fix that changes sizes: which, where they are edited, and what of the project would not go along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tclint.analysis.change import Change, resize
from tclint.analysis.what_if.combined import FixStep, change_of
from tclint.analysis.widths.alignment import efficient_multiple, padding_multiples
from tclint.analysis.widths.padding import padded_sizes
from tclint.core.finding import Edit
from tclint.edits.sizes.candidates import UNRELATED, FileLine, WrittenSizes
from tclint.edits.sizes.cuts import NoCut, head_name
from tclint.edits.sizes.layers import layer_arguments, sets_of
from tclint.engine.fixes.bench import Bench, Made, Refused, places_of
from tclint.engine.fixes.calls import cut_edits, other_than_cut
from tclint.engine.fixes.plan import ByHand
from tclint.engine.fixes.search import Found, Search, Trial, edits_of
from tclint.engine.fixes.shown import line_at, places_text
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.dims.outputs import padded_heads
from tclint.graph.dims.realized import changed_factors, realized_sizes
from tclint.graph.ops import Graph

_MOST_GROWTH = 1.5
"""How far a dim may grow when it is padded to another multiple than planned."""
_SHARED = "what holds the size makes outputs grow as well"
_MOST_TRIALS = 12
_MOST_SEARCHED = 2
"""Sizes of one finding whose edits are searched for."""


class Resizing:
    """Edits of one fix that changes sizes, beside what is made.

    Args:
        bench: the target.
        step: the fix.
        made: before it.
    """

    def __init__(self, bench: Bench, step: FixStep, made: Made) -> None:
        self._bench, self._step, self._made = bench, step, made
        self._fixed = (*made.fixed, step.finding)
        self.notes: tuple[ByHand, ...] = ()
        """What else of the project has to do with the edits."""
        self.is_given_elsewhere = False

    def run(self) -> Made | Refused:
        """What is edited with this fix made too; else why it cannot be."""
        bench, first, searched = self._bench, "", 0
        try:
            planned = self._sizes(change_of(self._step.finding))
        except DimsUnresolved as error:
            return Refused(str(error), self._layers())
        for sizes in (planned, *self._others()):
            graph = bench.resized(sizes)
            # Before anything is edited: what the resized graph has as a finding, its edit would have too.
            problem = bench.proof.problem(graph, self._fixed, self._made.step_us)
            if problem is None:
                result = self._in_two(sizes) if self.grows else self._searched(graph)
                if not isinstance(result, str):
                    return result
                problem, searched = result, searched + 1
            first = first or problem
            if searched == _MOST_SEARCHED:
                break
        return Refused(first, self._layers())

    @property
    def grows(self) -> bool:
        """Whether the model would return more than it does, or its loss would see more."""
        return self._grows(dict(change_of(self._step.finding).sizes))

    def _grows(self, sizes: Mapping[DimGroup, int]) -> bool:
        base = self._bench.context.graph
        try:
            graph = self._bench.resized({**sizes, **self._made.sizes})
            before = self._bench.resized(self._made.sizes)
        except DimsUnresolved:
            return False
        known = {op.index for op, _ in padded_heads(base, before)}
        return [spec.shape for spec in graph.outputs] != [spec.shape for spec in before.outputs] or any(
            op.index not in known for op, _ in padded_heads(base, graph)
        )

    # -- sizes

    def _sizes(self, change: Change) -> dict[DimGroup, int]:
        """The change beside what is made; where both give a group a size, that one stays.

        Raises:
            DimsUnresolved: they do not fit together.
        """
        sizes = {**dict(change.sizes), **self._made.sizes}
        self._bench.resized(sizes)
        return sizes

    def _others(self) -> Iterator[dict[DimGroup, int]]:
        """What keeps the architecture, where the change does not; other paddings of the same dims."""
        change = change_of(self._step.finding)
        if change.instead is not None:
            with suppress(DimsUnresolved):
                yield self._sizes(change.instead)
            change = change.instead
        groups = [group for group, size in change.sizes if size > group.size]
        seen = [dict(change.sizes)]
        for multiple in padding_multiples(self._bench.settings.precision):
            sizes = padded_sizes(self._bench.context, groups, multiple)
            if sizes in seen or any(size > _MOST_GROWTH * group.size for group, size in sizes.items()):
                continue
            seen.append(sizes)
            try:
                yield self._sizes(resize(sizes))
            except DimsUnresolved:
                continue

    # -- edits of what holds a size

    def _found(self, graph: Graph) -> tuple[Found, frozenset[str]] | str:
        """The edits of places that hold the sizes of a resized graph, and names that lead to its layers."""
        bench, made = self._bench, self._made
        wanted = realized_sizes(bench.dims, graph)
        if wanted is None:
            return "a trace would not show all of the new sizes, so no edit can be proved"
        multiple = efficient_multiple(bench.settings.precision) or 1
        search = Search(bench.copies, bench.dims, made.edits, made.sizes, wanted, multiple)
        places = places_of(self._step) | self._uses_of_heads()
        found = search.run(places, _pairs(bench.resized(made.sizes), graph))
        return (found, search.way) if found is not None else search.why_not()

    def _uses_of_heads(self) -> set[FileLine]:
        """Where heads are told apart, if their number changes: no line that makes a layer may hold it."""
        change, ops = change_of(self._step.finding), self._bench.context.graph.ops
        if all(size >= group.size for group, size in change.sizes):
            return set()
        sites = {
            ops[index].call_site
            for group, _ in change.sizes
            for index in group.op_indices
            if ops[index].kind == "view"
        }
        return {(site.path, site.line) for site in sites if site is not None}

    def _searched(self, graph: Graph) -> Made | Refused | str:
        """What is made with such edits; a sentence where none are found."""
        bench, made = self._bench, self._made
        result = self._found(graph)
        if isinstance(result, str):
            return result
        found, way = result
        sizes = {group: size for group, size in found.sizes.items() if size != group.size}
        step_us = bench.priced_as_is(found.graph)
        # What follows from an edited size has become another one than planned: so has the step.
        gain, least = bench.gain_percent(made.step_us, step_us), bench.settings.min_gain_percent
        if not found.is_exact and gain < least:
            reason = f"with the sizes that follow from this one, it gains {gain:.2g} %, less than {least:g} %"
            return self._refused(reason, found.trial)
        problem = _SHARED if self._grows(found.sizes) else None
        problem = problem or bench.proof.problem(found.graph, self._fixed, made.step_us)
        problem = problem or self._does_not_go_along(found, way)
        if problem is not None:
            return self._refused(problem, found.trial)
        expected_us = bench.expected(made, bench.resized(sizes), made.changes)
        self.notes += tuple(map(ByHand, bench.proof.told(found.graph, expected_us)))
        self.notes += tuple(_follow(bench.resized(sizes), found.graph))
        return Made((*made.edits, *found.edits), sizes, found.graph, step_us, self._fixed)

    # -- edits of layers whose outputs are cut back

    def _in_two(self, sizes: Mapping[DimGroup, int]) -> Made | Refused | str:
        """What only resizes is edited where it is held, what makes outputs grow at its layers."""
        made = self._made
        new = {group: size for group, size in sizes.items() if group not in made.sizes}
        # An embedding of the same vocabulary gets its size where the head gets it.
        pairs = {(group.size, size) for group, size in new.items() if self._grows({group: size})}
        grown = {group: size for group, size in new.items() if (group.size, size) in pairs}
        if len(grown) == len(new):
            return self._cut_back(made, sizes)
        result = self._found(
            self._bench.resized({group: size for group, size in sizes.items() if group not in grown})
        )
        if isinstance(result, str):
            return result
        found, way = result
        problem = self._does_not_go_along(found, way)
        if problem is not None or self._grows(found.sizes):
            return self._refused(problem or _SHARED, found.trial)
        found_sizes = {group: size for group, size in found.sizes.items() if size != group.size}
        step_us = self._bench.priced_as_is(found.graph)
        held = Made((*made.edits, *found.edits), found_sizes, found.graph, step_us)
        self.notes += tuple(_follow(self._bench.resized(found_sizes), found.graph))
        try:
            return self._cut_back(held, {**found_sizes, **grown})
        except DimsUnresolved as error:
            return self._refused(str(error), found.trial)

    def _cut_back(self, made: Made, sizes: Mapping[DimGroup, int]) -> Made | Refused | str:
        """The edits of layers' arguments, and of their calls; a sentence where there are none.

        The arguments alone are no model to trace: what its own code makes of the outputs needs the cut.
        """
        bench, graph = self._bench, self._bench.resized(sizes)
        base, texts = bench.context.graph, bench.texts
        problem = ""
        trials: list[tuple[Trial, tuple[Edit, ...]]] = []
        arguments = layer_arguments(texts, places_of(self._step), _pairs(bench.resized(made.sizes), graph))
        for trial in sets_of(arguments):
            try:
                trials.append((trial, cut_edits(base, graph, trial, texts, bench.unrun)))
            except NoCut as error:
                problem = problem or str(error)
        trials = trials[:_MOST_TRIALS]
        uses = self._uses_of_layers(made, graph) if trials else ""
        if uses:
            trials, problem = [], uses
        for trial, cuts in trials:
            edits = tuple(dict.fromkeys((*made.edits, *edits_of(trial), *cuts)))
            traced = bench.traced(edits)
            if isinstance(traced, str):
                problem = problem or traced
                continue
            other = other_than_cut(base, graph, traced)
            if other is not None:
                problem = problem or f"with the cut, {other}"
                continue
            return self._judged_cut(trial, edits, sizes, graph, traced)
        problem = problem or f"no argument at {places_text(sorted(places_of(self._step)))} is the size alone"
        return f"{self._growth(graph)}, which cannot be cut back: {problem}"

    def _judged_cut(
        self,
        trial: Trial,
        edits: tuple[Edit, ...],
        sizes: Mapping[DimGroup, int],
        graph: Graph,
        traced: Graph,
    ) -> Made | Refused:
        # All other ops are as predicted: what the step takes longer is what the cuts take.
        bench = self._bench
        predicted_us, traced_us = bench.priced(graph), bench.priced_as_is(traced)
        cuts_us = {gpu: time - predicted_us[gpu] for gpu, time in traced_us.items()}
        before_us = self._made.step_us
        problem = bench.proof.problem(traced, self._fixed, before_us)
        if problem is None and bench.gain_percent(before_us, traced_us) < bench.settings.min_gain_percent:
            problem = "cutting the outputs back takes as much time as padding them gains"
        if problem is not None:
            return self._refused(problem, trial)
        told = bench.proof.told(traced, {gpu: predicted_us[gpu] + us for gpu, us in cuts_us.items()})
        self.notes += tuple(map(ByHand, told))
        return Made(edits, dict(sizes), traced, traced_us, self._fixed, cuts_us)

    def _growth(self, graph: Graph) -> str:
        shapes, were = ([spec.shape for spec in one.outputs] for one in (graph, self._bench.context.graph))
        shown = ", ".join(str(list(new)) for new, old in zip(shapes, were, strict=True) if new != old)
        return f"the model would return {shown}" if shown else "its loss would see more"

    def _refused(self, reason: str, trial: Trial) -> Refused:
        """With the places that hold the sizes."""
        items = []
        for item in trial:
            path, line = item.written.path, item.written.start[0]
            items.append(ByHand(f"{item.written.text} -> {item.new}", *line_at(path, line)))
        return Refused(reason, tuple(items))

    def _layers(self) -> tuple[ByHand, ...]:
        """The place that may hold a size, if there is one; else the lines of the layers, a size at a time."""
        lines: dict[tuple[int, int], dict[FileLine, None]] = {}
        for group, size in self._written_sizes():
            if group.size != size:
                sites = (*group.sites, *(site for root in group.roots for site in root.sites))
                lines.setdefault((group.size, size), {}).update(
                    dict.fromkeys((site.path, site.line) for site in sites)
                )
        sizes = WrittenSizes(self._bench.texts)
        found = []
        for (old, new), places in lines.items():
            candidates = sizes.candidates(set(places), {(old, new)})
            near = [it for it in candidates if it.distance < UNRELATED and it.written.kind == "number"]
            if len(near) == 1:
                found.append(
                    ByHand(f"{old} -> {new}", *line_at(near[0].written.path, near[0].written.start[0]))
                )
            elif len(places) == 1:
                [place] = places
                found.append(ByHand(f"{old} -> {new}", *line_at(*place)))
            elif places:
                found.append(ByHand(f"{old} -> {new}, which reaches the layers at {places_text(places)}"))
        return tuple(found)

    def _written_sizes(self) -> list[tuple[DimGroup, int]]:
        """What changes, with the layers' own sizes that changing products are made of: 50 of 50 * 5 * 5."""
        sizes = dict(change_of(self._step.finding).sizes)
        try:
            parts = self._bench.dims.sized(self._bench.dims.new_values(sizes))
        except DimsUnresolved:
            parts = {}
        shapes = {item.name: item.shape for item in self._bench.context.graph.parameters}
        own = {
            group: size
            for group, size in parts.items()
            if group.size > 1
            and any(group.size == shapes[name][axis] for name, axis in group.parameters if name in shapes)
        }
        return list({**own, **sizes}.items())

    # -- the rest of the project

    def _does_not_go_along(self, found: Found, way: frozenset[str]) -> str | None:
        """What code that the trace did not run says itself, and would have to say otherwise."""
        unrun = self._bench.unrun
        edited = {(item.written.path, item.written.start[0]) for item in found.trial}
        old = {
            group.size
            for group, size in found.sizes.items()
            if size != self._made.sizes.get(group, group.size)
        }
        again = unrun.said_again(old, edited.__contains__)
        if again:
            return f"the size is also written at {places_text(again)}, which no trace reaches"
        overwritten = unrun.overwritten(self._layers_that_change(self._made, found.graph))
        if overwritten:
            return f"weights of the old size are put into the layers at {places_text(overwritten)}"
        numbers = [
            item.written for item in found.trial if item.written.kind == "number" and item.distance > 0.0
        ]
        overridden = [(written, unrun.given_again(written)) for written in numbers]
        for written, places in overridden:
            # A call that gives all of them is left as it is.
            alone = [place for place in places if any(place not in others for _, others in overridden)]
            if alone:
                return f"{written.name} alone is given at {places_text(alone)}, and others change with it"
        self.is_given_elsewhere = any(places for _, places in overridden)
        notes: list[ByHand] = []
        for written, places in overridden:
            readers = unrun.readers(written, way)
            particular = [place for place, is_particular in readers.items() if is_particular]
            if particular:
                return f"{written.name} is read at {places_text(particular)}, where another size may not do"
            notes += [ByHand(f"also reads {written.name}", *line_at(*place)) for place in sorted(readers)]
            notes += [
                ByHand(f"gives {written.name} itself, which stays as it is", *line_at(*place))
                for place in places
            ]
        self.notes = tuple(notes)
        return None

    def _layers_that_change(self, made: Made, graph: Graph) -> set[str]:
        """The attributes by which classes have layers whose parameters get other shapes."""
        shapes = {item.name: item.shape for item in self._bench.resized(made.sizes).parameters}
        changed = (item.name for item in graph.parameters if item.shape != shapes[item.name])
        return {head_name(name.rpartition(".")[0]) for name in changed} - {""}

    def _uses_of_layers(self, made: Made, graph: Graph) -> str:
        """Who else reads the weight or the size of a layer that grows; '' where nobody does."""
        unrun = self._bench.unrun
        for name in sorted(self._layers_that_change(made, graph)):
            owners = unrun.owners_of(name)
            places = [place for owner in owners for place in unrun.uses_of(name, owner, calls=False)]
            if places:
                return f"{name} is used at {places_text(places)} too"
        return ""


def _follow(predicted: Graph, traced: Graph) -> dict[ByHand, None]:
    """Numbers that the model computes with and that were made of an edited size."""
    return dict.fromkeys(
        ByHand(
            f"{op.name} takes {new:.4g} here, {old:.4g} before: it is made of the size",
            *line_at(op.call_site.path, op.call_site.line),
        )
        for op, old, new in changed_factors(predicted, traced)
        if op.call_site is not None
    )


def _pairs(before: Graph, after: Graph) -> set[tuple[int, int]]:
    """Old and new sizes of all tensors that change."""
    found: set[tuple[int, int]] = set()
    for old, new in zip(before.parameters, after.parameters, strict=True):
        found.update(zip(old.shape, new.shape, strict=True))
    for mine, op in zip(before.ops, after.ops, strict=True):
        if mine is not op:
            for ours, theirs in zip((*mine.inputs, *mine.outputs), (*op.inputs, *op.outputs), strict=True):
                found.update(zip(ours.shape, theirs.shape, strict=True))
    return {(old, new) for old, new in found if old != new}
