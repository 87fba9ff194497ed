"""Devices: which values are on a GPU, as far as the program says where it puts them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from tclint.source.run.facts import Facts
from tclint.source.run.interpreter.tensors import METADATA_ATTRIBUTES
from tclint.source.run.values import Constant, Event, Symbol, Thing, Value, options_of

_ON_HOST = frozenset({"number", "array", "optimizer"})
_DEVICE_OF = {
    "torch.device": ("type",),
    "torch.autocast": ("device_type",),
    "torch.amp.GradScaler": ("device",),
}
_DEEP = 100
"""At so many nested questions, and again at each multiple, those that events answer in order come first."""
_MAKES_ON_HOST = frozenset({"batch", "make", "random"})


class Devices:
    """Answers about one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._known: dict[Thing, bool | None] = {}
        self._depth = 0
        """The number of things whose places are being found, each for the one before."""
        self._looked_at = 0
        """The number of events whose results are known from `_look_at_results_before`."""

    def is_gpu(self, device: Value | None) -> bool:
        """Whether a device may be a GPU: it is a GPU, or it is chosen at run time."""
        return any(self._is_gpu(option) for option, _ in options_of(device)) if device is not None else False

    def is_surely_gpu(self, device: Value | None) -> bool:
        """Whether a device can only be a GPU."""
        return device is not None and all(_names_gpu(option) for option, _ in options_of(device))

    def is_in_program_for_gpus(self, value: Value | None) -> bool:
        """Whether a value is on a GPU in a program that names a GPU as a device."""
        return self._names_gpu and self.on_gpu(value) is True

    @cached_property
    def _names_gpu(self) -> bool:
        return any(
            event.name.startswith("torch.cuda.")
            or (device is not None and any(_names_gpu(option) for option, _ in options_of(device)))
            for event in self.facts.record.events
            for device in [event.arguments.get("device", event.arguments.get("type"))]
        )

    def _is_gpu(self, device: Value) -> bool:
        if isinstance(device, Constant):
            if isinstance(device.value, str):
                return device.value.startswith("cuda")
            return isinstance(device.value, int) and not isinstance(device.value, bool)
        if isinstance(device, Thing):
            if device.operation is not None and device.operation[0] == ".":
                owner, attribute = device.operation[1]
                is_object = isinstance(owner, Thing) and owner.cls is not None and not owner.kind
                if attribute == Constant("device") and not is_object and self.on_gpu(owner) is False:
                    return False
            return not device.kind or device.kind == "number"
        return isinstance(device, Symbol) and device.name.startswith("torch.cuda.")

    @cached_property
    def program_uses_gpu(self) -> bool:
        """Whether the program puts something on a GPU or calls a function that is only for GPUs."""
        return any(
            event.name.startswith("torch.cuda.")
            or any(self.is_gpu(event.arguments.get(name)) for name in _DEVICE_OF.get(event.name, ()))
            or (event.kind == "to" and self.is_gpu(event.arguments.get("device")))
            for event in self.facts.record.events
        )

    @cached_property
    def uses_torch(self) -> bool:
        """Whether the program calls anything of torch."""
        return any(event.name.startswith("torch.") for event in self.facts.record.events)

    def may_be_on_gpu(self, value: Value | None) -> bool:
        """Whether a value is on a GPU, or its device is unknown in a program that uses GPUs."""
        found = self.on_gpu(value)
        return found is True or (found is None and self.program_uses_gpu)

    def on_gpu(self, value: Value | None) -> bool | None:
        """Whether a value is on a GPU: put there, or computed from values that are; None if it is unknown."""
        known = {self._of_thing(thing) for thing in self.facts.held(value)}
        return True if True in known else None if None in known else False

    def _of_thing(self, thing: Thing) -> bool | None:
        if thing not in self._known:
            self._known[thing] = False  # stops the recursion where a thing is computed from itself
            self._depth += 1
            if self._depth % _DEEP == 0 and thing.made is not None:
                self._look_at_results_before(thing.made)
            self._known[thing] = self._placed(thing)
            self._depth -= 1
        return self._known[thing]

    def _look_at_results_before(self, event: Event) -> None:
        """Answer for what earlier events gave, each from those before it: a deep network is a long chain. The
        place of a module follows from its inputs, which later events give."""
        while self._looked_at < event.index:
            self._looked_at += 1
            for thing in self.facts.things(self.facts.record.events[self._looked_at - 1].result):
                if thing.kind != "module":
                    self._of_thing(thing)

    def _placed(self, thing: Thing) -> bool | None:
        if thing.kind in _ON_HOST:
            return False
        device = thing.fields.get("@device")
        if device is not None:
            # A module that is on the CPU in the end may have been on a GPU while it was trained.
            before = self.facts.record.on(thing, "forward") if thing.kind == "module" else []
            return self.is_gpu(device) or any(self.is_gpu(event.changed.get("@device")) for event in before)
        owner = thing.fields.get("@parameter of", thing.fields.get("@buffer of"))
        if owner is not None:
            return self.on_gpu(owner)
        if self._all_of(self._given_to.get(thing, ())):
            return True  # a module is where its inputs are
        if thing.made is not None:
            return self._of_result(thing.made)
        if thing.operation is not None:
            if _is_setting(thing.operation):
                return None
            if _describes(thing.operation):
                return False
            operator, operands = thing.operation
            # An item is where the whole is, whatever the index.
            parts = operands[:1] if operator == "[]" else operands
            return self._all_of(item for item in parts if not isinstance(item, Constant | Symbol))
        return None

    def _of_result(self, event: Event) -> bool | None:
        """Whether the result of an event is on a GPU; None if it is unknown."""
        if event.kind == "factory" and not event.name.endswith("_like"):
            return False
        if event.kind == "clip":
            return self._all_of(self.facts.parameters_of(event.arguments.get("parameters")))
        if event.kind in _MAKES_ON_HOST or self._computes_on_host(event):
            return False
        if event.kind == "convert":
            return event.name.startswith("torch.cuda.") or self._all_of(event.inputs) is True
        return self._all_of(item for item in event.inputs if not isinstance(item, Constant | Symbol))

    def _computes_on_host(self, event: Event) -> bool:
        """Whether an event calls a function of a package that gives nothing but host memory."""
        return event.subject is None and event.name.partition(".")[0] in self.facts.library.host

    def _all_of(self, values: Iterable[Value]) -> bool | None:
        """Whether any of several values is on a GPU; None if none is known to be and one is unknown."""
        known = {self.on_gpu(value) for value in values}
        return True if True in known else None if None in known else False

    @cached_property
    def _given_to(self) -> dict[Thing, list[Value]]:
        """Module, or other thing that is called -> the arguments of its calls."""
        found: dict[Thing, list[Value]] = {}
        for event in self.facts.record.of("forward", "call"):
            if event.subject is not None and event.name[:1] != ".":
                for thing in self.facts.things(event.subject):
                    found.setdefault(thing, []).extend(event.arguments.values())
        return found


def _is_setting(operation: tuple[str, tuple[Value, ...]]) -> bool:
    """Whether an operation reads an attribute of a module of the project that is none of its parts, such as
    the `hparams` of Lightning."""
    operator, operands = operation
    owner = operands[0] if operands else None
    return operator == "." and isinstance(owner, Thing) and owner.kind == "module" and owner.cls is not None


def _describes(operation: tuple[str, tuple[Value, ...]]) -> bool:
    """Whether an operation reads the shape or other metadata of a tensor, which the CPU knows."""
    operator, operands = operation
    return (
        operator == "." and isinstance(operands[-1], Constant) and operands[-1].value in METADATA_ATTRIBUTES
    )


def _names_gpu(device: Value) -> bool:
    """Whether a device is a GPU: `"cuda"`, `0`, `f"cuda:{rank}"`."""
    if isinstance(device, Thing) and device.operation is not None and device.operation[1]:
        operator, operands = device.operation
        return (
            operator in ("text", "+", "%") and isinstance(operands[0], Constant) and _names_gpu(operands[0])
        )
    if not isinstance(device, Constant) or isinstance(device.value, bool):
        return False
    return isinstance(device.value, int) or str(device.value).startswith("cuda")
