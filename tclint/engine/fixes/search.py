"""The edits that give a model other sizes: places that may hold them, edited, traced and compared.

Nothing is concluded from the source but where to try first: what holds a size is what changes the traced
shapes as the resized graph says, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from tclint.core.finding import Edit
from tclint.edits.sizes.candidates import UNRELATED, Candidate, FileLine, WrittenSizes
from tclint.engine.fixes.copies import Copies
from tclint.engine.fixes.files import contents_of, texts_of
from tclint.engine.fixes.shown import places_text
from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.dims.realized import realized_sizes
from tclint.graph.ops import Graph

Trial: TypeAlias = "tuple[Candidate, ...]"

_MOST_SINGLE = 14
_MOST_UNRELATED = 8
_MOST_BOUND = 5
"""Candidates that break the build alone, and are tried in pairs."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A trial, and what its trace came to."""

    trial: Trial
    sizes: Mapping[DimGroup, int] | None = None
    """By group; None: it does not run, or is another model."""
    graph: Graph | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A trial, and the sizes that it gives."""

    trial: Trial
    sizes: Mapping[DimGroup, int]
    graph: Graph
    is_exact: bool
    """Whether these are the sizes that were asked for; else they are aligned too, and as large at least."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        return edits_of(self.trial)


class Search:
    """Looks for the edits behind one change of sizes.

    Args:
        copies: traces the target with edited files.
        dims: of the graph as it is.
        made: edits made before, and the contents that they give.
        wanted: the sizes after the change; those of groups that it does not name stay as `present` says.
        present: the sizes before it, with the edits made before.
        multiple: what sizes must be a multiple of where they are not the wanted ones.
    """

    def __init__(
        self,
        copies: Copies,
        dims: CoupledDims,
        made: Sequence[Edit],
        present: Mapping[DimGroup, int],
        wanted: Mapping[DimGroup, int],
        multiple: int,
    ) -> None:
        self._copies, self._dims, self._made = copies, dims, tuple(made)
        self._present, self._wanted, self._multiple = present, wanted, multiple
        self._changing = {group for group, size in wanted.items() if present.get(group, group.size) != size}
        self._texts = texts_of(copies.editable)
        self._known: dict[Trial, TrialOutcome] = {}
        self.tried = 0
        self.way: frozenset[str] = frozenset()
        """Names that lead to the layers, of the last run."""

    def run(self, places: Iterable[FileLine], pairs: Iterable[tuple[int, int]]) -> Found | None:
        """The fewest edits that give the wanted sizes; else those that give other ones as good.

        Args:
            places: lines where layers of the changing sizes are made.
            pairs: old and new sizes, of all that changes.
        """
        sizes, pairs = WrittenSizes(self._texts), set(pairs)
        self.way = sizes.way(set(places))
        candidates = [item for item in sizes.candidates(set(places), pairs) if not self._is_made(item)]
        if any(new < old for old, new in pairs):
            # Expressions are only ever rounded up.
            candidates = [item for item in candidates if item.written.kind == "number"]
        near = [item for item in candidates if item.distance < UNRELATED][:_MOST_SINGLE]
        if self._try([*_singles(near), *_sets(near)]):
            return self._best()
        if self._try(self._unions(near)):
            return self._best()
        far = [item for item in candidates if item not in near][:_MOST_UNRELATED]
        if self._best() is None and self._try([*_singles(far), *self._unions([*near, *far])]):
            return self._best()
        return self._best()

    def why_not(self) -> str:
        """Why the last run found nothing: which lines it edited, nearest first, and what the first led to."""
        singles = [outcome for outcome in self._known.values() if len(outcome.trial) == 1]
        if not singles:
            return "no file that it reads writes the size"
        first, *others = ((it.trial[0].written.path, it.trial[0].written.start[0]) for it in singles)
        why = singles[0].error.rstrip(".") or "other sizes follow from it"
        nor = f"; nor does editing {places_text(others)}" if others else ""
        return f"editing {places_text([first])} does not give the planned model: {why}{nor}"

    def _is_made(self, candidate: Candidate) -> bool:
        written = candidate.written
        return any(
            edit.path == written.path and edit.start < written.end and written.start < edit.end
            for edit in self._made
        )

    # -- trials

    def _try(self, trials: Iterable[Trial]) -> bool:
        """Trace them; whether one gives the wanted sizes."""
        new = []
        for trial in trials:
            if trial and trial not in self._known and trial not in new and not _collide(trial):
                new.append(trial)
        if new:
            contents = [contents_of(self._texts, (*self._made, *edits_of(trial))) for trial in new]
            usable = [index for index, content in enumerate(contents) if content is not None]
            results = self._copies.trace([content for content in contents if content is not None])
            for index, result in zip(usable, results, strict=True):
                self._known[new[index]] = self._judged(new[index], result.graph, str(result.error or ""))
            self.tried += len(usable)
        return any(self._is_exact(outcome) for outcome in self._known.values())

    def _judged(self, trial: Trial, graph: Graph | None, error: str) -> TrialOutcome:
        if graph is None:
            return TrialOutcome(trial, error=error)
        graph = self._copies.as_priced(graph)
        sizes = realized_sizes(self._dims, graph)
        return TrialOutcome(trial, sizes, graph, "" if sizes is not None else "it becomes another model")

    def _is_exact(self, outcome: TrialOutcome) -> bool:
        return (
            outcome.sizes is not None
            and all(outcome.sizes.get(group, group.size) == size for group, size in self._wanted.items())
            and all(
                group in self._wanted or size == self._present.get(group, group.size)
                for group, size in outcome.sizes.items()
            )
        )

    def _is_aligned(self, outcome: TrialOutcome) -> bool:
        """Whether all that should change has become a multiple, and nothing else has lost one."""
        sizes = outcome.sizes
        if sizes is None:
            return False
        signs = {self._sign(group, self._wanted[group]) for group in self._changing}
        for group, size in sizes.items():
            before = self._present.get(group, group.size)
            if size == before and group not in self._changing:
                continue
            if self._sign(group, size) not in signs or (group not in self._changing and group.is_batch):
                return False
            aligned = size % self._multiple == 0 or (group not in self._changing and before % self._multiple)
            if not aligned and self._wanted.get(group) != size:
                return False
        return all(
            sizes.get(group) not in (None, self._present.get(group, group.size)) for group in self._changing
        )

    def _sign(self, group: DimGroup, size: int) -> int:
        before = self._present.get(group, group.size)
        return (size > before) - (size < before)

    def _helps(self, outcome: TrialOutcome) -> bool:
        """Whether some of what should change does, and nothing shrinks."""
        sizes = outcome.sizes
        if sizes is None:
            return False
        grown = [g for g in self._changing if sizes.get(g, g.size) > self._present.get(g, g.size)]
        return bool(grown) and all(
            size >= self._present.get(group, group.size) for group, size in sizes.items()
        )

    def _unions(self, candidates: Sequence[Candidate]) -> list[Trial]:
        alone = {trial[0]: outcome for trial, outcome in self._known.items() if len(trial) == 1}
        helping = [item for item in candidates if item in alone and self._helps(alone[item])]
        bound = [item for item in candidates if item in alone and alone[item].sizes is None]
        here = [item for item in candidates if item.distance == 0.0]
        joined = [
            _without_collisions(part)
            for part in (
                helping,
                bound,
                [*helping, *here],
                [*helping, *bound],
                *([*helping, item] for item in bound[:_MOST_BOUND]),
                *([*helping, *pair] for pair in combinations(bound[:_MOST_BOUND], 2)),
                *(list(pair) for pair in combinations(helping[:_MOST_BOUND], 2)),
            )
        ]
        return [trial for trial in joined if len(trial) > 1]

    def _best(self) -> Found | None:
        exact = [outcome for outcome in self._known.values() if self._is_exact(outcome)]
        chosen = exact or [outcome for outcome in self._known.values() if self._is_aligned(outcome)]
        if not chosen:
            return None

        def cost(outcome: TrialOutcome) -> tuple[int, int, float]:
            assert outcome.sizes is not None
            growth = 0 if exact else sum(outcome.sizes.values())
            return growth, len(outcome.trial), sum(item.distance for item in outcome.trial)

        best = min(chosen, key=cost)
        assert best.sizes is not None
        assert best.graph is not None
        return Found(best.trial, best.sizes, best.graph, bool(exact))


def _singles(candidates: Sequence[Candidate]) -> list[Trial]:
    return [(item,) for item in candidates]


def _sets(candidates: Sequence[Candidate]) -> list[Trial]:
    """Those that stand at the layers together, and those of one name."""
    found = [_without_collisions([item for item in candidates if item.distance == 0.0])]
    for name in dict.fromkeys(item.written.name for item in candidates if item.written.name):
        found.append(_without_collisions([item for item in candidates if item.written.name == name]))
    return [trial for trial in found if len(trial) > 1]


def _without_collisions(candidates: Iterable[Candidate]) -> Trial:
    kept: list[Candidate] = []
    for item in candidates:
        if not any(item.collides(other) for other in kept):
            kept.append(item)
    return tuple(kept)


def _collide(trial: Trial) -> bool:
    return any(one.collides(other) for one, other in combinations(trial, 2))


def edits_of(trial: Trial) -> tuple[Edit, ...]:
    return tuple(
        Edit(item.written.path, item.written.start, item.written.end, item.new)
        for item in sorted(trial, key=lambda item: (item.written.path, item.written.start))
    )
