"""Batches: the loaders that feed training, the copies of their batches to a GPU, and the memory copied
from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.questions.defaults import Defaults
from tclint.source.questions.devices import Devices
from tclint.source.questions.steps import Steps
from tclint.source.run.facts import Facts, distinct
from tclint.source.run.values import (
    FALSE,
    NONE,
    Event,
    FunctionValue,
    Place,
    Thing,
    Value,
    constant_of,
    modules_in,
    options_of,
)

_VIEWS = frozenset(
    {".T", ".chunk", ".contiguous", ".data", ".detach", ".expand", ".flatten", ".mT", ".narrow", ".permute"}
    | {".requires_grad_", ".reshape", ".select", ".split", ".squeeze", ".t", ".transpose", ".unbind"}
    | {".unflatten", ".unsqueeze", ".view", ".view_as", "[]"}
)
"""Operations whose result shares, or may share, the memory of their operand."""
_TOKENS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
"""Names of the inputs of transformers models."""
_OF_PROCESSORS = frozenset({"return_tensors", "padding", "truncation"})
"""Arguments of tokenizers and processors, which turn texts and images into tensors."""


class Batches:
    """Answers about the loaders of one program."""

    def __init__(self, facts: Facts, devices: Devices, steps: Steps) -> None:
        self.facts = facts
        self.record = facts.record
        self.devices = devices
        self.steps = steps

    @cached_property
    def all(self) -> list[Thing]:
        """All loaders, one for each place that makes them."""
        found: dict[Place, Thing] = {}
        for event in self.record.of("make"):
            for loader in self.facts.kinds(event.result, "loader"):
                found.setdefault(event.place, loader)
        return list(found.values())

    @cached_property
    def trained_on(self) -> list[Thing]:
        """The loaders from whose batches losses are computed, one for each place that makes them."""
        found: dict[Place, Thing] = {}
        for loader, _ in self._feeding:
            if loader.made is not None:
                found.setdefault(loader.made.place, loader)
        return sorted(found.values(), key=lambda loader: loader.made.index if loader.made is not None else 0)

    @cached_property
    def _feeding(self) -> list[tuple[Thing, Event]]:
        """Each loader with each backward pass whose loss is computed from its batches."""
        found: list[tuple[Thing, Event]] = []
        for backward in (event for step in self.steps.all for event in step.backwards):
            for made in self.facts.made_by(self.facts.loss_of(backward)):
                sources = [
                    region.context for region in made.regions if self._is_of_round(region.context, backward)
                ]
                sources += [made.subject] if made.kind == "batch" and made.subject is not None else []
                for source in sources:
                    found.extend((loader, backward) for loader in self.facts.kinds(source, "loader"))
        return found

    def _is_of_round(self, loader: Value, backward: Event) -> bool:
        """Whether a loader gives a batch in each round with the backward pass, or in a round around it."""
        loops = [round_.loop for round_ in backward.loops]
        batches = [batch for batch in self.record.of("batch") if batch.subject is loader]
        return any(batch.loop is None or batch.loop in loops for batch in batches)

    def backwards_of(self, loader: Thing) -> list[Event]:
        """The backward passes whose losses are computed from a loader's batches."""
        place = loader.made.place if loader.made is not None else None
        return [event for item, event in self._feeding if item.made is not None and item.made.place == place]

    def loaders_of(self, backward: Event) -> list[Thing]:
        """The loaders from whose batches the loss of a backward pass is computed."""
        return [loader for loader, event in self._feeding if event is backward]

    def holds_tokens(self, loader: Thing) -> bool:
        """Whether a loader's batches are sequences of tokens: the loader pads or tokenizes, or a network
        embeds them."""
        if any(
            event.kind == "pad" or not _OF_PROCESSORS.isdisjoint(event.arguments)
            for event in self.record.events
            if any(region.context is loader for region in event.regions)
        ):
            return True
        return any(
            _TOKENS & made.arguments.keys()
            or any(
                constant_of(item) in _TOKENS
                for value in made.inputs
                for thing in self.facts.held(value)
                for item in (thing.operation[1] if thing.operation is not None else ())
            )
            or any(
                part.name.startswith(("torch.nn.Embedding", "transformers."))
                for module in self.facts.kinds(made.subject, "module")
                for part in modules_in(module)
            )
            for backward in self.backwards_of(loader)
            for made in self.facts.made_by(self.facts.loss_of(backward))
        )

    def padded_to_limit(self) -> Iterator[Event]:
        """The calls of tokenizers that make texts of batches that are trained on as long as their limit."""
        calls = [
            event
            for event in self.record.of("call")
            if Defaults().constant(event.arguments.get("padding")) == "max_length"
        ]
        for loader in self.trained_on if calls else ():
            made = set(self.facts.made_by(loader.fields.get("@sample")))
            mapped = {
                (option.file, option.function)
                for event in self.facts.made_by(loader.fields.get("dataset"))
                for value in event.arguments.values()
                for option, _ in options_of(value)
                if isinstance(option, FunctionValue)
            }
            for event in calls:
                is_inside = any(region.context is loader for region in event.regions)
                is_mapped = any((place.file, place.function) in mapped for place in event.places)
                if is_inside or is_mapped or event in made:
                    yield event

    def copies_of(self, loader: Thing) -> list[Event]:
        """The copies of a loader's unchanged batches to a GPU."""
        place = loader.made.place if loader.made is not None else None
        return list(distinct(event for made, event in self._copies if made == place))

    @cached_property
    def _copies(self) -> list[tuple[Place, Event]]:
        """(place that makes the loader, copy of one of its batches to a GPU)."""
        found: list[tuple[Place, Event]] = []
        for event in self.record.of("to", "convert", "op"):
            memory = self.memory_of(self._copied_to_gpu(event))
            if memory is None or memory.kind != "batch" or self._is_part_of(event, memory):
                continue
            for loader in self.facts.things(memory.subject):
                if loader.made is not None:
                    found.append((loader.made.place, event))
        return found

    def evaluated_on(self) -> list[Thing]:
        """The loaders from whose batches no loss is computed, one for each place that makes them."""
        trained = {loader.made.place for loader in self.trained_on if loader.made is not None}
        found: dict[Place, Thing] = {}
        for event in self.record.of("batch"):
            for loader in self.facts.kinds(event.subject, "loader"):
                if loader.made is not None and loader.made.place not in trained:
                    found.setdefault(loader.made.place, loader)
        return list(found.values())

    def _copied_to_gpu(self, event: Event) -> Value | None:
        """What an event copies to a GPU; None if it copies nothing there."""
        if event.kind == "op":
            is_copy = event.name == ".copy_" and self.devices.on_gpu(event.subject) is True
            return event.first if is_copy else None
        if not self.devices.is_gpu(event.arguments.get("device")):
            return None
        return event.subject if event.kind == "to" else event.first

    def copies_of_pinned(self) -> Iterator[Event]:
        """The copies to a GPU from memory that the program itself has pinned."""
        for event in distinct(self.record.of("to")):
            memory = self.memory_of(self._copied_to_gpu(event))
            if memory is not None and memory.kind == "pin":
                yield event

    def memory_of(self, value: Value | None) -> Event | None:
        """The event that made the memory in which a value lies, if it is a batch or a copy into pinned
        memory; None otherwise."""
        for _ in range(12):
            thing = next(self.facts.things(value), None)
            if thing is None:
                return None
            event = thing.made
            if event is not None and event.kind in ("batch", "pin"):
                return event
            if event is not None and self.facts.is_of_loader(event):
                return next(batch for batch in self.record.of("batch") if self._is_part_of(event, batch))
            if thing.operation is not None and thing.operation[0] in ("each", "[]", "()"):
                value = thing.operation[1][0]
            elif (
                event is not None
                and event.kind == "op"
                and event.name in _VIEWS
                and not self._is_gathered(event)
            ):
                value = event.subject
            else:
                return None
        return None

    def _is_part_of(self, event: Event, batch: Event) -> bool:
        """Whether something happens while a loader makes a batch."""
        return any(region.context is batch.subject for region in event.regions)

    def _is_gathered(self, event: Event) -> bool:
        """Whether an indexing gathers elements, as `x[indices]` does, and so copies them."""
        return any(thing.kind in ("tensor", "list") for thing in self.facts.things(event.first))

    def is_blocking(self, copy: Event) -> bool:
        """Whether the CPU waits for a copy."""
        return copy.arguments.get("non_blocking", FALSE) == FALSE

    def is_missing(self, loader: Thing, option: str) -> bool:
        """Whether an option of a loader that a script chooses is left at its default."""
        is_left = option not in loader.fields and "**" not in loader.fields and "@open" not in loader.fields
        return is_left and self.is_chosen_by_scripts(loader, option)

    def is_chosen_by_scripts(self, loader: Thing, option: str) -> bool:
        """Whether scripts choose an option of a loader: they make it, or a framework that makes it has an
        argument for the option."""
        spellings = self.facts.things(loader.fields.get("@spelling"))
        is_spelled = any(("item", option) in spelling.fields for spelling in spellings)
        return is_spelled or not self._is_of_framework(loader)

    def is_on_gpu(self, loader: Thing) -> bool:
        """Whether a loader's batches are already on a GPU."""
        made = (loader.fields.get(name, NONE) for name in ("dataset", "generator", "@sample"))
        return any(self.devices.on_gpu(value) is True for value in made if value != NONE)

    def work_of(self, loader: Thing) -> str:
        """The name of the code that takes time for every batch of a loader: the dataset that reads files, or
        the function that collates texts; '' if none is known to."""
        made_by = [dataset.cls for dataset in self.facts.things(loader.fields.get("@dataset")) if dataset.cls]
        if any(cls.find("__getitem__") is None for cls in made_by):
            return ""  # a stream, which each worker would give once more
        for dataset in self.facts.kinds(loader.fields.get("@dataset"), "files"):
            return dataset.name.rpartition(".")[2]
        for event in self.record.events:
            if any(region.context is loader for region in event.regions) and self._takes_time(loader, event):
                return self._prepared_by(loader, event)
        return ""

    def is_of_default(self, loader: Thing) -> bool:
        """Whether options choose by default the data set that `work_of` speaks of, as far as is known."""
        default = Defaults().value(loader.fields.get("dataset"))
        return not isinstance(default, Thing) or default is loader.fields.get("@sampled", default)

    def _takes_time(self, loader: Thing, event: Event) -> bool:
        # Padding is little work, not enough to advise against the default of a framework's loader.
        takes = event.kind == "read" or (event.kind == "pad" and not self._is_of_framework(loader))
        return takes or (event.kind == "call" and not _OF_PROCESSORS.isdisjoint(event.arguments))

    def _is_of_framework(self, loader: Thing) -> bool:
        return loader.made is not None and loader.made.place.file.is_library

    def _prepared_by(self, loader: Thing, event: Event) -> str:
        """The class or function of the project that a loader runs, or the library function that it calls."""
        depth = next(len(batch.stack) + 1 for batch in self.record.of("batch") if batch.subject is loader)
        if len(event.places) <= depth:
            return event.name.rpartition(".")[2]
        function = event.places[depth].function
        return function.qualified_name.removesuffix(".__getitem__").removesuffix(".__call__")
