"""One fix that changes sizes: which, where they are edited, and what of the project would not go along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tclint.analysis.change import Change, resize
from tclint.analysis.what_if.combined import FixStep
from tclint.analysis.widths.alignment import efficient_multiple, padding_multiples
from tclint.analysis.widths.padding import padded_sizes
from tclint.edits.sizes.candidates import UNRELATED, Place, Sizes
from tclint.edits.sizes.cuts import NoCut, head_name
from tclint.edits.sizes.written import Written
from tclint.engine.fixes.bench import Bench, Made, Refused, change_of, places_of
from tclint.engine.fixes.calls import cut_edits, padded_heads, with_calls
from tclint.engine.fixes.plan import ByHand
from tclint.engine.fixes.search import Found, Search
from tclint.engine.fixes.shown import line_at, places_text
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.dims.realized import realized_sizes
from tclint.graph.ops import Graph

_MOST_GROWTH = 1.5
"""Of a dim that is padded to another multiple than planned."""
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

    def run(self) -> Made | Refused:
        """What is edited with this fix made too; else why it cannot be."""
        dims, proof = self._bench.dims, self._bench.proof
        try:
            planned = self._sizes(change_of(self._step.finding))
        except DimsUnresolved as error:
            return Refused(str(error), self._layers())
        planned_us = self._bench.priced(dims.resize(planned))
        first, searched = "", 0
        for sizes in (planned, *self._others()):
            graph = dims.resize(sizes)
            # Before anything is edited: what the resized graph has as a finding, its edit would have too.
            problem = proof.problem(graph, self._fixed, planned_us)
            first = first or problem or ""
            wanted = realized_sizes(dims, graph) if problem is None else None
            if wanted is None:
                continue
            multiple = efficient_multiple(self._bench.settings.precision) or 1
            search = Search(self._bench.copies, dims, self._made.edits, self._made.sizes, wanted, multiple)
            grows = self._grows(graph)
            look = search.at_layers if grows else search.run
            found = look(places_of(self._step), _pairs(self._made.graph, graph))
            if found is not None:
                return self._judged(found, search.way, planned_us, grows=grows)
            first = first or (
                "its outputs grow, and no argument at the lines of the layers is their size alone"
                if grows
                else "no place in the files that it reads holds the size so that editing it gives the "
                f"planned model ({search.tried} edits tried)"
            )
            searched += 1
            if searched == _MOST_SEARCHED:
                break
        return Refused(
            first or "the resized graph has no sizes that a trace could be compared with", self._layers()
        )

    # -- sizes

    def _sizes(self, change: Change) -> dict[DimGroup, int]:
        """The change beside what is made; where both give a group a size, that one stays.

        Raises:
            DimsUnresolved: they do not fit together.
        """
        sizes = {**dict(change.sizes), **self._made.sizes}
        self._bench.dims.resize(sizes)
        return sizes

    def _others(self) -> Iterator[dict[DimGroup, int]]:
        """Other paddings of the same dims: each to a multiple."""
        change = change_of(self._step.finding)
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

    def _grows(self, graph: Graph) -> bool:
        """Whether the model would return more than it does, or its loss would see more."""
        base, traced = self._bench.context.graph, self._made.graph
        shapes, were = ([spec.shape for spec in one.outputs] for one in (graph, traced))
        known = {op.index for op, _ in padded_heads(base, traced)}
        return shapes != were or any(op.index not in known for op, _ in padded_heads(base, graph))

    # -- judgement

    def _judged(
        self, found: Found, way: frozenset[str], planned_us: Mapping[str, float], *, grows: bool
    ) -> Made | Refused:
        bench, made = self._bench, self._made
        sizes = {group: size for group, size in found.sizes.items() if size != group.size}
        if not found.is_exact:
            # What follows from an edited size has become another one than planned: so has the step.
            planned_us = bench.priced(bench.dims.resize(sizes))
            before_us = bench.priced(bench.dims.resize(made.sizes) if made.sizes else bench.context.graph)
            if bench.gain_percent(before_us, planned_us) < bench.settings.min_gain_percent:
                return self._refused(
                    "with all sizes that follow from the edited one, it gains too little", found
                )
        following = Made(
            (*made.edits, *found.edits), sizes, found.graph, self._fixed, planned_us, made.cuts, made.cuts_us
        )
        problem = bench.proof.problem(found.graph, self._fixed, planned_us)
        problem = problem or (None if grows else self._does_not_go_along(found, way))
        if problem is not None:
            return self._refused(problem, found)
        if not grows:
            return following
        try:
            self._check_layers(found)
            new = cut_edits(bench.context.graph, found.graph, found.trial, bench.texts, bench.unrun)
        except NoCut as error:
            return self._refused(f"{self._growth(found.graph)}, which cannot be cut back: {error}", found)
        cut = with_calls(bench, following, tuple(dict.fromkeys((*made.cuts, *new))))
        if isinstance(cut, str):
            return self._refused(f"{self._growth(found.graph)}, which cannot be cut back: {cut}", found)
        return cut

    def _growth(self, graph: Graph) -> str:
        shapes, were = ([spec.shape for spec in one.outputs] for one in (graph, self._made.graph))
        shown = ", ".join(str(list(new)) for new, old in zip(shapes, were, strict=True) if new != old)
        return f"the model would return {shown}" if shown else "its loss would see more"

    def _refused(self, reason: str, found: Found) -> Refused:
        """With the places that hold the sizes."""
        items = []
        for item in found.trial:
            path, line = item.written.path, item.written.start[0]
            items.append(ByHand(f"{item.written.text} -> {item.new}", *line_at(path, line)))
        return Refused(reason, tuple(items))

    def _layers(self) -> tuple[ByHand, ...]:
        """The place that may hold a size, if there is one; else the lines of the layers, a size at a time."""
        lines: dict[tuple[int, int], dict[Place, None]] = {}
        for group, size in change_of(self._step.finding).sizes:
            if group.size != size:
                sites = (*group.sites, *(site for root in group.roots for site in root.sites))
                lines.setdefault((group.size, size), {}).update(
                    dict.fromkeys((site.path, site.line) for site in sites)
                )
        sizes = Sizes(self._bench.texts)
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
        numbers = [
            item.written for item in found.trial if item.written.kind == "number" and item.distance > 0.0
        ]
        overridden = [(written, unrun.given_again(written)) for written in numbers]
        for written, places in overridden:
            if places and len(numbers) > 1:
                return f"{written.name} alone is given at {places_text(places)}, and others change with it"
        self.notes = (
            *(note for written in numbers for note in self._also_read(written, way)),
            *(
                ByHand(f"gives {written.name} itself, which stays as it is", *line_at(*place))
                for written, places in overridden
                for place in places
            ),
        )
        return None

    def _also_read(self, written: Written, way: frozenset[str]) -> Iterator[ByHand]:
        for place in self._bench.unrun.readers(written, way):
            yield ByHand(f"also reads {written.name}", *line_at(*place))

    def _check_layers(self, found: Found) -> None:
        """That nobody reads the weight or the size of a layer that grows.

        Raises:
            NoCut: somebody does.
        """
        shapes = {item.name: item.shape for item in self._made.graph.parameters}
        names = {
            head_name(item.name.rpartition(".")[0])
            for item in found.graph.parameters
            if item.shape != shapes[item.name]
        }
        for name in sorted(names - {""}):
            for owner in self._bench.unrun.owners_of(name):
                places = self._bench.unrun.uses_of(name, owner)
                if places:
                    raise NoCut(f"{name} is used at {places_text(places)} too")


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
