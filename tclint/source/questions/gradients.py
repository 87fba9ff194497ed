"""Gradients: which backward pass makes them, by what they are multiplied, and what changes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tclint.source.run.conditions import exclude
from tclint.source.run.facts import Facts
from tclint.source.run.values import Constant, Event, Thing, Value

_CUTS = frozenset({".clamp_", ".clip_", ".clamp_min_", ".clamp_max_", ".masked_fill_", ".sign_", ".zero_"})
_RESCALES = frozenset({".mul_", ".div_", "*=", "/=", "torch._foreach_mul_", "torch._foreach_div_"})
_ADDS = frozenset({".add_", ".sub_", "+=", "-="})
_VIEWS = frozenset({".data", ".detach", "[]", ".view", ".flatten", ".reshape"})


@dataclass(frozen=True, slots=True)
class Backward:
    """A backward pass."""

    event: Event
    loss: Value | None
    scalers: tuple[Thing, ...]
    """Those that may have multiplied the loss; none: it is as it was computed."""


class Gradients:
    """Answers about the gradients of one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.record = facts.record

    @cached_property
    def backwards(self) -> list[Backward]:
        """Every backward pass, in order."""
        found = []
        for event in self.record.of("backward"):
            loss = self.facts.loss_of(event)
            found.append(Backward(event, loss, self.facts.scalers_of(loss)))
        return found

    @cached_property
    def _by_event(self) -> dict[Event, Backward]:
        return {item.event: item for item in self.backwards}

    def last_backwards(self, event: Event) -> list[Backward]:
        """The backward passes whose gradients something may deal with: the latest before it, one for each way
        that a run can take."""
        found: list[Backward] = []
        for other in self.record.before(event, "backward"):
            if all(exclude(other.path, later.event.path) for later in found):
                found.append(self._by_event[other])
        return found

    def last_scaled(self, event: Event) -> Backward | None:
        """A backward pass of a scaled loss whose gradients something may deal with; its scaler may be on."""
        for backward in self.last_backwards(event):
            if backward.scalers and not self.is_off(backward.scalers):
                return backward
        return None

    def is_gradient(self, value: Value | None) -> bool:
        """Whether a value is the gradient of something, or a view of one."""
        for thing in self.facts.things(value):
            seen = 0
            current: Thing | None = thing
            while current is not None and current.made is not None and seen < 8:
                if current.made.kind == "grad":
                    return True
                if current.made.name not in _VIEWS:
                    break
                current = next(self.facts.things(current.made.subject), None)
                seen += 1
        return False

    @cached_property
    def edits(self) -> list[Event]:
        """Operations that change gradients by their size, or by an amount of its own."""
        return [event for event in self.record.of("op") if self._edits(event)]

    def _edits(self, event: Event) -> bool:
        if event.name in _CUTS and event.name != ".zero_":
            return self.is_gradient(event.subject)
        if event.name in _ADDS and self.is_gradient(event.subject):
            # Other gradients may carry the same scale; noise and weights do not.
            added = event.arguments.get("other") or event.first
            return not any(other.kind == "grad" for other in self.facts.made_by(added))
        return False

    @cached_property
    def rescales(self) -> list[Event]:
        """Operations that multiply or divide gradients, which may undo a scale by hand."""
        return [
            event
            for event in self.record.of("op")
            if event.name in _RESCALES and self.is_gradient(event.subject)
        ]

    def clips(self) -> Iterator[Event]:
        """Clipping by a function of torch, and what else limits or changes gradients."""
        edits = set(self.edits)
        for event in self.record.events:
            if event.kind == "clip" or event in edits:
                yield event

    def unscaled_between(self, first: Event, second: Event) -> bool:
        """Whether something takes the scale away between two events, or may: who gets the scaler can."""
        if self.record.between(first, second, "unscale"):
            return True
        return any(first.index < event.index < second.index for event in self.rescales)

    def together(self, *events: Event) -> bool:
        """Whether one run can do all of some events."""
        return not any(
            exclude(one.path, other.path)
            for position, one in enumerate(events)
            for other in events[:position]
        )

    def knows_scale(self, event: Event) -> bool:
        """Whether an argument is computed from the loss scale: a limit that is scaled as well."""
        return any(
            made.kind == "get_scale"
            for value in event.arguments.values()
            for made in self.facts.made_by(value)
        )

    def may_be_handled_elsewhere(self, scalers: tuple[Thing, ...], event: Event) -> bool:
        """Whether code that is not seen got a scaler before an event, and may have used it."""
        wanted = set(scalers)
        for other in self.record.before(event, "call", "escape"):
            if other.subject is None and other.name.startswith("builtins."):
                continue
            if any(thing in wanted for value in other.arguments.values() for thing in self.facts.held(value)):
                return True
        return False

    def is_off(self, scalers: tuple[Thing, ...]) -> bool:
        """Whether every one of some scalers is known to be disabled."""
        return bool(scalers) and all(self.facts.is_on(item) is False for item in scalers)

    def same(self, one: Value | None, other: Value | None) -> bool:
        """Whether two values may be one thing."""
        first, second = set(self.facts.things(one)), set(self.facts.things(other))
        return bool(first & second)

    def is_certain(self, thing: Thing) -> bool:
        """Whether how a thing was made is seen, rather than told by its use."""
        return thing.fields.get("@inferred") != Constant(True)
