"""Weights of trained models: their dtype when they are used, and the event that set it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tclint.source.questions.gradients import UNSEEN, Backward, Gradients
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.run.conditions import exclude
from tclint.source.run.values import Constant, Event, Symbol, Thing, Value, options_of
from tclint.source.syntax.tables import Call, method_of

_DTYPES = {
    "float16": "torch.float16",
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float32": "torch.float32",
}
"""The strings by which libraries accept dtypes."""


def dtype_named(value: Value | None) -> str:
    """The floating-point dtype that a value is or names, such as 'torch.float16'; '' for other values, or if
    it is chosen at run time."""
    names = set()
    for option, _ in options_of(value) if value is not None else ():
        name = option.name if isinstance(option, Symbol) else ""
        if isinstance(option, Constant) and isinstance(option.value, str):
            name = _DTYPES.get(option.value.removeprefix("torch."), "")
        names.add(name if name in _DTYPES.values() else "")
    return names.pop() if len(names) == 1 else ""


def half_named(value: Value | None) -> str:
    """The 16-bit dtype that a value is or names; '' for others."""
    found = dtype_named(value)
    return "" if found == "torch.float32" else found


class Cast(NamedTuple):
    """A trained module whose weights have a 16-bit dtype when it is used."""

    module: Thing
    dtype: str
    """'torch.float16', 'torch.bfloat16'."""
    use: Event
    """The forward."""
    event: Event
    """The event that set the dtype."""
    optimizer: Event
    """The event that made the optimizer of its parameters."""


class Weights:
    """Answers about the weights of one program's models."""

    def __init__(self, gradients: Gradients, autocasts: Autocasts) -> None:
        self.gradients = gradients
        self.autocasts = autocasts
        self.facts = gradients.facts
        self.record = gradients.record
        self._casts_of: dict[Thing, list[Event]] = {}
        """Module -> the casts of it and of what contains it, latest first."""

    def casts(self, backward: Backward, optimizers: frozenset[Thing]) -> Iterator[Cast]:
        """The 16-bit modules that the gradients of a loss flow through and that some optimizers update."""
        for use in self.autocasts.differentiated(backward.loss):
            if use.kind not in ("forward", "call") or use.name[:1] == ".":
                continue
            for module in self.facts.things(use.subject):
                yield from self._of(module, use, optimizers)

    def _of(self, module: Thing, use: Event, optimizers: frozenset[Thing]) -> Iterator[Cast]:
        event = self.cast_of(module, use)
        if event is None:
            return
        dtype = half_named(event.arguments.get("dtype") or use.changed.get("@dtype"))
        if not dtype or self._trains_others(module, event, use):
            return
        for optimizer in optimizers:
            if optimizer.made is not None and self._updates(optimizer, module):
                yield Cast(module, dtype, use, event, optimizer.made)

    def model_name(self, cast: Cast) -> str:
        """The program's name for a model: as it passes the parameters to an optimizer, or as it casts the
        model."""
        for event in self.record.before(cast.optimizer, "call"):
            asks = event.name.endswith("parameters") and event.receiver_name != "self"
            owners = self.facts.things(event.subject) if asks else ()
            known = any(self.facts.contains(thing, cast.module) for thing in owners)
            if known and not event.place.file.is_library:
                return event.receiver_name
        place = cast.event.place
        for assignment in place.function.assignments:
            if isinstance(assignment.value, Call) and assignment.value.node_id == place.node_id:
                return assignment.targets[0]
        return cast.event.receiver_name or "model"

    def without_masters(self, step: Event, optimizers: frozenset[Thing]) -> Iterator[tuple[Cast, Thing]]:
        """The bfloat16 modules that a step of Adam or its kind updates where nothing keeps their weights in
        float32, each with its optimizer.

        Those that run under an autocast which the program itself enters are left out: there the cast of the
        weights is what is wrong.
        """
        for optimizer in optimizers:
            kept = (scaler.fields for scaler in self.facts.things(optimizer.fields.get("@scaler")))
            if "@normalizes" not in optimizer.fields or any("@masters" in fields for fields in kept):
                continue
            for backward in self.gradients.last_backwards(step, (optimizer,)):
                for cast in self.casts(backward, frozenset((optimizer,))):
                    around = self.autocasts.around(cast.use)
                    is_own = around is not None and not around[0].place.file.is_library
                    if cast.dtype == "torch.bfloat16" and "@sharded" not in cast.use.changed and not is_own:
                        yield cast, optimizer

    def cast_of(self, module: Thing, use: Event) -> Event | None:
        """The event that set the dtype which a module has when it is used: a cast of the module or of one
        that contains it, or the event that made it."""
        if module not in self._casts_of:
            same = self._same(module)
            self._casts_of[module] = [
                event
                for event, moved in self._moves
                if event.kind == "to" and "dtype" in event.arguments
                if any(thing in same or self.facts.contains(thing, module) for thing in moved)
            ]
        for event in self._casts_of[module]:
            if self._comes_before(event, use):
                return event
        made = module.made
        if made is not None and made.kind == "make" and "@dtype" not in use.changed:
            # Layers are made in the default dtype.
            defaults = self.record.of("default_dtype")
            return next((event for event in reversed(defaults) if self._comes_before(event, made)), made)
        return made

    @cached_property
    def _moves(self) -> list[tuple[Event, list[Thing]]]:
        """The casts, copies and wrappers, latest first, each with what it concerns."""
        return [(event, self._moved(event)) for event in reversed(self.record.of("to", "wrap"))]

    def _moved(self, event: Event) -> list[Thing]:
        """The modules that a cast or a copy concerns; `Net().half()` does not concern other instances of
        `Net`."""
        receiver = method_of(event.call)[0] if event.call is not None else None
        moved = [*self.facts.things(event.result)]
        return moved if isinstance(receiver, Call) else [*moved, *self.facts.things(event.subject)]

    def _same(self, module: Thing) -> set[Thing]:
        """The values that stand for the same module, since `to` returns the module itself."""
        found = {module}
        for _, moved in self._moves:
            if not found.isdisjoint(moved):
                found.update(moved)
        return found

    def _comes_before(self, event: Event, use: Event) -> bool:
        """Whether an event happens before a module is used: in the same run, in the file's body or in the
        constructor of the object."""
        if event.index >= use.index or exclude(event.path, use.path):
            return False
        return event.run in (use.run, 0) or any(place.function.name == "__init__" for place in event.places)

    def _updates(self, optimizer: Thing, module: Thing) -> bool:
        roots = {self.facts.root(item) for item in self._same(module)}
        for owner in self.facts.parameters_of(optimizer):
            if self.facts.root(owner) in roots or self.facts.contains(owner, module):
                return True
        return False

    def _trains_others(self, module: Thing, cast: Event, use: Event) -> bool:
        """Whether training may concern weights other than the cast ones: adapters, the trainable rest of a
        partly frozen model, or weights that unknown code makes."""
        if not {"@adapters", "@quantized"}.isdisjoint(use.changed):
            return True
        frozen = (event for event, owner in self._frozen if self._is_part(owner, module))
        given = (event for event in self._given.get(module, ()) if event.index > cast.index)
        return any(
            event.index < use.index and event.run == use.run and not exclude(event.path, use.path)
            for event in (*frozen, *given)
        )

    @cached_property
    def _frozen(self) -> list[tuple[Event, Value | None]]:
        """(event, value concerned) for each switch of gradients, off or on."""
        return [
            (event, event.subject)
            for event in self.record.events
            if (event.kind == "set" and event.name == ".requires_grad")
            or (event.name == ".requires_grad_" and Constant(False) in event.arguments.values())
        ]

    @cached_property
    def _given(self) -> dict[Thing, list[Event]]:
        """Thing -> the calls of unknown code that get it."""
        found: dict[Thing, list[Event]] = {}
        for event in self.record.of(*UNSEEN):
            if event.subject is None and not event.name.startswith("builtins."):
                for value in event.arguments.values():
                    for thing in self.facts.held(value):
                        found.setdefault(thing, []).append(event)
        return found

    def _is_part(self, value: Value | None, module: Thing) -> bool:
        """Whether a value is a module, a part of it or one of its parameters."""
        for thing in self.facts.things(value):
            owner = thing.fields.get("@parameter of", thing)
            if any(
                item is module or self.facts.contains(module, item) or self.facts.contains(item, module)
                for item in self.facts.things(owner)
            ):
                return True
        return False
