"""Constants of a step: values that are the same in every round of the loops around them, as long as tensors
keep their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.run.facts import Facts
from tclint.source.run.interpreter.tensors import METADATA_ATTRIBUTES
from tclint.source.run.values import Event, Thing, Value, constant_of, options_of

_HOLDS = frozenset({"list", "tuple", "dict", "set", "star"})
_MAKES = frozenset({"convert", "factory", "op", "to", "duplicate"})
"""Kinds of events whose result depends on nothing but their inputs."""
_SIZES = frozenset({".size", ".dim", ".numel", ".nelement"})
_OF_ARRAYS = ("numpy.", "math.")
"""Beginnings of the names of functions whose result depends on nothing but their arguments; those of NumPy
that draw numbers or read files have kinds of their own."""


class Constants:
    """Answers about one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def is_constant(self, value: Value | None, at: Event) -> bool:
        """Whether a value is known to be the same in every round of all loops around an event, and in every
        call of the forwards around it, but for what it takes from the sizes of tensors."""
        return self._is_constant(value, at, set())

    def _is_constant(self, value: Value | None, at: Event, seen: set[Value]) -> bool:
        for option, _ in options_of(value) if value is not None else ():
            if isinstance(option, Thing) and option not in seen:
                seen.add(option)
                if not self._is_constant_thing(option, at, seen):
                    return False
        return True

    def _is_constant_thing(self, thing: Thing, at: Event, seen: set[Value]) -> bool:
        if "@chosen by" in thing.fields or _is_size(thing):
            return True  # an option of the command line, or metadata
        if "@parameter of" in thing.fields or self._is_written(thing, at):
            return False
        parts = [
            item for key, item in thing.fields.items() if isinstance(key, tuple) or key in ("[*]", "over")
        ]
        if not all(self._is_constant(part, at, seen) for part in parts):
            return False
        if thing.kind in _HOLDS:
            # Each round may fill a list of unknown length anew, even with constants.
            return "[~]" not in thing.fields or all(self._is_of_before(part, at) for part in parts)
        event = thing.made
        if event is not None and not self.is_repeated(event, at):
            return True
        if thing.operation is not None and thing.operation[0] not in ("each", "()"):
            return all(self._is_constant(item, at, seen) for item in thing.operation[1])
        if event is None or not self._is_pure(event):
            return False
        return all(self._is_constant(item, at, seen) for item in _read(event))

    def _is_of_before(self, value: Value, at: Event) -> bool:
        things = list(self.facts.things(value))
        return bool(things) and all(
            thing.made is not None and not self.is_repeated(thing.made, at) for thing in things
        )

    def is_repeated(self, event: Event, at: Event) -> bool:
        """Whether an event may happen anew with each round, forward or step that another one is in."""
        loops = {round_.loop for round_ in at.loops}
        forwards = list(at.around)
        return (
            self.facts.is_of_loader(event)
            or any(round_.loop in loops for round_ in event.loops)
            or any(forward in forwards for forward in event.around)
            or (not loops and not forwards and event.run == at.run)
        )

    def _is_pure(self, event: Event) -> bool:
        if event.kind in _MAKES or event.name.startswith(_OF_ARRAYS):
            return event.kind in (*_MAKES, "call")
        return event.kind == "call" and event.name[:1] == "." and self.is_array(event.subject)

    def is_array(self, value: Value | None) -> bool:
        """Whether a value is an array of NumPy."""
        things = list(self.facts.things(value))
        return bool(things) and all(map(self._is_array, things))

    def _is_array(self, thing: Thing) -> bool:
        if thing.kind == "array":
            return True
        event = thing.made
        if event is not None and event.name.startswith("numpy."):
            return event.kind in ("call", "random", "read")
        if event is not None and event.name[:1] == ".":
            return self.is_array(event.subject)
        operator, operands = thing.operation or ("", ())
        return operator not in ("each", "()") and any(
            isinstance(item, Thing) and self._is_array(item) for item in operands
        )

    def _is_written(self, thing: Thing, at: Event) -> bool:
        """Whether a tensor is written to in the rounds of an event, as a function may that is not known and
        gets an array."""
        writes = [
            event
            for event in self.facts.record.on(thing, "op")
            if event.name[-1:] in ("_", "=") and event.name not in ("==", "!=", "<=", ">=")
        ]
        if self._is_array(thing):
            writes += self._given_away.get(thing, ())
        return any(self.is_repeated(event, at) for event in writes)

    @cached_property
    def _given_away(self) -> dict[Value, list[Event]]:
        """Value -> the calls of unknown functions that get it."""
        found: dict[Value, list[Event]] = {}
        for event in self.facts.record.of("call"):
            if event.name[:1] != "." and not event.name.startswith(_OF_ARRAYS):
                for value in event.arguments.values():
                    found.setdefault(value, []).append(event)
        return found


def _is_size(thing: Thing) -> bool:
    """Whether a value tells the size of a tensor, or other metadata."""
    if thing.made is not None and thing.made.name in _SIZES:
        return True
    operator, operands = thing.operation or ("", ())
    return operator == "." and constant_of(operands[-1]) in METADATA_ATTRIBUTES


def _read(event: Event) -> Iterator[Value]:
    """What the contents of an event's result come from: neither a device nor a dtype."""
    if event.kind == "convert" and event.first is not None:
        yield event.first
    elif event.kind == "to" and event.subject is not None:
        yield event.subject
    elif event.kind not in ("convert", "to"):
        yield from event.inputs
