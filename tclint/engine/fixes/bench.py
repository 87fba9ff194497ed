"""What every fix of one target is made and judged with, and what has been made so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tclint.analysis.change import Change, together
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.combined import FixStep, change_of
from tclint.config.settings import Settings
from tclint.core.finding import Edit, Finding
from tclint.edits.sizes.candidates import FileLine
from tclint.edits.sizes.unrun import UnrunCode
from tclint.engine.fixes.copies import Copies
from tclint.engine.fixes.files import contents_of, texts_of
from tclint.engine.fixes.plan import ByHand
from tclint.engine.fixes.proof import Proof, step_times_us
from tclint.engine.model_pass import as_priced
from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.ops import Graph


@dataclass(frozen=True)
class Made:
    """What is edited so far."""

    edits: tuple[Edit, ...]
    sizes: Mapping[DimGroup, int]
    graph: Graph
    """As it is traced with the edits."""
    step_us: Mapping[str, float]
    """The step of that trace, by GPU."""
    fixed: tuple[Finding, ...] = ()
    cuts_us: Mapping[str, float] = field(default_factory=dict)
    """What cutting padded outputs back takes of it."""
    changes: tuple[Change, ...] = ()
    """Those that change no size."""


@dataclass(frozen=True)
class Refused:
    """Why a fix is not edited, and what is left to do by hand."""

    reason: str
    by_hand: tuple[ByHand, ...] = ()


@dataclass
class StepOutcome:
    """What came of one step."""

    step: FixStep
    before: Made
    after: Made
    """The same where it is not edited."""
    reason: str = ""
    number: int = 0
    """In the order in which they are edited."""
    scales: tuple[Edit, ...] = ()
    """Edits of attention whose heads it changes."""
    by_hand: tuple[ByHand, ...] = ()
    notes: tuple[ByHand, ...] = ()
    is_given_elsewhere: bool = False
    """Whether code that the trace did not run gives the size a value of its own."""


@dataclass(frozen=True)
class Bench:
    """A target, its trace, its copies, and what an edited copy has to be."""

    target: str
    settings: Settings
    context: GraphContext
    copies: Copies
    proof: Proof
    unrun: UnrunCode

    @property
    def dims(self) -> CoupledDims:
        return self.context.dims

    @property
    def texts(self) -> dict[str, str]:
        """The files that may be edited, by absolute path."""
        return texts_of(self.copies.editable)

    def resized(self, sizes: Mapping[DimGroup, int]) -> Graph:
        """The model at other sizes, as predicted.

        Raises:
            DimsUnresolved: they do not fit together.
        """
        return self.dims.resize(dict(sizes)) if sizes else self.context.graph

    def traced(self, edits: Sequence[Edit]) -> Graph | str:
        """The target with edits made, as reports price it; else why there is none."""
        contents = contents_of(self.texts, tuple(edits))
        if contents is None:
            return "it edits the same text as a fix before it: write that one, then run tclint fix again"
        [result] = self.copies.trace([contents])
        return str(result.error) if result.graph is None else self.copies.as_priced(result.graph)

    def priced(self, graph: Graph, changes: Sequence[Change] = ()) -> dict[str, float]:
        """The predicted step, by GPU, with changes made that are none of sizes."""
        as_is = GraphContext(graph, self.context.settings, self.target)
        return step_times_us(as_is.after(replace(together(changes), sizes=())))

    def expected(self, made: Made, graph: Graph, changes: Sequence[Change]) -> dict[str, float]:
        """The step by GPU, once what is made has these sizes and changes: what they do to the traced step.

        Args:
            made: so far.
            graph: resized, as predicted.
            changes: all of them, those that are made included.
        """
        before_us = self.priced(self.resized(made.sizes), made.changes)
        after_us = self.priced(graph, changes)
        return {gpu: time + after_us[gpu] - before_us[gpu] for gpu, time in made.step_us.items()}

    def priced_as_is(self, graph: Graph) -> dict[str, float]:
        """A traced step, by GPU, as its own calls of torch.compile have it."""
        graph, settings = as_priced(graph, self.settings)
        return step_times_us(GraphContext(graph, settings, self.target))

    def gain_percent(self, before_us: Mapping[str, float], after_us: Mapping[str, float]) -> float:
        """The gain as a share of the present step, on the GPU where it is largest."""
        return max(
            100.0 * (before_us[gpu] - after_us[gpu]) / time for gpu, time in self.proof.step_time_us.items()
        )


def places_of(step: FixStep) -> set[FileLine]:
    """The lines that make layers of the changing sizes."""
    groups = [root for group, _ in change_of(step.finding).sizes for root in (group, *group.roots)]
    places = {(site.path, site.line) for group in groups for site in group.sites}
    located = (step.finding.location, *(item.location for item in step.finding.related))
    return places | {(location.path, location.line) for location in located}
