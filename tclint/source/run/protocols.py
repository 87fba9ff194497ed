"""Infers what unknown things are from what the program does with them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.run.library import Library
from tclint.source.run.record import Record
from tclint.source.run.values import Constant, Event, Thing, Value, options_of

_PROTOCOLS: tuple[tuple[str, frozenset[str]], ...] = (
    ("scaler", frozenset({"scale", "step"})),
    ("scaler", frozenset({"scale", "update"})),
    ("scaler", frozenset({"unscale_"})),
    ("scaler", frozenset({"scale().backward"})),
    ("optimizer", frozenset({"step", "zero_grad"})),
    ("optimizer", frozenset({"first_step", "second_step"})),
    ("module", frozenset({"()", "parameters"})),
    ("module", frozenset({"()", "train"})),
    ("module", frozenset({"()", "eval"})),
    ("module", frozenset({"()", "zero_grad"})),
    ("module", frozenset({"()", "cuda"})),
)
"""(kind, methods that the program calls on a thing of that kind); '()' is a call of the thing itself."""


class Protocols:
    """Gives unknown things their kinds, and the events on them the kinds and parameters that follow."""

    def __init__(self, record: Record, library: Library) -> None:
        self.record = record
        self.library = library

    def settle(self) -> None:
        """Infer the kinds of all unknown things in the record."""
        self._infer()
        for event in self.record.events:
            self._rename(event)
            self._computes(event)
        # A thing that a newly recognised scaler steps is an optimizer.
        for event in self.record.events:
            if event.kind in ("scaler_step", "unscale"):
                for thing in _unknown(event.arguments.get("optimizer")):
                    _become(thing, "optimizer")
        self._first_stepped()
        for event in self.record.events:
            self._rename(event)
            self._computes(event)
            _step_through_scaler(event)
        self.record.reindex()

    def _infer(self) -> None:
        uses: dict[Thing, set[str]] = {}
        for event in self.record.events:
            for subject in _unknown(event.subject):
                uses.setdefault(subject, set()).add(event.name[1:] if event.name[:1] == "." else "()")
            if event.kind == "backward" and isinstance(event.subject, Thing):
                scale = event.subject.made
                for thing in _unknown(scale.subject) if scale is not None and scale.name == ".scale" else ():
                    uses[thing].add("scale().backward")
        for thing, used in uses.items():
            kind = next((kind for kind, needed in _PROTOCOLS if needed <= used), None)
            if kind is not None:
                _become(thing, kind)

    def _first_stepped(self) -> None:
        """Recognise as optimizer the thing that is stepped first after a backward pass, unless a known
        optimizer is stepped: the gradients must be applied before a scheduler advances."""
        others = {
            thing
            for event in self.record.events
            if event.kind == "backward" or event.name != ".step" or event.arguments
            for thing in _unknown(event.subject)
        }
        waiting: Event | None = None
        for event in self.record.events:
            if event.kind == "backward":
                waiting = event
            elif event.kind in ("step", "scaler_step"):
                waiting = None
            elif event.name == ".step" and not event.arguments and waiting is not None:
                stepped = set(_unknown(event.subject)) - others
                if stepped and event.run == waiting.run:
                    for thing in stepped:
                        _become(thing, "optimizer")
                    waiting = None

    def _rename(self, event: Event) -> None:
        if event.kind != "call" or event.subject is None:
            return
        for option, _ in options_of(event.subject):
            if not isinstance(option, Thing) or "@inferred" not in option.fields:
                continue
            spec = self.library.method(option.kind, event.name[1:] if event.name[:1] == "." else "()")
            if spec is None:
                continue
            event.kind = spec.event or event.kind
            renamed = {}
            for key, value in event.arguments.items():
                position = int(key) if key.isdigit() else -1
                known = 0 <= position < len(spec.parameters)
                renamed[spec.parameters[position] if known else key] = value
            event.arguments = renamed
            if spec.returns in ("op", "tensor"):
                _becomes_tensor(event)
            return

    def _computes(self, event: Event) -> None:
        """Recognise as tensor what is computed from a newly recognised tensor."""
        if event.kind not in ("op", "call") or not any(_is_inferred(value) for value in event.inputs):
            return
        if event.name[:1] == "." and event.subject is not None and _is_inferred(event.subject):
            spec = self.library.method("tensor", event.name[1:])
            if spec is None:
                event.kind = "op"
            elif spec.returns not in ("", "op", "tensor"):
                return
        elif event.name[:1] == ".":
            return
        _becomes_tensor(event)


def _is_inferred(value: Value, depth: int = 2) -> bool:
    """Whether a value is or holds a tensor that was recognised by its use."""
    for option, _ in options_of(value):
        if not isinstance(option, Thing):
            continue
        if option.kind == "tensor" and "@inferred" in option.fields:
            return True
        held = option.fields.values() if depth and option.kind in ("list", "tuple", "dict") else ()
        if any(_is_inferred(item, depth - 1) for item in held):
            return True
    return False


def _becomes_tensor(event: Event) -> None:
    for thing in _unknown(event.result):
        _become(thing, "tensor")


def _unknown(value: Value | None) -> Iterator[Thing]:
    for option, _ in options_of(value) if value is not None else ():
        if isinstance(option, Thing) and option.is_unknown:
            yield option


def _become(thing: Thing, kind: str) -> None:
    thing.kind = kind
    thing.fields["@inferred"] = Constant(True)


def _step_through_scaler(event: Event) -> None:
    """Turn a step of an optimizer that a framework has wrapped into a step through its scaler."""
    scaler = event.changed.get("@scaler")
    if event.kind == "step" and scaler is not None and event.subject is not None:
        event.kind = "scaler_step"
        event.arguments = {"optimizer": event.subject}
        event.subject = scaler
