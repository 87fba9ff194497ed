"""Memory formats: the conversions of tensors and modules, and the sizes that a program states for tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.run.values import (
    Constant,
    Event,
    Symbol,
    Thing,
    Value,
    constant_of,
    modules_in,
    options_of,
)

LAST = "torch.channels_last"
LAST_3D = "torch.channels_last_3d"
_CONVOLUTION = re.compile(r"Conv(Transpose)?[123]d")
_OTHER = frozenset({"torch.contiguous_format", "torch.preserve_format"})
_KEEP_SIZES = frozenset({".cuda", ".to", ".half", ".float", ".contiguous", ".clone", ".requires_grad_"})
_SIZED = frozenset(f"torch.{name}" for name in ("rand", "randn", "zeros", "ones", "empty"))
"""Functions that take the sizes of their result as arguments."""
_EXPECTS = frozenset({"pytest.raises", ".assertRaises", ".assertRaisesRegex"})
_COPIES = frozenset({"to", "batch", "op", "factory", "make"})
"""Kinds of events that keep the memory format or change it only by their arguments."""


class Conversion(NamedTuple):
    """`x.to(memory_format=...)` or `x.contiguous(memory_format=...)`."""

    event: Event
    format: str | None
    """LAST or LAST_3D; None if it is decided at run time."""

    @property
    def is_of_module(self) -> bool:
        return isinstance(self.event.subject, Thing) and self.event.result is self.event.subject


class Layouts:
    """Answers about one program."""

    def __init__(self, flow: Flow, autocasts: Autocasts) -> None:
        self.flow = flow
        self.autocasts = autocasts
        self.facts = flow.facts
        self.record = flow.record

    @cached_property
    def conversions(self) -> list[Conversion]:
        found = []
        for event in self.record.of("to", "op", "call"):
            given = event.arguments.get("memory_format")
            if given is None or (event.kind != "to" and event.name != ".contiguous"):
                continue
            formats = {option.name if isinstance(option, Symbol) else "" for option, _ in options_of(given)}
            if formats <= _OTHER or any(self._expects_error(region.context) for region in event.regions):
                continue
            known = formats.pop() if len(formats) == 1 else ""
            found.append(Conversion(event, known if known in (LAST, LAST_3D) else None))
        return found

    def _expects_error(self, context: Value) -> bool:
        made = context.made if isinstance(context, Thing) else None
        return made is not None and made.name in _EXPECTS

    def of_module(self, module: Thing) -> list[Conversion]:
        """The conversions of a module or of a module that contains it."""
        return [
            item
            for item in self.conversions
            if item.is_of_module
            and any(part is module for whole in self.facts.things(item.event.subject) for part in _all(whole))
        ]

    def of_value(self, value: Value | None) -> list[Conversion]:
        """The conversions that lead to a value."""
        made = set(self.facts.made_by(value))
        return [item for item in self.conversions if item.event in made]

    def is_sure(self, conversion: Conversion, event: Event) -> bool:
        """Whether a conversion happens wherever an event does."""
        return all(atom in event.path for atom in conversion.event.path)

    def is_known(self, value: Value | None) -> bool:
        """Whether all events between a loop over batches and a value are known."""
        for event in self.facts.made_by(value):
            if event.kind not in _COPIES:
                return False
            collate = event.result.fields.get("collate_fn") if isinstance(event.result, Thing) else None
            if event.kind == "make" and isinstance(collate, Thing | Symbol):
                return False
        return True

    def ranks(self, value: Value | None) -> dict[str, int]:
        """The class names of the convolutions that a module is sure to contain -> the rank of their
        weights."""
        return {
            kind: int(kind[-2]) + 2
            for module in self.facts.kinds(value, "module")
            for part in modules_in(module, only_sure=True)
            if _CONVOLUTION.fullmatch(kind := self.flow.kind(part))
        }

    def is_whole(self, value: Value | None) -> bool:
        """Whether all parts of a module are known."""
        for module in self.facts.kinds(value, "module"):
            for part in modules_in(module):
                known = part.cls is not None or part.name.startswith("torch.nn.")
                made = [item for item in part.fields.values() if isinstance(item, Thing) and item.is_unknown]
                if not known or any(item.made is not None and item.made.kind == "call" for item in made):
                    return False
        return True

    def copies(self, value: Value | None) -> list[Event]:
        """The copies to a device that lead to a value, latest first."""
        return [
            event
            for event in self.facts.made_by(value)
            if event.kind == "to" and ("device" in event.arguments or event.name == ".cuda")
        ]

    def trained(self) -> Iterator[tuple[Event, Thing]]:
        """The calls of modules in a training loop or on the way to a loss, each with its module."""
        record = self.record
        loops = {event.loop for event in record.of("backward", "zero_grad", "step", "scaler_step")} - {None}
        losses = {made for event in record.of("backward") for made in self._behind(event)}
        for event in record.of("forward", "call"):
            if event.inside is not None or event.name[:1] == ".":
                continue
            is_trained = event in losses or any(round_.loop in loops for round_ in event.loops)
            if is_trained and self.autocasts.records_gradients(event):
                for module in self.facts.kinds(event.subject, "module"):
                    yield event, module

    def _behind(self, backward: Event) -> Iterator[Event]:
        """The calls that the loss of a backward pass comes from."""
        for event in self.facts.made_by(self.facts.loss_of(backward)):
            yield event
            yield from event.around

    def sizes(self, value: Value | None) -> tuple[int | None, ...] | None:
        """The sizes of a tensor that a function of torch makes; None if its rank is unknown."""
        made = self.flow.origins(value, _KEEP_SIZES)
        if len(made) != 1 or made[0].name not in _SIZED:
            return None
        given: list[Value] = [
            item for key, item in made[0].arguments.items() if key.isdigit() or key == "size"
        ]
        first = given[0] if len(given) == 1 else None
        if isinstance(first, Thing) and first.kind in ("list", "tuple"):
            items = first.fields
            count = constant_of(items.get("[]"))
            if not isinstance(count, int) or "[~]" in items or "[*]" in items:
                return None
            given = [items["item", position] for position in range(count)]
        elif first is not None and not isinstance(first, Constant):
            return None
        if any(isinstance(item, Thing) and item.kind == "star" for item in given) or not given:
            return None
        numbers = [constant_of(item) for item in given]
        return tuple(number if isinstance(number, int) else None for number in numbers)


def _all(whole: Thing) -> Iterator[Thing]:
    yield whole
    yield from modules_in(whole)
