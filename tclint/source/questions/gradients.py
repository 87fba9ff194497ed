"""Gradients: the backward passes that make them, the factors that scale them, and the events that edit
them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tclint.source.run.conditions import exclude
from tclint.source.run.facts import Facts
from tclint.source.run.values import Constant, Event, Symbol, Thing, Value

UNSEEN = ("call", "escape", "trains")
"""Kinds of events that stand for code whose text is not available."""
_CUTS = frozenset(
    {
        ".clamp_",
        ".clip_",
        ".clamp_min_",
        ".clamp_max_",
        ".masked_fill_",
        ".sign_",
        "torch.clamp_",
        "torch.clip_",
    }
)
_RESCALES = frozenset(
    {".mul_", ".div_", "*=", "/=", "*_", "/_", "torch._foreach_mul_", "torch._foreach_div_"}
)
_MEASURES = frozenset({"norm", "vector_norm", "abs", "max", "mean", "std", "var", "pow", "square"})
_STACKS = frozenset({"torch.stack", "torch.cat", "torch.hstack"})
_LEAST_SCALE = 8
"""The smallest factor that NVIDIA's guide to mixed precision suggests for scaling losses."""
_PRODUCTS = frozenset({"*", "*=", ".mul", ".mul_"})
_INFINITE = frozenset({"math.inf", "torch.inf", "numpy.inf"})
_ADDS = frozenset({".add_", ".sub_", "+=", "-="})
_VIEWS = frozenset({".data", ".detach", "[]", ".view", ".flatten", ".reshape"})


