"""Facts derived from a record: where tensors come from, what scales them, and what unknown things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from tclint.source.run.conditions import exclude, truth
from tclint.source.run.library import Library
from tclint.source.run.protocols import Protocols
from tclint.source.run.record import Record
from tclint.source.run.values import (
    Constant,
    Event,
    Path,
    Symbol,
    Thing,
    Union,
    Value,
    modules_in,
    options_of,
    root_of,
)

_Found = TypeVar("_Found", Event, tuple[Event, Any], tuple[Event, Any, Any], tuple[Event, Any, Any, Any])
_SAME_SCALE = frozenset({"op", "scale"})
_HELD = frozenset(
    {"star", "list", "tuple", "dict", "set", "parameters", "iterator", "enumerate", "zip", "progress"}
)


class Facts:
    """Answers questions about one record; the constructor infers what unknown things are."""

    def __init__(self, record: Record, library: Library) -> None:
        self.record = record
        self.library = library
        self._parts: dict[Thing, frozenset[Thing]] = {}
        self._scaled: dict[Value, tuple[Thing, ...]] = {}
        self._made: dict[Value, tuple[tuple[Event, ...], frozenset[Value]]] = {}
        Protocols(record, library).settle()
        self._settle_training_calls()

    def _settle_training_calls(self) -> None:
        """Mark calls of unknown objects that run backward and step. Their first argument is computed, and
        another is an optimizer or parameters: `loss_scaler(loss, optimizer,
        parameters=model.parameters())`."""
        for event in self.record.of("call"):
            if event.name[:1] == "." or len(event.arguments) < 2:
                continue
            first, *others = event.arguments.values()
            is_seen = not any(thing.is_unknown for thing in self.things(event.subject))
            kinds = {thing.kind for item in others for thing in self.things(item)}
            if is_seen or kinds.isdisjoint(("optimizer", "parameters")):
                continue
            if any(made.kind in ("op", "forward", "call") for made in self.made_by(first)):
                event.kind = "trains"
        self.record.reindex()

    # -- values

    def things(self, value: Value | None) -> Iterator[Thing]:
        """The things that a value can be."""
        if isinstance(value, Thing):
            yield value
        elif isinstance(value, Union):
            for option in value.options:
                if isinstance(option.value, Thing):
                    yield option.value

    def kinds(self, value: Value | None, kind: str) -> list[Thing]:
        """The things of a kind that a value can be."""
        return [thing for thing in self.things(value) if thing.kind == kind]

    def is_of_loader(self, event: Event) -> bool:
        """Whether a data loader runs it: on the CPU, beside the steps, to make a batch."""
        return any(self.kinds(region.context, "loader") for region in event.regions)

    def held(self, value: Value | None, depth: int = 4) -> Iterator[Thing]:
        """The things that a value can be or hold."""
        for thing in (value,) if isinstance(value, Thing) else self.things(value):
            yield thing
            if depth and thing.kind in _HELD:
                for key, item in thing.fields.items():
                    if isinstance(key, tuple) or key in ("[*]", "over", "element"):
                        yield from self.held(item, depth - 1)

    def made_by(self, value: Value | None) -> tuple[Event, ...]:
        """The operations, calls and forwards that a value comes from, latest first."""
        if value is None:
            return ()
        return self._traced(value)[0]

    def made_since(self, value: Value, ends: Callable[[Event], bool]) -> tuple[Event, ...]:
        """As `made_by`, without what comes before events that `ends` holds for."""
        return tuple(self._walk(value, set(), ends))

    def within(self, value: Value | None) -> frozenset[Value]:
        """The values that a value comes from, including itself."""
        return self._traced(value)[1] if value is not None else frozenset()

    def _traced(self, value: Value) -> tuple[tuple[Event, ...], frozenset[Value]]:
        found = self._made.get(value)
        if found is None:
            seen: set[Value] = set()
            found = self._made[value] = (tuple(self._walk(value, seen)), frozenset(seen))
        return found

    def _walk(
        self, value: Value, seen: set[Value], ends: Callable[[Event], bool] = lambda _: False
    ) -> Iterator[Event]:
        pending: list[Value] = [value]
        while pending:
            item = pending.pop()
            if item in seen:
                continue
            seen.add(item)
            for thing in self.held(item):
                seen.add(thing)
                if thing.operation is not None and not thing.is_property:
                    pending.extend(thing.operation[1])
                pending.extend(self._written.get(thing, ()))
                if thing.made is not None:
                    event = thing.made
                    yield event
                    # A factory gets sizes, or tensors of which it uses only the size.
                    pending.extend(event.inputs if event.kind != "factory" and not ends(event) else ())

    def _in_place(self, value: Value | None) -> Iterator[Thing]:
        """The tensors that a value is: `x.resize_(size)` is `x` itself."""
        for thing in self.things(value):
            yield thing
            if thing.made is not None and thing.made.kind == "op" and thing.made.name[-1:] == "_":
                yield from self._in_place(thing.made.subject)

    @cached_property
    def _written(self) -> dict[Thing, list[Value]]:
        """Tensor -> the values that are written into it or parts of it: `batch[0] = image`."""
        found: dict[Thing, list[Value]] = {}
        for event in self.record.of("op"):
            if event.name == "[]=" and isinstance(event.subject, Thing):
                found.setdefault(event.subject, []).append(event.arguments["value"])
            elif event.name == ".copy_" and event.first is not None:
                for written in self._in_place(event.subject):
                    found.setdefault(written, []).append(event.first)
        return found

    def names_in(self, value: Value | None) -> frozenset[str]:
        """The library names that a value is computed with, such as 'torch.cuda.is_available'."""
        symbols = (item.name for item in self.within(value) if isinstance(item, Symbol))
        return frozenset((*symbols, *(event.name for event in self.made_by(value))))

    def scalers_of(self, value: Value | None) -> tuple[Thing, ...]:
        """The scalers by which a loss may be multiplied."""
        if value is None:
            return ()
        found = self._scaled.get(value)
        if found is None:
            self._scaled[value] = ()
            found = self._scaled[value] = tuple(dict.fromkeys(self._scalers(value)))
        return found

    def _scalers(self, value: Value) -> Iterator[Thing]:
        seen: set[Value] = set()
        pending: list[Value] = [value]
        while pending:
            item = pending.pop()
            if item in seen:
                continue
            seen.add(item)
            for thing in self.held(item):
                if thing.operation is not None and thing.operation[0] != "()":
                    pending.extend(thing.operation[1])
                event = thing.made
                if event is None:
                    continue
                if event.kind == "scale":
                    yield from self.things(event.subject)
                elif event.kind in _SAME_SCALE:
                    pending.extend(event.inputs)

    def read_by(self, event: Event) -> Iterator[Thing]:
        """The things that an event reads."""
        for value in event.inputs:
            yield from self.held(value)

    # -- gradients

    def loss_of(self, event: Event) -> Value | None:
        """The value that a backward event differentiates."""
        if event.kind == "backward" and event.name == ".backward":
            subject = event.subject
            given = event.arguments.get("gradient")
            if given is not None and not any(thing.kind == "tensor" for thing in self.things(subject)):
                return given
            return subject
        return event.first

    def parameters_of(self, value: Value | None) -> frozenset[Thing]:
        """The modules (or unknown things) whose parameters a value is or holds."""
        found: set[Thing] = set()
        for thing in self.held(value):
            owner = thing.fields.get("@parameter of") if thing.kind == "tensor" else None
            over = thing.fields.get("over") if thing.kind == "parameters" else owner
            if over is not None:
                found.update(self.things(over))
            elif thing.kind == "optimizer":
                found.update(self.parameters_of(thing.fields.get("params")))
            elif thing.is_unknown and self.root(thing).kind == "module":
                part = self.root(thing)  # `layer.weight` of any one of a module's layers
                found.update(self.things(part.fields.get("@part of", part)))
            elif thing.is_unknown and thing.made is not None and thing.made.kind == "call":
                # `trainable_parameters(model)`, where the function's code is not available.
                given = (item for value in thing.made.arguments.values() for item in self.things(value))
                found.update(item for item in given if item.kind == "module")
        return frozenset(found)

    def modules_of(self, value: Value | None) -> frozenset[Thing]:
        """The modules that a value was computed with."""
        return frozenset(
            thing
            for event in self.made_by(value)
            if event.kind in ("forward", "call") and event.subject is not None and event.name[:1] != "."
            for thing in self.things(event.subject)
        )

    def networks_of(self, value: Value | None) -> tuple[Thing, ...]:
        """The modules that computed a value, or whose forward ran meanwhile; the latest come first."""
        events = [event for made in self.made_by(value) for event in (made, *made.around)]
        found = (
            thing
            for event in dict.fromkeys(events)
            if event.kind in ("forward", "call") and event.subject is not None and event.name[:1] != "."
            for thing in self.things(event.subject)
        )
        return tuple(dict.fromkeys(found))

    def root(self, thing: Thing) -> Thing:
        """The object that a part of something unknown belongs to: `model` for `model.encoder`."""
        return root_of(thing)

    def contains(self, module: Thing, part: Thing) -> bool:
        """Whether a module is another module or contains it."""
        return module is part or part in self.parts(module)

    def parts(self, module: Thing) -> frozenset[Thing]:
        """A module and the modules in it."""
        found = self._parts.get(module)
        if found is None:
            found = self._parts[module] = frozenset(modules_in(module))
        return found

    # -- settings

    def devices_of_autocast(self, context: Thing) -> frozenset[str]:
        """The types of device that an autocast context may be for, as far as they are known."""
        if context.name.startswith("torch.cuda."):
            return frozenset({"cuda"})
        if context.name.startswith("torch.cpu."):
            return frozenset({"cpu"})
        return self.texts(context.fields.get("device_type"))

    def is_on(self, thing: Thing, path: Path = ()) -> bool | None:
        """Whether an autocast context or a scaler is enabled on a path; None if that is decided at run time.
        It is not enabled where it cannot have been made."""
        if thing.made is not None and exclude(thing.made.path, path):
            return False
        enabled = thing.fields.get("enabled")
        if enabled is None:
            return None if "**" in thing.fields or "*" in thing.fields else True
        return truth(enabled, path)

    def texts(self, value: Value | None) -> frozenset[str]:
        """The strings that a value can be."""
        return frozenset(
            option.value
            for option, _ in (options_of(value) if value is not None else ())
            if isinstance(option, Constant) and isinstance(option.value, str)
        )


def distinct(found: Iterable[_Found]) -> Iterator[_Found]:
    """Keep one event (or tuple that begins with an event) for each place; the second round of a loop repeats
    the events of the first."""
    seen: set[tuple[str, int]] = set()
    for item in found:
        event = item if isinstance(item, Event) else item[0]
        at = (event.place.file.path, event.place.node_id)
        if at not in seen:
            seen.add(at)
            yield item
