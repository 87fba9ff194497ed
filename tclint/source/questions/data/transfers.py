"""Transfers: the copies from the memory of the host to a GPU that every training step repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tclint.source.questions.data.arrays import Arrays
from tclint.source.questions.data.constants import Constants
from tclint.source.questions.devices import Devices
from tclint.source.questions.steps import Step, Steps
from tclint.source.run.facts import Facts
from tclint.source.run.values import (
    FALSE,
    Atom,
    Constant,
    Event,
    Place,
    Symbol,
    Thing,
    Value,
    constant_of,
    options_of,
)

_LONGEST_CHAIN = 12


@dataclass(frozen=True)
class Transfer:
    """A copy of a value from the host to a GPU."""

    event: Event
    value: Value
    """What lies on the host."""
    made: Event | None
    """The event that filled its memory; None: the event itself does so from objects of Python."""

    @property
    def is_blocking(self) -> bool:
        """Whether the CPU waits for it."""
        return self.event.arguments.get("non_blocking", FALSE) == FALSE


class Transfers:
    """Answers about one program."""

    def __init__(self, facts: Facts, devices: Devices, steps: Steps) -> None:
        self.facts = facts
        self.record = facts.record
        self.devices = devices
        self.steps = steps
        self.constants = Constants(facts)

    @cached_property
    def repeated(self) -> list[Transfer]:
        """The copies that every training step makes, or every call of a module that nothing is seen to call,
        in order."""
        return [
            transfer
            for event in self.record.of("to", "convert", "op")
            for transfer in self._of(event)
            if event.place not in self._done_once and self._is_in_every_step(event)
        ]

    @cached_property
    def constant(self) -> list[Transfer]:
        """The repeated copies of values that are the same in every step. Memory that a step fills itself, as
        by `torch.zeros` or with one number, is left out: the GPU could fill it."""
        return [
            item
            for item in self.repeated
            if not self._is_filled_in_step(item) and self.constants.is_constant(item.value, item.event)
        ]

    @cached_property
    def numbers(self) -> list[Transfer]:
        """The repeated copies of one number, as by `torch.tensor(0.0, device="cuda")`."""
        return [item for item in self.repeated if _is_number(item.value)]

    @cached_property
    def in_float64(self) -> list[tuple[Event, Event]]:
        """The copies in every step of what is float64 although no dtype is written, each with the event that
        makes it so; none if the program asks for float64."""
        if any(map(_chooses_float64, self.record.events)):
            return []
        arrays = Arrays(self.facts, self.constants)
        return [
            (event, made)
            for event in self.record.of("to", "convert")
            for value in self._copied(event)
            if (made := arrays.float64_by(value)) is not None and self._is_in_every_step(event)
        ]

    @cached_property
    def arrays(self) -> list[Transfer]:
        """The repeated copies that the CPU waits for, from tensors that the step itself makes of NumPy arrays
        or Python objects of its own, and from which a loss is computed."""
        losses = {
            made
            for backward in self.steps.all_backwards
            for made in self.facts.made_by(self.facts.loss_of(backward))
        }
        return [
            item
            for item in self.repeated
            if item.event in losses and item.is_blocking and self._is_of_arrays(item)
        ]

    def _is_of_arrays(self, item: Transfer) -> bool:
        made = item.made if item.made is not None else item.event
        by_loader = self.facts.is_of_loader(made)
        if made.kind != "convert" or by_loader or not self.constants.is_repeated(made, item.event):
            return False
        is_copy = made.name not in ("torch.as_tensor", "torch.asarray") or self.constants.is_array(made.first)
        holds_more = any(
            not isinstance(option, Constant) for option, _ in options_of(made.first or item.value)
        )
        return is_copy and holds_more and not self.constants.is_constant(item.value, item.event)

    def _is_filled_in_step(self, item: Transfer) -> bool:
        made = item.made if item.made is not None else item.event
        by_gpu = made.kind in ("factory", "random") or (made.kind == "convert" and _is_number(made.first))
        return by_gpu and self.constants.is_repeated(made, item.event)

    def _is_in_every_step(self, event: Event) -> bool:
        if self.facts.is_of_loader(event):
            return False
        steps = self._steps_of.get(event)
        if steps:
            return any(
                self.steps.every_time(step, event) and not any(map(_asks_for_device, step.conditions(event)))
                for step in steps
            )
        outermost = list(event.around)[-1:]
        return bool(outermost) and not event.loops and event.path == outermost[0].path

    def is_in_step(self, event: Event) -> bool:
        """Whether an event is in a training step, rather than in a module that nothing is seen to call."""
        return event in self._steps_of

    @cached_property
    def _steps_of(self) -> dict[Event, list[Step]]:
        found: dict[Event, list[Step]] = {}
        for step in self.steps.all:
            for event in step.events:
                found.setdefault(event, []).append(step)
        return found

    def _of(self, event: Event) -> Iterator[Transfer]:
        if event.precedes_error:
            return
        for value in self._copied(event):
            made = self._filled_by(value)
            if made is not None or event.kind == "convert" or _is_plain(value):
                yield Transfer(event, value, made)

    def _copied(self, event: Event) -> Iterator[Value]:
        """The values that an event copies to a GPU."""
        devices = self.devices
        if event.kind == "op":
            if event.name == ".copy_" and devices.on_gpu(event.subject) and event.first is not None:
                yield event.first
            elif event.name in ("[]", "[]=") and devices.on_gpu(event.subject):
                yield from filter(_is_plain, self._keys(event.arguments.get("0")))
        elif event.kind == "to" and event.subject is not None:
            if devices.is_gpu(event.arguments.get("device")) or self._may_be_there(event):
                yield event.subject
        elif event.first is not None and (
            event.name.startswith("torch.cuda.") or devices.is_gpu(event.arguments.get("device"))
        ):
            yield event.first

    def _keys(self, key: Value | None) -> Iterator[Value]:
        """The indices of `x[i, j]`, or the only one."""
        for thing in self.facts.things(key):
            if thing.kind == "tuple":
                yield from (item for name, item in thing.fields.items() if isinstance(name, tuple))
            else:
                yield thing

    def _may_be_there(self, event: Event) -> bool:
        """Whether an event copies something to the device of another tensor that may be on a GPU."""
        other = event.arguments.get("other")
        return other is not None and self.devices.on_gpu(other) is not False

    def _filled_by(self, value: Value | None) -> Event | None:
        """The event that fills the host memory in which a tensor lies; None if it may lie elsewhere."""
        for _ in range(_LONGEST_CHAIN):
            things = list(self.facts.things(value))
            made = things[0].made if len(things) == 1 else None
            if (
                made is None
                or things[0].kind not in ("tensor", "array")
                or self.devices.on_gpu(value) is True
            ):
                return None
            if made.kind in ("convert", "factory", "random"):
                return made
            if made.kind not in ("to", "op") or any(True for _ in self._copied(made)):
                return None
            value = made.subject if made.subject is not None else made.first
            value = next(iter(self.facts.held(value)), None) if made.subject is None else value
        return None

    @cached_property
    def _done_once(self) -> frozenset[Place]:
        """The places of copies whose result takes the place of what was copied: the next round finds it on
        the GPU."""
        kept = {
            option
            for event in self.record.of("forward", "make")
            for thing in self.facts.things(event.subject if event.kind == "forward" else event.result)
            for value in thing.fields.values()
            for option, _ in options_of(value)
        }
        return frozenset(
            event.place
            for event in self.record.of("to", "convert")
            if event.result in kept or self.devices.on_gpu(event.subject) is True
        )


def _asks_for_device(atom: Atom) -> bool:
    """Whether a test asks where a tensor is."""
    return any(
        isinstance(value, Thing)
        and value.operation is not None
        and value.operation[0] == "."
        and constant_of(value.operation[1][-1]) in ("device", "is_cuda")
        for value in (atom.subject, atom.other)
    )


def _is_plain(value: Value) -> bool:
    """Whether a value is a list or tuple of nothing but constants."""
    if not isinstance(value, Thing) or value.kind not in ("list", "tuple"):
        return False
    items = [item for key, item in value.fields.items() if isinstance(key, tuple)]
    return bool(items) and "[*]" not in value.fields and all(isinstance(item, Constant) for item in items)


def _chooses_float64(event: Event) -> bool:
    """Whether an event asks for float64: `model.double()`, `torch.set_default_dtype(torch.float64)`."""
    return Symbol("torch.float64") in event.arguments.values()


def _is_number(value: Value | None) -> bool:
    return value is not None and all(isinstance(option, Constant) for option, _ in options_of(value))