@dataclass(frozen=True, slots=True)
class Backward:
    """A backward pass, the loss that it differentiates, and the scalers that multiplied the loss."""

    event: Event
    loss: Value | None
    scalers: tuple[Thing, ...]
    """The scalers that may have multiplied the loss; empty if the loss is not scaled."""


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
    def by_event(self) -> dict[Event, Backward]:
        """Backward event -> backward pass."""
        return {item.event: item for item in self.backwards}

    def last_backwards(self, event: Event, optimizers: Iterable[Thing] = ()) -> list[Backward]:
        """The backward passes whose gradients an event may use: the latest before it on each path that leads
        to it.

        Args:
            optimizers: only passes that may make gradients for these optimizers; empty: all passes.
        """
        found: list[Backward] = []
        for other in self.record.before(event, "backward"):
            if any(not later.event.path for later in found):
                break  # this one lies on every path
            if optimizers and self.reaches(other, optimizers) is False:
                continue
            if all(exclude(other.path, later.event.path) for later in found):
                found.append(self.by_event[other])
        return found

    def last_scaled(self, event: Event, optimizers: Iterable[Thing] = ()) -> Backward | None:
        """A backward pass of a scaled loss whose gradients an event may use and whose scaler may be enabled.

        Args:
            optimizers: only passes that may make gradients for these optimizers; empty: all passes.
        """
        for backward in self.last_backwards(event, optimizers):
            if backward.scalers and not self.is_off(backward.scalers, event):
                return backward
        return None

    def reaches(self, backward: Event, optimizers: Iterable[Thing]) -> bool | None:
        """Whether a backward pass makes gradients for one of some optimizers; None if that is unknown."""
        owners = {self.facts.root(owner) for item in optimizers for owner in self.facts.parameters_of(item)}
        used = {self.facts.root(item) for item in self.facts.modules_of(self.facts.loss_of(backward))}
        if not owners or not used:
            return None
        if owners & used or any(self.facts.contains(one, other) for one in owners for other in used):
            return True
        # An unknown thing may contain the other module.
        return None if any(item.kind != "module" for item in owners | used) else False

    def is_gradient(self, value: Value | None) -> bool:
        """Whether a value is a gradient or a view of one."""
        for thing in self.facts.things(value):
            current: Thing | None = thing
            while current is not None:
                made, operation = current.made, current.operation
                if made is not None and made.kind == "grad":
                    return True
                following: Value | None = None
                if made is not None and made.name in _VIEWS:
                    following = made.subject
                elif operation is not None and operation[0] == ".":
                    if operation[1][1] == Constant("grad"):
                        return True
                    if operation[1][1] == Constant("data"):
                        following = operation[1][0]
                current = next(self.facts.things(following), None)
        return False

    @cached_property
    def edits(self) -> list[Event]:
        """The events that change gradients depending on their size or by an amount that no scale
        multiplies."""
        return [event for event in self.record.of("op", "call", "set") if self._edits(event)]

    def _edits(self, event: Event) -> bool:
        if event.kind == "set":
            return self._made_of_gradient(event, _CUTS)
        if event.name in _CUTS:
            return self.is_gradient(event.subject)
        if event.name in _ADDS and self.is_gradient(event.subject):
            return self._has_own_size(event.arguments.get("other") or event.first)
        return False

    def _made_of_gradient(self, event: Event, names: frozenset[str]) -> bool:
        """Whether an event assigns to a gradient the result of one of these operations on a gradient, as in
        `p.grad = p.grad.clamp(...)`."""
        if event.name != ".grad":
            return False
        return any(
            thing.made is not None
            and f"{thing.made.name}_" in names
            and any(self.is_gradient(value) for value in thing.made.inputs)
            for thing in self.facts.things(event.arguments["value"])
        )

    def _has_own_size(self, value: Value | None) -> bool:
        """Whether a value is computed only from weights or random numbers, which no loss scale multiplies."""
        made = self.facts.made_by(value)
        read = (thing for event in made for thing in self.facts.read_by(event))
        weights = any("@parameter of" in thing.fields for thing in read)
        return (weights or any(event.kind == "factory" for event in made)) and not any(
            event.kind == "grad" for event in made
        )

    @cached_property
    def rescales(self) -> list[Event]:
        """The events that multiply or divide gradients and so may undo a scale by hand."""
        return [
            event
            for event in self.record.of("op", "call", "set")
            if (event.name in _RESCALES and self.is_gradient(event.subject))
            or (event.kind == "set" and self._made_of_gradient(event, _RESCALES))
        ]

    @cached_property
    def reads(self) -> list[Event]:
        """The events that measure gradients: norms and statistics."""
        return [
            event
            for event in self.record.of("op", "call", "clip")
            if (event.name.rpartition(".")[2] in _MEASURES and any(map(self._holds_gradient, event.inputs)))
            or (event.kind == "clip" and self.gives_infinite_limit(event))
        ]

    @staticmethod
    def gives_infinite_limit(event: Event) -> bool:
        """Whether the limit of a clipping is infinity, so that it only measures the norm."""
        for value in event.arguments.values():
            if isinstance(value, Constant) and value.value == math.inf:
                return True
            if isinstance(value, Symbol) and value.name in _INFINITE:
                return True
        return False

    def _holds_gradient(self, value: Value) -> bool:
        """Whether a value is or holds gradients."""
        for thing in self.facts.held(value):
            if self.is_gradient(thing):
                return True
            parts = thing.made.inputs if thing.made is not None and thing.made.name in _STACKS else ()
            if any(map(self._holds_gradient, parts)):
                return True
        return False

    def clips(self) -> Iterator[Event]:
        """The events that clip gradients by a function of torch or otherwise limit or change them."""
        edits = set(self.edits)
        for event in self.record.events:
            if event.kind == "clip" or event in edits:
                yield event

    def unscaled_between(self, first: Event, second: Event) -> bool:
        """Whether an event between two others removes the scale from the gradients."""
        return bool(self.record.between(first, second, "unscale")) or self.rescaled_between(first, second)

    def rescaled_between(self, first: Event, second: Event) -> bool:
        """Whether gradients are multiplied or divided by hand between two events."""
        return any(first.index < event.index < second.index for event in self.rescales)

    def together(self, *events: Event) -> bool:
        """Whether one run can do all of some events."""
        return not any(
            exclude(one.path, other.path)
            for position, one in enumerate(events)
            for other in events[:position]
        )

    def knows_scale(self, event: Event) -> bool:
        """Whether an argument is computed from the loss scale, as a limit that is scaled along is."""
        return any(
            made.kind == "get_scale"
            for value in event.arguments.values()
            for made in self.facts.made_by(value)
        )

    def may_be_handled_elsewhere(self, scalers: tuple[Thing, ...], first: Event, second: Event) -> bool:
        """Whether unknown code that gets or holds a scaler may use it between two events."""
        wanted = set(scalers) | self._holders(scalers)
        for other in self.record.between(first, second, *UNSEEN):
            if other.subject is None and other.name.startswith("builtins."):
                continue
            if any(thing in wanted for value in other.inputs for thing in self.facts.held(value)):
                return True
        return False

    def may_be_scaled_elsewhere(self, backward: Backward, scalers: tuple[Thing, ...]) -> bool:
        """Whether unknown code, or the program by hand, may scale a loss."""
        holders = set(scalers) | self._holders(scalers)
        event, made = backward.event, self.facts.made_by(backward.loss)
        if event.name == ".backward" and "gradient" in event.arguments:
            # A `backward` with a gradient may be the method of a class other than Tensor.
            return True
        if not made and not any(thing.kind == "tensor" for thing in self.facts.things(backward.loss)):
            return True
        return any(
            other.kind == "get_scale" or thing in holders or self.facts.root(thing) in scalers
            for other in made
            for thing in self.facts.read_by(other)
        )

    def is_scaled_by_hand(self, backward: Backward) -> bool:
        """Whether a loss as a whole is multiplied by a possible loss scale, or gradients by any factor."""
        if any(event.run == backward.event.run for event in self.rescales):
            return True
        for thing in self.facts.things(backward.loss):
            factors: tuple[Value, ...] = ()
            if thing.operation is not None and thing.operation[0] in _PRODUCTS:
                factors = thing.operation[1]
            elif thing.made is not None and thing.made.name in _PRODUCTS:
                factors = thing.made.inputs
            for factor in factors:
                value = factor.value if isinstance(factor, Constant) else None
                if isinstance(value, int | float) and value >= _LEAST_SCALE:
                    return True
                if value is None and not self.facts.made_by(factor):
                    return True
        return False

    def _holders(self, scalers: tuple[Thing, ...]) -> set[Thing]:
        """The things that may hold some scalers: the objects that they are part of, and those that unknown
        code made from them or passed them to."""
        found = {self.facts.root(item) for item in scalers}
        return found.union(*(self._keepers.get(item, ()) for item in scalers))

    @cached_property
    def _keepers(self) -> dict[Thing, set[Thing]]:
        """Thing -> the objects that unknown code made from it or passed it to, and the objects with unknown
        methods that hold it."""
        found: dict[Thing, set[Thing]] = {}
        for event in self.record.of(*UNSEEN):
            if event.subject is None and event.name.startswith("builtins."):
                continue
            given = {thing for value in event.arguments.values() for thing in self.facts.held(value)}
            owners = list(self.facts.things(event.subject))
            for thing in given:
                found.setdefault(thing, set()).update(owners, self.facts.things(event.result))
            for owner in owners:
                for key, value in owner.fields.items():
                    for thing in self.facts.things(value) if str(key)[:1] != "@" else ():
                        found.setdefault(thing, set()).add(owner)
        return found

    def is_off(self, scalers: tuple[Thing, ...], event: Event) -> bool:
        """Whether all of some scalers are known to be disabled at an event."""
        return bool(scalers) and all(self.facts.is_on(item, event.path) is False for item in scalers)

    def same(self, one: Value | None, other: Value | None) -> bool:
        """Whether two values may be the same thing."""
        first, second = set(self.facts.things(one)), set(self.facts.things(other))
        return bool(first & second)

    def is_certain(self, thing: Thing) -> bool:
        """Whether a thing's kind is known from its making and not inferred from its use."""
        return thing.fields.get("@inferred") != Constant(True)
