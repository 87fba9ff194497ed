"""Waits: places where the CPU stops until the GPU has computed a value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.questions.devices import Devices
from tclint.source.questions.steps import Step, Steps, seen_from
from tclint.source.run.conditions import covers
from tclint.source.run.facts import Facts
from tclint.source.run.values import Event, Place, Thing, Value, options_of

_OF_TENSORS = frozenset({".item", ".cpu", ".to", ".numpy", ".tolist", ".nonzero"})
_COUNTS = frozenset({"any", "all", "sum", "max", "logical_and", "logical_or", "logical_not", "item"})
"""Operations on the result of a check for NaN that still tell no more than that result."""
_COMPARES = frozenset({"not", "~", "&", "|", "==", "!=", "<", "<=", ">", ">="})


class Waits:
    """Answers about the waits of one program."""

    def __init__(self, facts: Facts, devices: Devices, steps: Steps) -> None:
        self.facts = facts
        self.devices = devices
        self.steps = steps
        self._networks: dict[Place, set[Event]] = {}

    def of(self, step: Step) -> list[tuple[Event, list[Event]]]:
        """The avoidable waits of every step as seen from the file with the backward pass, those in that file
        first, each with the waits that it stands for, which can be deep in its calls; waits for values that
        the step itself needs are left out."""
        waits = [event for event in step.events if self._waits(step, event)]
        needed = {event for event in waits if event.kind == "wait" and self._is_needed(step, event)}
        # Several alternatives of a value can give several events at one place.
        places: dict[tuple[Place, Place], list[Event]] = {}
        for event in waits:
            if event not in needed:
                places.setdefault((event.place, seen_from(step.place, event).place), []).append(event)
        ways = [[self.steps.deciding(step, event) for event in events] for events in places.values()]
        single = {path[0] for paths in ways for path in paths if len(path) == 1}
        found: dict[Place, tuple[Event, list[Event]]] = {}
        for events, paths in zip(places.values(), ways, strict=True):
            if covers(paths) or any(len(path) == 1 and path[0].opposite in single for path in paths):
                shown = seen_from(step.place, events[0])
                found.setdefault(shown.place, (shown, []))[1].append(events[0])
        return sorted(found.values(), key=lambda item: item[0].place.file is not step.place.file)

    def _waits(self, step: Step, event: Event) -> bool:
        if event.precedes_error:
            return False
        if event.kind == "synchronize":
            return not any(map(_times_parts, step.events))
        if event.kind != "wait" or self.facts.is_of_loader(event):
            return False  # a loader's code does not hold up the step
        on_gpu = self.devices.on_gpu(event.subject)
        # If it is unknown where values are, those that the network computes count, unless nothing but a print
        # or the like says that they are tensors: an environment answers actions with plain numbers.
        is_tensor = event.name in _OF_TENSORS or any(self.facts.kinds(event.subject, "tensor"))
        return on_gpu is True or (
            on_gpu is None
            and is_tensor
            and self.devices.program_uses_gpu
            and self._is_of_network(step, event.subject)
        )

    def _is_of_network(self, step: Step, value: Value | None) -> bool:
        """Whether a value is computed with the network of the loss, or from gradients."""
        network = self._networks.get(step.place)
        if network is None:
            losses = (self.facts.loss_of(event) for event in step.backwards)
            network = self._networks[step.place] = {
                made
                for loss in losses
                for made in self.facts.made_by(loss)
                if made.kind == "forward" or (made.kind == "call" and made.subject is not None)
            }
        return any(made in network or made.kind in ("grad", "clip") for made in self.facts.made_by(value))

    def _is_needed(self, step: Step, wait: Event) -> bool:
        """Whether the value decides how the step goes on, is checked for NaN, or goes to an unknown object,
        such as an environment, whose answer is used."""
        if wait.name in ("mask", "slice") or wait.unless:
            # Only a number or the answer of a check is read, whatever is computed with the values otherwise.
            return False
        if any(map(_tells_check, self.facts.things(wait.subject))):
            return True
        for event in step.events:
            if event.kind == "check" and any(self._comes_from(value, wait) for value in event.inputs):
                return True
        for event in (*step.backwards, *step.steps):
            if any(self._comes_from(value, wait) for value in self._asked(step, event)):
                return True
        return any(self._comes_from(value, wait) for value in self._given_away(step))

    def _asked(self, step: Step, event: Event) -> Iterator[Value]:
        for atom in step.conditions(event):
            yield atom.subject
            if isinstance(atom.other, Value):
                yield atom.other

    def _given_away(self, step: Step) -> Iterator[Value]:
        """The arguments of unknown objects' calls whose results are used, and the keys of lookups."""
        for event in step.events:
            if event.kind == "lookup":
                yield from event.arguments.values()
            if event.kind == "call" and event.subject is not None and event.result in self._used:
                yield from event.arguments.values()

    @cached_property
    def _used(self) -> set[Value | None]:
        """The values that some event or test uses."""
        found: set[Value | None] = set()
        pending: list[Value] = []
        for event in self.facts.record.events:
            pending.extend(event.arguments.values())
            pending.extend(atom.subject for atom in event.path)
        while pending:
            for thing in self.facts.things(pending.pop()):
                if thing not in found:
                    found.add(thing)
                    pending.extend(self.facts.held(thing, 1))
                    pending.extend(thing.operation[1] if thing.operation is not None else ())
        return found

    def _comes_from(self, value: Value, wait: Event) -> bool:
        """Whether a value is the result of a wait or computed from it."""
        if wait.result is not None:
            return wait in self.facts.made_by(value)
        subject = wait.subject
        return isinstance(subject, Thing) and subject in self.facts.within(value)


def _times_parts(event: Event) -> bool:
    """Whether an event reads the clock for the time of a part of the step. A generator that hands out batches
    times whole rounds, whose mean is right without waiting."""
    return event.kind == "clock" and not event.place.file.generates(event.place.function)


def _tells_check(thing: Thing) -> bool:
    """Whether a value tells the result of a check for NaN, and is not computed from what passed one."""
    made = thing.made
    if made is None or made.kind == "check":
        return made is not None
    last = made.name.rpartition(".")[2]
    if made.kind not in ("op", "wait") or (last not in _COUNTS and made.name not in _COMPARES):
        return False
    inner = (item for value in made.inputs for item, _ in options_of(value))
    return any(_tells_check(item) for item in inner if isinstance(item, Thing))
