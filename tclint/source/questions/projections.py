"""Finds linear layers that read the same tensor, with the sizes that a program states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.run.values import NONE, Event, Thing, Value


class Projection(NamedTuple):
    """A linear layer that a forward calls."""

    call: Event
    made: Event
    inputs: int
    outputs: int


class Projections:
    """Answers about one program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def sharing_an_input(self) -> Iterator[list[Projection]]:
        """Sets of at least two layers that one forward calls with the same tensor; each is called once and
        not used otherwise."""
        groups: dict[tuple[Event, Value], list[Event]] = {}
        calls: Counter[tuple[Event | None, Value]] = Counter()
        for event in self.flow.record.of("forward"):
            if event.subject is not None and self.flow.kind(event.subject) == "Linear":
                calls[event.inside, event.subject] += 1
                if event.inside is not None and isinstance(event.first, Thing):
                    groups.setdefault((event.inside, event.first), []).append(event)
        for (inside, _), several in groups.items():
            once = [event for event in several if calls[inside, event.subject or event.first or NONE] == 1]
            known = [self._projection(event) for event in once]
            layers = [layer for layer in known if layer is not None]
            alike = {(layer.inputs, self._bias(layer)) for layer in layers}
            if len(layers) == len(several) >= 2 and len(alike) == 1 and self.flow.together(*several):
                yield layers

    def _projection(self, call: Event) -> Projection | None:
        layer = call.subject
        if not isinstance(layer, Thing) or layer.made is None or self.flow.is_used_otherwise(layer):
            return None
        inputs, outputs = (self.flow.size(layer, name) for name in ("in_features", "out_features"))
        return None if inputs is None or outputs is None else Projection(call, layer.made, inputs, outputs)

    def _bias(self, layer: Projection) -> Value | None:
        assert isinstance(layer.call.subject, Thing)
        return self.flow.argument(layer.call.subject, "bias")
