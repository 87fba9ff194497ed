"""The context of a source rule: one program, its events, and answers to questions about it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tclint.config.settings import Settings
from tclint.core.finding import Location, Related
from tclint.source.project.launchers import KEEP_MASTERS, launcher_with
from tclint.source.project.requirements import may_run
from tclint.source.project.test_paths import is_test_path
from tclint.source.questions.attentions import Attentions
from tclint.source.questions.cells import Cells
from tclint.source.questions.data.batches import Batches
from tclint.source.questions.data.sizes import Sizes
from tclint.source.questions.data.transfers import Transfers
from tclint.source.questions.defaults import Defaults
from tclint.source.questions.devices import Devices
from tclint.source.questions.flow import Flow
from tclint.source.questions.gradients import Gradients
from tclint.source.questions.launches import Launches
from tclint.source.questions.layouts import Layouts
from tclint.source.questions.losses import Losses
from tclint.source.questions.networks import Networks
from tclint.source.questions.optimizers import Optimizers
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.precision.dtypes import Dtypes
from tclint.source.questions.precision.float32 import Float32, Training
from tclint.source.questions.precision.frozen import FrozenNetworks
from tclint.source.questions.precision.quantized import Quantized
from tclint.source.questions.precision.regions import computed, computes_in_threads
from tclint.source.questions.precision.scaled_steps import ScaledSteps
from tclint.source.questions.precision.switches import Switches
from tclint.source.questions.precision.weights import Weights
from tclint.source.questions.projections import Projections
from tclint.source.questions.recording import Recording
from tclint.source.questions.reductions import Reductions
from tclint.source.questions.steps import Steps
from tclint.source.questions.waits import Waits
from tclint.source.run.facts import Facts
from tclint.source.run.program import Program
from tclint.source.run.record import Record
from tclint.source.run.values import NONE, Event, Place, Setting, Thing, Value, options_of
from tclint.source.syntax.notebooks import cell_of, is_notebook
from tclint.source.syntax.positions import Span


@dataclass
class SourceContext:
    """One program under the run's settings; rules ask it what the program does."""

    run: Program
    """A script with the files that it reads, run with abstract values."""
    settings: Settings
    silences: list[tuple[Event, str]] = field(default_factory=list, repr=False)
    """Events that rules looked at without reporting them, and why; `tclint explain CODE --at FILE:LINE` shows
    them."""

    @property
    def path(self) -> str:
        """The file that starts the program."""
        return self.run.file.path

    @property
    def record(self) -> Record:
        """The events of the program, in order."""
        return self.run.record

    @property
    def facts(self) -> Facts:
        """Facts derived from the record."""
        return self.run.facts

    @cached_property
    def gradients(self) -> Gradients:
        """How gradients are made, scaled and changed."""
        return Gradients(self.run.facts)

    @cached_property
    def autocasts(self) -> Autocasts:
        """The autocast contexts under which values are computed."""
        return Autocasts(self.run.facts)

    @cached_property
    def weights(self) -> Weights:
        """The dtypes of the weights of trained models."""
        return Weights(self.gradients, self.autocasts)

    @cached_property
    def scaled_steps(self) -> ScaledSteps:
        """The calls of scalers that belong together, and their order."""
        return ScaledSteps(self.gradients)

    @cached_property
    def flow(self) -> Flow:
        """The data flow: which operations read the results of which others."""
        return Flow(self.run.facts)

    @cached_property
    def dtypes(self) -> Dtypes:
        """The dtypes of tensors."""
        return Dtypes(self.flow, self.autocasts)

    @cached_property
    def losses(self) -> Losses:
        """The values that losses compare."""
        return Losses(self.flow, self.gradients, self.autocasts)

    @cached_property
    def layouts(self) -> Layouts:
        """The memory formats to which tensors and modules are converted."""
        return Layouts(self.flow, self.autocasts)

    @cached_property
    def attentions(self) -> Attentions:
        """The places where attention is written out."""
        return Attentions(self.flow)

    @cached_property
    def cells(self) -> Cells:
        """The recurrent cells that run in loops over time."""
        return Cells(self.flow)

    @cached_property
    def projections(self) -> Projections:
        """The linear layers that read the same tensor."""
        return Projections(self.flow)

    @cached_property
    def networks(self) -> Networks:
        """The kinds of networks that modules are."""
        return Networks(self.flow)

    def lints(self, event: Event) -> bool:
        """Whether an event is in a linted file and not in a file that it calls."""
        return event.place.file.path in self.run.within

    def concerns(self, event: Event) -> bool:
        """Whether an event is in a linted file that is not a test, or a call there makes a framework do
        it."""
        is_said = self.lints(event) or event.place.file.is_library
        return is_said and not is_test_path(self._place(event).file.path)

    def is_shown(self, event: Event) -> bool:
        """Whether an event is in a linted file that is not a test, or a call there leads to it."""
        place = self.run.place_of(event)
        return place is not None and not is_test_path(place.file.path)

    @cached_property
    def devices(self) -> Devices:
        """The devices of values."""
        return Devices(self.run.facts)

    @cached_property
    def steps(self) -> Steps:
        """The training steps and the events in them."""
        return Steps(self.run.facts)

    @cached_property
    def float32(self) -> Float32:
        """The trainings that compute in float32 because nobody chose another precision."""
        return Float32(
            self.autocasts,
            self.devices,
            self.networks,
            self.steps,
            self.run.files,
            self.run.is_configuration,
        )

    @cached_property
    def float32_by_default(self) -> Float32:
        """The trainings that compute in float32 if all options keep their defaults."""
        given = self.float32
        return Float32(
            given.autocasts,
            given.devices,
            given.networks,
            given.steps,
            given.files,
            given.is_configuration,
            Defaults(),
        )

    @cached_property
    def switches(self) -> Switches:
        """The global settings of torch that the program changes."""
        return Switches(self.run.facts)

    @cached_property
    def batches(self) -> Batches:
        """The loaders that feed training, and the way of their batches to the GPU."""
        return Batches(self.run.facts, self.devices, self.steps)

    @cached_property
    def optimizers(self) -> Optimizers:
        """The optimizers and the modules that they update."""
        return Optimizers(self.run.facts, self.flow)

    @cached_property
    def recording(self) -> Recording:
        """The calls of networks that record for a backward pass although none follows."""
        return Recording(self.flow, self.autocasts, self.optimizers, self.steps)

    @cached_property
    def quantized(self) -> Quantized:
        """The 4-bit layers and the dtype in which they compute."""
        return Quantized(self.autocasts, self.steps)

    @cached_property
    def frozen(self) -> FrozenNetworks:
        """The frozen networks that a 16-bit training runs."""
        return FrozenNetworks(self.autocasts, self.optimizers, self.float32, self.steps)

    @cached_property
    def sizes(self) -> Sizes:
        """Whether inputs keep their size from step to step."""
        return Sizes(self.run.facts, self.batches, self.networks)

    @cached_property
    def launches(self) -> Launches:
        """The loops of training steps that launch small kernels one by one."""
        return Launches(self.run.facts, self.devices, self.steps)

    @cached_property
    def transfers(self) -> Transfers:
        """The copies from the host to a GPU that every training step repeats."""
        return Transfers(self.run.facts, self.devices, self.steps)

    @cached_property
    def reductions(self) -> Reductions:
        """The losses that processes exchange for a log."""
        return Reductions(self.run.facts, self.steps)

    @cached_property
    def waits(self) -> Waits:
        """The places where the CPU waits for the GPU."""
        return Waits(self.run.facts, self.devices, self.steps)

    def at(self, event: Event, thing: Thing | None = None, option: str = "") -> Location:
        """The location of an event in the linted files.

        Args:
            thing: an object that the event made; where a configuration file sets an option of it, that place
                is the location.
            option: the option that the finding is about.
        """
        settings = thing.fields.get("@said") if thing is not None else None
        values = [
            *(item.fields.get(("item", option)) for item in self.facts.things(settings)),
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
        """The place in a linted configuration file that sets one of some values; None if there is none."""
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
        """The event that gives a framework its arguments, for an event that these arguments cause."""
        if event.kind == "make" and event.place.file.is_library:
            for thing in self.facts.things(event.result):
                for settings in self.facts.things(thing.fields.get("@settings")):
                    if settings.made is not None and settings.made.places[0].file is self.run.file:
                        return settings.made
        return event

    def skip(self, event: Event, why: str) -> None:
        """Note why a rule does not report an event that it looked at, as the end of a sentence: 'it ...'."""
        self.silences.append((event, why))

    def where(self, event: Event, beside: Event | None = None) -> str:
        """The line of an event for a message: 'line 12', 'engine.py:12', 'line 3 of cell 7'.

        Args:
            beside: the event that the message is about; None: the message is about the program's first file.
        """
        at = self.at(event)
        if is_notebook(at.path):
            return "line {1} of cell {0}".format(*cell_of(self._place(event).file.lines(), at.line))
        file = self.path if beside is None else self.at(beside).path
        return f"line {at.line}" if at.path == file else f"{os.path.basename(at.path)}:{at.line}"

    def code(self, event: Event, limit: int = 80) -> str:
        """The code of an event on one line; for an event of a framework the call that causes it."""
        return _code_of(self._place(event) if event.place.file.is_library else event.place, limit)

    def scaled_places(self, event: Event, scalers: Collection[Thing] = ()) -> dict[str, tuple[Location, ...]]:
        """The locations of an event, as `at`, and of the calls of scalers and steps beside it, by kind."""
        return self.places(at=[event], **self.scaled_steps.beside(event, scalers))

    def is_written(self, event: Event) -> bool:
        """Whether the program itself calls what an event makes, or what gives a framework its arguments for
        it."""
        return not self._settings_of(event).place.file.is_library

    def is_in_program(self, event: Event) -> bool:
        """Whether the program's own files make or lead to an event; importing a library leads to others."""
        return any(not place.file.is_library for place in event.places)

    def shown(self, event: Event, limit: int = 80) -> str:
        """The code, on one line, in the linted files that is or leads to an event."""
        return _code_of(self._place(event), limit)

    def places(self, **events: Iterable[Event]) -> dict[str, tuple[Location, ...]]:
        """The locations of events by role, for the fix that edits there."""
        return {role: tuple(dict.fromkeys(map(self.at, found))) for role, found in events.items()}

    def computed_places(self, trainings: Sequence[Training]) -> dict[str, tuple[Location, ...]]:
        """The places at which trainings compute their losses in float32 and go backward, for the fix that
        puts autocast there; none where that would break the program."""
        return self.places(**computed(self.float32, self.flow, trainings))

    @property
    def computes_in_threads(self) -> bool:
        """Whether the program computes in threads, as `nn.DataParallel` does, where autocast has its default
        dtype, float16, whatever the autocast around them chose."""
        return computes_in_threads(self.record)

    def also(self, event: Event | Place, message: str, *, is_alike: bool = False) -> Related:
        """A related place: an event that a finding rests on, or a call that led to it, in any file.

        Args:
            is_alike: whether the same problem is there.
        """
        place = event.place if isinstance(event, Event) else event
        if place.file.is_library:
            assert isinstance(event, Event)
            return Related(self.at(event), message, is_alike)
        span = place.file.spans()[place.node_id]
        return Related(Location(place.file.path, *span), message, is_alike)

    def spelled(self, thing: Thing, option: str) -> tuple[str, str]:
        """The name of what chooses an option of a thing, and the option's spelling there: an argument of a
        framework's class, or a key of its configuration file."""
        for spelling in self.facts.things(thing.fields.get("@spelling")):
            for settings in self.facts.things(thing.fields.get("@settings")):
                for name in self.facts.texts(spelling.fields.get(("item", option))):
                    if self.run.is_configuration:
                        return "configuration", name.replace("=", ": ").replace('"', "").replace(
                            "True", "true"
                        ).replace("False", "false")
                    return settings.cls.function.name if settings.cls is not None else settings.name, name
        return thing.name.rpartition(".")[2], option

    @property
    def keeps_masters(self) -> str:
        """The path of a launcher of the program that may keep float32 copies of 16-bit weights (DeepSpeed,
        FSDP, Megatron); '' if there is none."""
        return launcher_with(self.path, KEEP_MASTERS)

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
