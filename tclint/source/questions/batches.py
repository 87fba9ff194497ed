"""Batches: which loaders feed training, where their batches are copied to a GPU, and from what memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.names.queries import words
from tclint.source.questions.devices import Devices
from tclint.source.questions.steps import Steps
from tclint.source.run.facts import Facts, distinct
from tclint.source.run.values import FALSE, NONE, Event, Place, Thing, Value

_VIEWS = words(
    "[] .view .view_as .reshape .flatten .unflatten .unsqueeze .squeeze .permute .transpose .t .T .mT .data "
    ".detach .narrow .select .contiguous .expand .unbind .chunk .split .requires_grad_"
)
"""Operations whose result lies in the memory of what they are done to, or may be it."""
_OF_PROCESSORS = frozenset({"return_tensors", "padding", "truncation"})
"""Arguments of what turns texts and images into tensors."""


class Batches:
    """Answers about the loaders of one program."""

    def __init__(self, facts: Facts, devices: Devices, steps: Steps) -> None:
        self.facts = facts
        self.record = facts.record
        self.devices = devices
        self.steps = steps

    @cached_property
    def trained_on(self) -> list[Thing]:
        """The loaders whose batches losses are computed from, one for each place where they are made."""
        found: dict[Place, Thing] = {}
        for step in self.steps.all:
            for backward in step.backwards:
                for made in self.facts.made_by(self.facts.loss_of(backward)):
                    sources = [region.context for region in made.regions]
                    sources += [made.subject] if made.kind == "batch" and made.subject is not None else []
                    for loader in (item for source in sources for item in self.facts.kinds(source, "loader")):
                        if loader.made is not None:
                            found.setdefault(loader.made.place, loader)
        return sorted(found.values(), key=lambda loader: loader.made.index if loader.made is not None else 0)

    def copies_of(self, loader: Thing) -> list[Event]:
        """Where training steps copy a loader's batches to a GPU, as they come from it."""
        place = loader.made.place if loader.made is not None else None
        return list(distinct(event for made, event in self._copies if made == place))

    @cached_property
    def _copies(self) -> list[tuple[Place, Event]]:
        """Where the loader is made, and the copy."""
        found: list[tuple[Place, Event]] = []
        for step in self.steps.all:
            for event in step.events:
                memory = self.memory_of(event.subject) if self._copies_to_gpu(event) else None
                for loader in self.facts.things(memory.subject) if memory is not None else ():
                    if loader.made is not None:
                        found.append((loader.made.place, event))
        return found

    def _copies_to_gpu(self, event: Event) -> bool:
        return event.kind == "to" and self.devices.is_gpu(event.arguments.get("device"))

    def copies_of_pinned(self) -> Iterator[Event]:
        """Copies to a GPU of what the program has pinned itself."""
        for event in distinct(self.record.of("to")):
            memory = self.memory_of(event.subject)
            if self._copies_to_gpu(event) and memory is not None and memory.kind == "pin":
                yield event

    def memory_of(self, value: Value | None) -> Event | None:
        """The event that made the memory that a value lies in; None where that is not known."""
        for _ in range(12):
            thing = next(self.facts.things(value), None)
            loader = thing.fields.get("@loader") if thing is not None else None
            event = thing.made if thing is not None else None
            if loader is not None:
                event = next((batch for batch in self.record.of("batch") if batch.subject is loader), event)
            if event is None or event.kind in ("batch", "pin"):
                return event
            if event.kind != "op" or event.name not in _VIEWS or self._is_gathered(event):
                return None
            value = event.subject
        return None

    def _is_gathered(self, event: Event) -> bool:
        """`x[indices]` copies what it picks."""
        return any(thing.kind in ("tensor", "list") for thing in self.facts.things(event.first))

    def is_blocking(self, copy: Event) -> bool:
        """Whether the CPU waits for a copy."""
        return copy.arguments.get("non_blocking", FALSE) == FALSE

    def is_missing(self, loader: Thing, option: str) -> bool:
        """Whether an option of a loader is left at its default."""
        return option not in loader.fields and "**" not in loader.fields and "@open" not in loader.fields

    def is_on_gpu(self, loader: Thing) -> bool:
        """Whether what a loader gives lies on a GPU already."""
        made = (loader.fields.get(name, NONE) for name in ("dataset", "generator", "@sample"))
        return any(self.devices.on_gpu(value) is True for value in made if value != NONE)

    def work_of(self, loader: Thing) -> str:
        """What takes time for every batch of a loader: the dataset that reads files, or the function that
        collates texts; '' where nothing is seen to."""
        for dataset in self.facts.kinds(loader.fields.get("@dataset"), "files"):
            return dataset.name.rpartition(".")[2]
        for event in self.record.events:
            if any(region.context is loader for region in event.regions) and self._takes_time(loader, event):
                return self._prepared_by(loader, event)
        return ""

    def _takes_time(self, loader: Thing, event: Event) -> bool:
        # Padding alone is little work: who writes the loop can choose, a framework's default need not change.
        takes = event.kind == "read" or (event.kind == "pad" and "@settings" not in loader.fields)
        return takes or (event.kind == "call" and not _OF_PROCESSORS.isdisjoint(event.arguments))

    def _prepared_by(self, loader: Thing, event: Event) -> str:
        """The class or function of the project that the loader runs, or what it calls of a library."""
        depth = next(len(batch.stack) + 1 for batch in self.record.of("batch") if batch.subject is loader)
        if len(event.places) <= depth:
            return event.name.rpartition(".")[2]
        function = event.places[depth].function
        return function.qualified_name.removesuffix(".__getitem__").removesuffix(".__call__")
