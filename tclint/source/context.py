"""What a source rule sees of one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from tclint.config.settings import Settings
from tclint.core.finding import Location, Related
from tclint.source.facts.amp import Amp
from tclint.source.facts.program import Program
from tclint.source.facts.values import Values
from tclint.source.names.frameworks import Names, names
from tclint.source.names.neighbours import Neighbours
from tclint.source.names.project import Project, parsed_bytes
from tclint.source.names.queries import bound, is_test_path, makers
from tclint.source.names.requirements import may_run
from tclint.source.names.resolve import Resolver
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
from tclint.source.run.files import File
from tclint.source.run.program import Program as Program_
from tclint.source.run.project import ProjectFiles
from tclint.source.run.record import Record
from tclint.source.run.values import Event, Place
from tclint.source.syntax.notebooks import cell_of, is_notebook
from tclint.source.syntax.parse import Parsed
from tclint.source.syntax.positions import Span
from tclint.source.syntax.tables import CallEvent, Expression, Function, Name, Tables, dotted, method_of

_Found = TypeVar("_Found")
_LIBRARIES = ("torch.", "torchvision.", "timm.")


@dataclass
class SourceContext:
    """One file under the run's settings: rules read `tables` and ask the helpers."""

    path: str
    """Absolute."""
    tables: Tables
    settings: Settings
    spans: Callable[[], tuple[Span, ...]] = field(repr=False)
    """Positions by node id; computed when first called."""
    lines: Callable[[], list[str]] = field(repr=False)
    given: Program_ | None = None
    """The program that this file belongs to, where others have run it."""
    silences: list[tuple[Event, str]] = field(default_factory=list, repr=False)
    """What rules looked at and said nothing of, and why: `tclint explain CODE --at FILE:LINE` shows it."""
    _analyses: dict[Callable[[SourceContext], Any], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, path: str, parsed: Parsed, settings: Settings) -> SourceContext:
        return cls(path, parsed.tables, settings, lambda: parsed.spans, lambda: parsed.lines)

    @classmethod
    def of_program(cls, program: Program_, file: File, settings: Settings) -> SourceContext:
        """One file of a program that has been run."""
        return cls(file.path, file.tables, settings, file.spans, file.lines, program)

    @cached_property
    def resolver(self) -> Resolver:
        """What names stand for and which values they can have."""
        return Resolver(self.tables, elsewhere=self._elsewhere)

    def _elsewhere(self, qualified: str) -> tuple[Resolver, Function] | None:
        """The class, the function or the module of another file that a qualified name is defined in."""
        module, _, name = qualified.rpartition(".")
        if not module or qualified.startswith(_LIBRARIES):
            return None
        found = self.project.definition(qualified)
        if found is not None:
            return found[0].resolver, found[1]
        other = self.project.module(module)
        if other is None or not other.resolver.assignments(other.tables.module, name):
            return None
        return other.resolver, other.tables.module

    @cached_property
    def run(self) -> Program_:
        """The program that starts in this file, run with abstract values."""
        if self.given is not None:
            return self.given
        files = ProjectFiles(self._parse)
        file = File(self.path, self.tables, self.spans, self.lines)
        files.keep(self.path, file)
        return Program_.of(file, files)

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

    @cached_property
    def imports_science(self) -> bool:
        """Whether the program uses packages for numerical work, or for tiny networks."""
        science = self.run.facts.library.science
        return any(
            item.qualified.partition(".")[0] in science
            for file in self.run.files
            for function in file.tables.functions
            for item in function.imports
        )

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
        return Float32(self.autocasts, self.devices, self.networks, self.steps)

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
        return Recording(self.flow, self.autocasts)

    @cached_property
    def sizes(self) -> Sizes:
        """Whether inputs keep their size from step to step."""
        return Sizes(self.run.facts, self.batches, self.networks)

    @cached_property
    def waits(self) -> Waits:
        """Where the CPU waits for the GPU."""
        return Waits(self.run.facts, self.devices, self.steps)

    def _parse(self, _path: str, data: bytes) -> Parsed | None:
        return parsed_bytes(data, self.settings.cache)

    def at(self, event: Event) -> Location:
        """Where this file says what an event does."""
        place = self._place(event)
        return Location(place.file.path, *place.file.spans()[place.node_id])

    def _place(self, event: Event) -> Place:
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

    @cached_property
    def amp(self) -> Amp:
        """Autocast regions, gradient modes, scalers."""
        return Amp(self.resolver)

    @cached_property
    def program(self) -> Program:
        """Switches, calls by name and training loops."""
        return Program(self.amp)

    @cached_property
    def values(self) -> Values:
        """What variables hold: modules, their layers, tensors."""
        return Values(self.resolver)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The files of the project that run together with this one."""
        return Neighbours(self.path)

    @cached_property
    def on_gpu(self) -> bool:
        """The file speaks of CUDA, or a file of the project that runs with it does."""
        if self.program.on_cuda:
            return True
        return self.neighbours.known and self.neighbours.mention(("cuda",)) is not None

    def once(self, analysis: Callable[[SourceContext], _Found]) -> _Found:
        """What an analysis finds in this file; it runs for the first rule that asks."""
        if analysis not in self._analyses:
            self._analyses[analysis] = analysis(self)
        found: _Found = self._analyses[analysis]
        return found

    def definitions_of(
        self, function: Function, called: Expression, holding: tuple[bytes, ...] = ()
    ) -> Iterator[tuple[SourceContext, Function]]:
        """Functions and classes that a name can mean, with their files: of this one, or of the project.

        Args:
            holding: of other files, only those that hold one of these tokens.
        """
        local = self.resolver.local_functions(function, called)
        yield from ((self, item) for item in local)
        name = dotted(called)
        if local or not name:
            return
        candidates = self.resolver.qualified(function, name)
        if "." not in name and self.resolver.owner(function, name) is None:
            stars = (item.qualified for item in self.tables.module.imports if item.name == "*")
            candidates = tuple(f"{module}.{name}" for module in stars)
        for qualified in candidates:
            if not qualified.startswith(_LIBRARIES):
                found = self.project.definition(qualified, holding)
                if found is not None:
                    yield found

    def passed_elsewhere(
        self, function: Function, parameter: str, word: str = ""
    ) -> Iterator[tuple[SourceContext, Function, Expression]]:
        """(file, caller, argument) of what other files of the project that import a function, or the class
        that it constructs, pass for a parameter.

        Args:
            word: only in files that hold it.
        """
        parameters = self.resolver.parameters(function)
        for other, caller, call in self.callers_elsewhere(function, word):
            value = bound(call.call, parameters).get(parameter)
            if value is not None:
                yield other, caller, value

    def values_across(self, function: Function, expression: Expression, depth: int = 4) -> tuple[object, ...]:
        """Values that an expression can have, where those of parameters are what this file or others pass,
        `args.width` of a parameter `args` included; nothing where none is seen."""
        found = self.resolver.evaluate(function, expression).values
        name = dotted(expression)
        if found or not name or depth <= 0:
            return found
        root, _, rest = name.partition(".")
        owner = self.resolver.owner(function, root)
        given: list[tuple[SourceContext, Function, Expression]] = []
        if root == "self":
            given = [(self, *origin) for origin in self.resolver.origins_of(function, name)]
            rest = ""
        elif owner is not None and any(parameter.name == root for parameter in owner.parameters):
            given = [(self, *passed) for passed in self.resolver.passed(owner, root)]
            given = given or list(self.passed_elsewhere(owner, root))
        values = (
            where.values_across(scope, Name(f"{dotted(value)}.{rest}") if rest else value, depth - 1)
            for where, scope, value in given
            if value != expression and (dotted(value) or not rest)
        )
        return tuple(dict.fromkeys(item for several in values for item in several))

    def callers_elsewhere(
        self, function: Function, word: str = ""
    ) -> Iterator[tuple[SourceContext, Function, CallEvent]]:
        """(file, caller, call) of the calls in other files of the project that import this one: of a
        function, of the class that it constructs, or of a method of an object whose class they make.

        Args:
            word: only in files that hold it.
        """
        called = self.resolver.called_as(function)
        owner = self.tables.functions[called.parent] if called.parent > 0 else None
        wanted = owner or called
        if wanted.parent != 0 or (owner is not None and owner.kind != "class"):
            return
        for path in self.neighbours.importing(word or called.name):
            other = self.project.context_of(path)
            for caller, event, _ in other.program.methods(called.name) if other is not None else ():
                assert other is not None
                receiver = method_of(event.call)[0]
                made = [(caller, event.call)] if owner is None else []
                if owner is not None and isinstance(receiver, Name):
                    made = [
                        (scope, call)
                        for scope, value in other.resolver.origins_of(caller, receiver.dotted)
                        for call in makers(value)
                    ]
                for scope, call in made:
                    if any(
                        found is not None and (found[0].path, found[1].index) == (self.path, wanted.index)
                        for qualified in other.resolver.called(scope, call)
                        for found in (other.project.definition(qualified),)
                    ):
                        yield other, caller, event
                        break

    @cached_property
    def project(self) -> Project[SourceContext]:
        """Definitions in other files of the project."""
        return Project(self.path, self.settings, SourceContext.of)

    @property
    def names(self) -> Names:
        """Known names of torch, frameworks and scalers."""
        return names()

    def torch_may_be(self, version: tuple[int, ...]) -> bool:
        """Whether the project's requirement files allow this torch version or a newer one."""
        return may_run(self.path, version)

    def location(self, node_id: int) -> Location:
        """Where a node id is, with its end."""
        span = self.spans()[node_id]
        return Location(
            path=self.path,
            line=span.line,
            column=span.column,
            end_line=span.end_line,
            end_column=span.end_column,
        )

    def related(self, node_id: int, message: str) -> Related:
        """Another place that a finding rests on."""
        return Related(self.location(node_id), message)

    def excerpt(self, node_id: int, limit: int = 80) -> str:
        """The code of a node id on one line, shortened to `limit` characters."""
        return excerpt_of(self.lines(), self.spans()[node_id], limit)


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
