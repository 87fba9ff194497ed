"""What a source rule sees: one program, what it does, and answers about it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from tclint.config.settings import Settings
from tclint.core.finding import Location, Related
from tclint.source.project.requirements import may_run
from tclint.source.project.test_paths import is_test_path
from tclint.source.questions.attentions import Attentions
from tclint.source.questions.autocasts import Autocasts
from tclint.source.questions.batches import Batches
from tclint.source.questions.cells import Cells
from tclint.source.questions.devices import Devices
from tclint.source.questions.dtypes import Dtypes
from tclint.source.questions.float32 import Float32
from tclint.source.questions.flow import Flow
from tclint.source.questions.gradients import Gradients
from tclint.source.questions.layouts import Layouts
from tclint.source.questions.losses import Losses
from tclint.source.questions.networks import Networks
from tclint.source.questions.optimizers import Optimizers
from tclint.source.questions.projections import Projections
from tclint.source.questions.recording import Recording
from tclint.source.questions.scaled_steps import ScaledSteps
from tclint.source.questions.sizes import Sizes
from tclint.source.questions.steps import Steps
from tclint.source.questions.switches import Switches
from tclint.source.questions.waits import Waits
from tclint.source.questions.weights import Weights
from tclint.source.run.facts import Facts
from tclint.source.run.program import Program
from tclint.source.run.record import Record
from tclint.source.run.values import NONE, Event, Place, Setting, Thing, Value, options_of
from tclint.source.syntax.notebooks import cell_of, is_notebook
from tclint.source.syntax.positions import Span


@dataclass
class SourceContext:
    """One program under the run's settings: rules ask what it does."""

    run: Program
    """A script with the files that it reads, run with abstract values."""
    settings: Settings
    silences: list[tuple[Event, str]] = field(default_factory=list, repr=False)
    """What rules looked at and said nothing of, and why: `tclint explain CODE --at FILE:LINE` shows it."""

    @property
    def path(self) -> str:
        """The file that starts the program."""
        return self.run.file.path

    @property
    def record(self) -> Record:
        """What the program does, in order."""
        return self.run.record

    @property
    def facts(self) -> Facts:
        """What follows from that."""
        return self.run.facts

    @cached_property
    def gradients(self) -> Gradients:
        """How gradients are made, scaled and changed."""
        return Gradients(self.run.facts)

    @cached_property
    def autocasts(self) -> Autocasts:
        """Under which autocast contexts things are computed."""
        return Autocasts(self.run.facts)

    @cached_property
    def weights(self) -> Weights:
        """Which dtype the weights of trained models have."""
        return Weights(self.gradients, self.autocasts)

    @cached_property
    def scaled_steps(self) -> ScaledSteps:
        """Which calls of scalers belong together, and in which order they come."""
        return ScaledSteps(self.gradients)

    @cached_property
    def flow(self) -> Flow:
        """Which operations read what which operations give."""
        return Flow(self.run.facts)

    @cached_property
    def dtypes(self) -> Dtypes:
        """Which dtypes tensors have."""
        return Dtypes(self.flow, self.autocasts)

    @cached_property
    def losses(self) -> Losses:
        """What losses are computed from."""
        return Losses(self.flow, self.gradients, self.autocasts)

    @cached_property
    def layouts(self) -> Layouts:
        """Which memory formats tensors and modules are converted to."""
        return Layouts(self.flow, self.autocasts)

    @cached_property
    def attentions(self) -> Attentions:
        """Where attention is written out."""
        return Attentions(self.flow)

    @cached_property
    def cells(self) -> Cells:
        """Which recurrent cells run in loops over time."""
        return Cells(self.flow)

    @cached_property
    def projections(self) -> Projections:
        """Which linear layers read the same tensor."""
        return Projections(self.flow)

    @cached_property
    def networks(self) -> Networks:
        """What modules are made of."""
        return Networks(self.flow)

    def lints(self, event: Event) -> bool:
        """Whether an event stands in a file that is linted, rather than in one that it calls."""
        return event.place.file.path in self.run.within

    def concerns(self, event: Event) -> bool:
        """Whether a linted file, which is no test, says what an event does: itself, or by what it makes a
        framework do."""
        is_said = self.lints(event) or event.place.file.is_library
        return is_said and not is_test_path(self._place(event).file.path)

    def is_shown(self, event: Event) -> bool:
        """Whether a file that is linted, which is no test, says what an event does: itself, or by what it
        calls."""
        place = self.run.place_of(event)
        return place is not None and not is_test_path(place.file.path)

    @cached_property
    def devices(self) -> Devices:
        """What is on a GPU."""
        return Devices(self.run.facts)

    @cached_property
    def steps(self) -> Steps:
        """What runs in every training step."""
        return Steps(self.run.facts)

    @cached_property
    def float32(self) -> Float32:
        """Which trainings compute in float32 because nobody chose anything else."""
        return Float32(
            self.autocasts,
            self.devices,
            self.networks,
            self.steps,
            self.run.files,
            self.run.is_configuration,
        )

    @cached_property
    def switches(self) -> Switches:
        """Which run-time settings of torch the program changes."""
        return Switches(self.run.facts)

    @cached_property
    def batches(self) -> Batches:
        """Which loaders feed training, and how their batches reach the GPU."""
        return Batches(self.run.facts, self.devices, self.steps)

    @cached_property
    def optimizers(self) -> Optimizers:
        """What optimizers update."""
        return Optimizers(self.run.facts, self.flow)

    @cached_property
    def recording(self) -> Recording:
        """Which calls of networks keep what no backward pass reads."""
        return Recording(self.flow, self.autocasts, self.optimizers, self.steps)

    @cached_property
    def sizes(self) -> Sizes:
        """Whether inputs keep their size from step to step."""
        return Sizes(self.run.facts, self.batches, self.networks)

    @cached_property
    def waits(self) -> Waits:
        """Where the CPU waits for the GPU."""
        return Waits(self.run.facts, self.devices, self.steps)

    def at(self, event: Event, thing: Thing | None = None, option: str = "") -> Location:
        """Where this file says what an event does.

        Args:
            thing: what it made, with an option that the finding is about: where a configuration file sets
            that.
        """
        said = thing.fields.get("@said") if thing is not None else None
        values = [
            *(item.fields.get(("item", option)) for item in self.facts.things(said)),
            thing.fields.get(option) if thing is not None else None,
            event.arguments.get(option),
        ]
        place = self._set_at(values) or self._place(event)
        return Location(place.file.path, *place.file.spans()[place.node_id])

    def set_by(self, value: Value | None, option: str) -> tuple[Related, ...]:
        """Where files that a script reads, or commands that start it, set an option of a thing."""
        options = (thing.fields.get(option, NONE) for thing in self.facts.things(value))
        return tuple(dict.fromkeys(item for given in options for item in self.said_in(given)))

    def said_in(self, value: Value) -> tuple[Related, ...]:
        """Where such files and commands give a value."""
        places = (
            choice.place
            for choice, _ in options_of(value)
            if isinstance(choice, Setting) and choice.place.file is not self.run.file
        )
        return tuple(self.also(place, "set here") for place in dict.fromkeys(places))

    def _set_at(self, values: Iterable[Value | None]) -> Place | None:
        """Where a linted configuration file sets one of some values."""
        return next(
            (
                option.place
                for value in values
                for item, _ in (options_of(value) if value is not None else ())
                for option in (item, item.fields.get("[]") if isinstance(item, Thing) else None)
                if isinstance(option, Setting) and option.place.file.path in self.run.within
            ),
            None,
        )

    def _place(self, event: Event) -> Place:
        if event.kind in ("set", "switch") and (place := self._set_at(event.arguments.values())):
            return place
        place = self.run.place_of(self._settings_of(event))
        if place is None:
            place = next(place for place in reversed(event.places) if not place.file.is_library)
        return place

    def _settings_of(self, event: Event) -> Event:
        """What a framework makes by its arguments is said where these are given."""
        if event.kind == "make" and event.place.file.is_library:
            for thing in self.facts.things(event.result):
                for settings in self.facts.things(thing.fields.get("@settings")):
                    if settings.made is not None and settings.made.places[0].file is self.run.file:
                        return settings.made
        return event

    def skip(self, event: Event, why: str) -> None:
        """Say why a rule is silent about something that it looked at, as the end of a sentence: 'it ...'."""
        self.silences.append((event, why))

    def where(self, event: Event, beside: Event | None = None) -> str:
        """How a message names the line of an event: 'line 12', 'engine.py:12', 'line 3 of cell 7'.

        Args:
            beside: the event that the message is about; without it the file is this one.
        """
        at = self.at(event)
        if is_notebook(at.path):
            return "line {1} of cell {0}".format(*cell_of(self._place(event).file.lines(), at.line))
        file = self.path if beside is None else self.at(beside).path
        return f"line {at.line}" if at.path == file else f"{os.path.basename(at.path)}:{at.line}"

    def code(self, event: Event, limit: int = 80) -> str:
        """The code of an event on one line; of what a framework does, the call that makes it."""
        return _code_of(self._place(event) if event.place.file.is_library else event.place, limit)

    def shown(self, event: Event, limit: int = 80) -> str:
        """The code on one line by which the linted files say what an event does."""
        return _code_of(self._place(event), limit)

    def also(self, event: Event | Place, message: str) -> Related:
        """An event, or a call that led to one, that a finding rests on; shown in whichever file it stands."""
        place = event.place if isinstance(event, Event) else event
        if place.file.is_library:
            assert isinstance(event, Event)
            return Related(self.at(event), message)
        span = place.file.spans()[place.node_id]
        return Related(Location(place.file.path, *span), message)

    def torch_may_be(self, version: tuple[int, ...]) -> bool:
        """Whether the project's requirement files allow this torch version or a newer one."""
        return may_run(self.path, version)


def _code_of(place: Place, limit: int) -> str:
    return excerpt_of(place.file.lines(), place.file.spans()[place.node_id], limit)


def excerpt_of(all_lines: list[str], span: Span, limit: int = 80) -> str:
    """The code of a span on one line, shortened to `limit` characters."""
    lines = all_lines[span.line - 1 : span.end_line]
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    code = " ".join(line.strip() for line in lines)
    return code if len(code) <= limit else code[: limit - 1] + "…"
