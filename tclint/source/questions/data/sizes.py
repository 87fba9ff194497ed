"""Sizes: whether the inputs of networks have the same size in every step."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from tclint.source.questions.data.batches import Batches
from tclint.source.questions.defaults import Defaults
from tclint.source.questions.networks import Networks
from tclint.source.questions.steps import Step
from tclint.source.run.facts import Facts
from tclint.source.run.values import NONE, Constant, Event, FunctionValue, Thing, Value

_PADS = "torch.nn.functional.pad"
_SHARES = frozenset({"//", "/", "int"})
_RESIZES = frozenset({"torch.nn.functional.interpolate", "torch.nn.functional.upsample"})


class Sizes:
    """Answers about one program."""

    def __init__(self, facts: Facts, batches: Batches, networks: Networks) -> None:
        self.facts = facts
        self.record = facts.record
        self.batches = batches
        self.networks = networks
        self._first: dict[Event, list[tuple[Event, ...]]] = {}

    def fixed(self, step: Step) -> str | None:
        """The name of the call that gives all inputs of a step one size, '' if it is some transform of the
        program; None if none is known."""
        loaders = self._loaders(step)
        if loaders and all(self._stacks_any(loader, step) for loader in loaders):
            return loaders[0].name.rpartition(".")[2]
        resized = [event for made in self._read_by_first(step) for event in made if self._resizes(event)]
        if resized and all(
            any(map(self._resizes, made)) or not any(self._is_of_loader(event, loaders) for event in made)
            for made in self._read_by_first(step)
        ):
            return resized[0].name.rpartition(".")[2]
        giving = (event.name.rpartition(".")[2] for event in self._of_one_size if self._may_give(event, step))
        return next(giving, "") if self._of_one_size else None

    def _may_give(self, transform: Event, step: Step) -> bool:
        """Whether a transform may give inputs of convolutions; the results of one that the program itself
        calls may all be for something else."""
        called = set(self.facts.things(transform.result))
        calls = {
            event
            for event in self.record.of("call")
            if event.subject is not None and not called.isdisjoint(self.facts.things(event.subject))
        }
        return not calls or any(not calls.isdisjoint(made) for made in self._read_by_first(step))

    def _stacks_any(self, loader: Thing, step: Step) -> bool:
        """Whether a loader stacks several samples as they come, so that all have the same size."""
        given = loader.fields
        if given.keys() & {"**", "@open"} or not all(map(self._is_several, self._batch_sizes(loader))):
            return False
        collate = given.get("collate_fn", NONE)
        return collate == NONE or (
            isinstance(collate, FunctionValue)
            and any(
                event.name == "torch.stack" and _is_in(event, collate)
                for value in self._given_to_convolutions(step)
                for event in self.facts.made_by(value)
            )
        )

    def _batch_sizes(self, loader: Thing) -> list[Value | None]:
        """The numbers of samples per batch; of a sampler that says which samples go together None."""
        sampler = loader.fields.get("batch_sampler", NONE)
        if sampler == NONE:
            return [loader.fields.get("batch_size")]
        made = [thing for thing in self.facts.held(sampler) if thing.kind == "batch_sampler"]
        inner = [
            item
            for thing in made
            for item in (thing, *self.facts.kinds(thing.fields.get("batch_sampler"), "batch_sampler"))
        ]
        sizes = [thing.fields.get("batch_size") for thing in inner if thing.cls is None]
        return sizes or [None]

    def _is_several(self, size: Value | None) -> bool:
        """Whether a number is at least 2 by default, as `256 // processes` is meant to be."""
        known = Defaults().constant(size)
        if known is not None or size is None:
            return type(known) is int and known > 1
        return any(
            (operator in _SHARES and self._is_several(operands[0]))
            # A data set is larger than a batch.
            or (operator == "min" and any(map(self._is_several, operands)))
            for thing in self.facts.kinds(size, "number")
            + [thing for thing in self.facts.things(size) if thing.is_unknown]
            for operator, operands in [thing.operation or ("", ())]
        )

    def _given_to_convolutions(self, step: Step) -> Iterator[Value]:
        """What a step's convolutional networks get."""
        for event in step.events:
            networks = self.facts.kinds(event.subject, "module") if event.kind == "forward" else []
            if event.inside is None and any(map(self.networks.convolutions, networks)):
                yield from event.arguments.values()

    def _read_by_first(self, step: Step) -> list[tuple[Event, ...]]:
        """What made the inputs of the convolutions that no layer computes anything for, since it was resized;
        the sizes of all others follow from theirs. Empty if such convolutions are not seen."""
        first = step.backwards[0]
        if first not in self._first:
            self._first[first] = [
                made
                for event in step.events
                if event.kind == "forward"
                and not any(round_.number for round_ in event.loops)
                and any("Conv" in self.networks.flow.kind(item) for item in self.facts.things(event.subject))
                for value in event.arguments.values()
                for made in [self.facts.made_since(value, self._resizes)]
                if not any(item.kind == "forward" for item in made)
            ]
        return self._first[first]

    def _is_of_loader(self, event: Event, loaders: Collection[Value]) -> bool:
        return event.kind == "batch" or any(region.context in loaders for region in event.regions)

    def _resizes(self, event: Event) -> bool:
        """Whether an event resizes images to one size, whatever theirs is."""
        size = event.arguments.get("size") if event.name in _RESIZES else None
        return size is not None and not self._is_drawn(size) and not self._is_of_batch(size, ())

    @cached_property
    def _of_one_size(self) -> list[Event]:
        """The transforms and datasets whose images have one size."""
        return [
            event
            for event in self.record.of("one_size", "make")
            if any("@one_size" in thing.fields for thing in self.facts.things(event.result))
            or (event.kind == "one_size" and (not event.name.endswith("Resize") or self._is_pair(event)))
        ]

    def _is_pair(self, event: Event) -> bool:
        """Whether a transform gets a height and a width and not just the length of one side."""
        if len(event.arguments.keys() & {"height", "width"}) == 2:
            return True
        size = event.first
        return isinstance(size, Thing) and size.fields.get("[]") == Constant(2)

    def vary(self, step: Step) -> Event | None:
        """The event that is known to change the sizes of inputs from step to step; None if there is none."""
        loaders = self._loaders(step)
        inside = [item for item in self.record.events if any(at.context in loaders for at in item.regions)]
        read = {event for made in self._read_by_first(step) for event in made}
        is_resized = bool(read) and not any(event.kind == "batch" for event in read)
        for event in [event for event in inside if event in read] or ([] if is_resized else inside):
            if event.kind == "pad" or self._has_random_size(event) or self._has_size_of_batch(event, loaders):
                return event
        for event in step.events:
            if self._has_random_size(event) or (event.kind == "forward" and self._is_detector(event)):
                return event
        return None

    def depend_on_data(self, step: Step) -> bool:
        """Whether the data set makes the batches of a step, of sizes that nothing tells."""
        given = [loader.fields for loader in self._loaders(step)]
        return any(each.get("batch_size") == NONE for each in given) and self.fixed(step) is None

    def _loaders(self, step: Step) -> list[Thing]:
        return list(
            dict.fromkeys(loader for item in step.backwards for loader in self.batches.loaders_of(item))
        )

    def _has_random_size(self, event: Event) -> bool:
        """Whether an event resizes to a random size or makes a tensor of one: [N, C, *drawn]."""
        if event.name not in _RESIZES and event.kind != "factory":
            return False
        first = 1 if event.name in _RESIZES else 2
        return any(map(self._is_drawn, list(event.arguments.values())[first:]))

    def _is_drawn(self, size: Value) -> bool:
        """Whether a size is computed from random numbers; the shape or the device of a random tensor is
        not."""
        seen: set[Value] = set()
        pending = [size]
        while pending:
            for thing in self.facts.held(pending.pop()):
                made = thing.made
                if thing in seen or (made is not None and made.name == ".size"):
                    continue
                seen.add(thing)
                if made is not None and made.kind == "random":
                    return True
                if not thing.is_property:
                    operands = thing.operation[1] if thing.operation is not None else ()
                    pending += [*operands, *(made.inputs if made is not None else ())]
        return False

    def _has_size_of_batch(self, event: Event, loaders: Collection[Value]) -> bool:
        """Whether an event makes a tensor as long as the longest item of a batch."""
        sizes = event.inputs if event.kind == "factory" or event.name == _PADS else ()
        if event.kind == "convert" and "1" in event.arguments:
            sizes = event.inputs  # `torch.FloatTensor(rows, columns)`
        elif event.kind == "convert":
            # Numbers in the data set no size; what made the arrays in it got one.
            held = (thing for value in event.inputs for thing in self.facts.held(value))
            sizes = tuple(size for thing in held if thing.made is not None for size in thing.made.inputs)
        return any(
            operator == "max" and all(self._is_of_batch(operand, loaders) for operand in operands)
            for value in sizes
            for thing in self.facts.within(value)
            if isinstance(thing, Thing)
            for operator, operands in [thing.operation or ("", ())]
        )

    def _is_of_batch(self, value: Value, loaders: Collection[Value]) -> bool:
        """Whether a number depends on the batch; one that is the same for all batches only bounds a size."""
        for thing in self.facts.within(value):
            if not isinstance(thing, Thing):
                continue
            operator, operands = thing.operation or ("", ())
            if operator == "." and Constant("shape") in operands:
                found = self._is_of_batch(operands[0], loaders)
            elif thing.made is not None:
                regions = thing.made.regions
                found = thing.made.kind == "batch" or any(region.context in loaders for region in regions)
            else:
                found = thing.kind == "number" and thing.operation is None
            if found:
                return True
        return False

    def _is_detector(self, forward: Event) -> bool:
        """Whether a library's model takes a list of images, which it pads to the largest."""
        return any(
            bool(self.networks.names["detectors"].search(name))
            for module in self.facts.kinds(forward.subject, "module")
            for name in [self.networks.library_name(module)[0]]
        )


def _is_in(event: Event, function: FunctionValue) -> bool:
    return any(place.file is function.file and place.function is function.function for place in event.places)
