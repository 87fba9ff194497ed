"""Autocast: the contexts under which values are computed, and the dtypes that they choose."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.questions.defaults import Defaults
from tclint.source.run.conditions import truth
from tclint.source.run.facts import Facts
from tclint.source.run.values import NONE, Constant, Event, Region, Symbol, Thing, Value, options_of

_AVAILABLE = ("()", (Symbol("torch.cuda.is_available"),))
_COMPUTE = frozenset({"forward", "op", "call"})
_CUTS = frozenset({".detach", ".data", ".item", ".numpy"})
_SOURCES = frozenset({"factory", "convert", "batch"})


class Autocasts:
    """Answers about the autocast contexts of one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._flows: dict[Value, tuple[Event, ...]] = {}

    @cached_property
    def made(self) -> list[tuple[Event, Thing]]:
        """The autocast contexts that the program makes, with the events that make them, in order."""
        events = self.facts.record.of("make")
        return [(event, item) for event in events for item in self.facts.kinds(event.result, "autocast")]

    def records_gradients(self, event: Event) -> bool:
        """Whether gradients are recorded at an event, as far as is known."""
        for region in reversed(event.regions):
            for context in self.facts.things(region.context):
                if context.kind == "enable_grad":
                    return True
                if context.kind == "no_grad":
                    mode = context.fields.get("mode") if context.name == "torch.set_grad_enabled" else None
                    return mode is not None and truth(mode, event.path) is not False
        return True

    def differentiated(self, value: Value | None) -> tuple[Event, ...]:
        """The events that the gradients of a value flow back through, latest first."""
        if value is None:
            return ()
        found = self._flows.get(value)
        if found is None:
            found = self._flows[value] = tuple(self._flow(value))
        return found

    def _flow(self, value: Value) -> Iterator[Event]:
        seen: set[Value] = set()
        pending: list[Value] = [value]
        while pending:
            item = pending.pop()
            if item in seen:
                continue
            seen.add(item)
            for thing in self.facts.held(item):
                seen.add(thing)
                event = thing.made
                if event is not None and (event.name in _CUTS or event.kind in _SOURCES):
                    continue
                if thing.operation is not None:
                    pending.extend(thing.operation[1])
                if event is not None and self.records_gradients(event):
                    yield event
                    pending.extend(event.inputs)

    def around(self, event: Event) -> tuple[Region, Thing] | None:
        """The innermost autocast region around an event, with its context; None if there is none, or if the
        context is one of several with different dtypes."""
        for region in reversed(event.regions):
            contexts = self.facts.kinds(region.context, "autocast")
            if contexts:
                same = len({self.dtype_on_gpu(item) for item in contexts}) == 1
                return (region, contexts[0]) if same else None
        return None

    def origins(self, value: Value | None) -> Iterator[tuple[Region, Thing, Event]]:
        """(region, context, operation) for each operation under autocast that the gradients of a value flow
        back through."""
        for event in self.differentiated(value):
            found = self.around(event) if event.kind in _COMPUTE else None
            if found is not None and self.facts.is_on(found[1], event.path) is not False:
                yield *found, event

    def may_be_on_gpu(self, context: Thing) -> bool:
        """Whether a context may be for a GPU: it names one, or its device is unknown in a program that uses
        GPUs."""
        if "cuda" in self.facts.devices_of_autocast(context):
            return True
        device = context.fields.get("device_type")
        return self._uses_gpu and any(thing.is_unknown for thing in self.facts.things(device))

    def is_off_gpu(self, event: Event) -> bool:
        """Whether the tests around an event say that it does not happen on a GPU."""
        return any(
            (atom.test == "==" and atom.other == Constant("cuda" if not atom.holds else "cpu"))
            or (not atom.holds and isinstance(atom.subject, Thing) and atom.subject.operation == _AVAILABLE)
            for atom in event.path
        )

    @cached_property
    def _uses_gpu(self) -> bool:
        """Whether something in the program is on a GPU."""
        record = self.facts.record
        return any(event.name.startswith("torch.cuda.") for event in record.of("call", "make")) or any(
            "cuda" in self.facts.texts(event.arguments.get(name))
            for event in record.of("to", "call", "make")
            for name in ("device", "device_type", "type")
        )

    def dtype_on_gpu(self, context: Thing) -> str:
        """The dtype that a context chooses on a GPU, such as 'torch.float16'; '' if it is unknown, or if the
        context is for another device."""
        if not self.may_be_on_gpu(context):
            return ""
        dtype = context.fields.get("dtype", NONE)
        if dtype == NONE:
            known = "**" not in context.fields and not self.facts.record.of("autocast_default")
            return "torch.float16" if known else ""
        return dtype.name if isinstance(dtype, Symbol) else ""

    def default_dtype_on_gpu(self, context: Thing) -> str:
        """As `dtype_on_gpu`, with the default of an option of the command line that chooses it."""
        options = options_of(context.fields.get("dtype", NONE))
        others = (option for option, _ in options if not isinstance(option, Symbol))
        if not all(isinstance(other, Thing) and "@chosen by" in other.fields for other in others):
            return self.dtype_on_gpu(context)
        chosen = Defaults().value(context.fields["dtype"])
        return chosen.name if isinstance(chosen, Symbol) and self.may_be_on_gpu(context) else ""
