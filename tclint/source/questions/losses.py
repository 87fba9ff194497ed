"""Losses: the calls that compute them, and the targets that they compare with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tclint.source.questions.flow import Flow
from tclint.source.questions.gradients import Gradients
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.precision.dtypes import operator_of
from tclint.source.run.values import Event, Thing, Value, constant_of

_REDUCES = frozenset({".mean", ".sum", "/", "*", "[]", ".squeeze", "torch.mean", "torch.sum"})
_OPAQUE = frozenset({"forward", "call"})


class Losses:
    """Answers about the losses of one program."""

    def __init__(self, flow: Flow, gradients: Gradients, autocasts: Autocasts) -> None:
        self.flow = flow
        self.facts = flow.facts
        self.gradients = gradients
        self.autocasts = autocasts

    def is_target(self, thing: Thing, data: Value | None) -> bool:
        """Whether a loss with a backward pass compares predictions with a thing, which is then its target.

        Args:
            data: the value that the thing was made from; only the first part of a batch may be an input.
        """
        if thing in self._called or thing in self._inputs:
            return False
        index = self._position_of(data)
        for event in self._comparisons:
            first, *others = event.inputs if event.kind == "op" else event.arguments.values()
            if event.kind == "forward" and len(others) > 1:
                continue  # a network of several inputs: which of them it compares with is not known
            if not any(thing in self.facts.within(value) for value in others):
                continue
            if thing not in self.facts.within(first) or (index > 0):
                return True
        return False

    def _position_of(self, data: Value | None) -> int:
        """The position of a value within its batch, if it was only moved or cast since; 0 otherwise."""
        while (thing := next(self.facts.things(data), None)) is not None:
            if thing.made is not None and thing.made.kind == "to":
                data = thing.made.subject
            else:
                operator, operands = thing.operation or ("", ())
                index = constant_of(operands[1]) if operator == "[]" else None
                return index if isinstance(index, int) else 0
        return 0

    @cached_property
    def _called(self) -> frozenset[Thing]:
        """The things that the program calls; they are networks and functions and not data."""
        calls = (event for event in self.facts.record.of(*_OPAQUE) if event.name[:1] != ".")
        return frozenset(thing for event in calls for thing in self.facts.things(event.subject))

    @cached_property
    def _inputs(self) -> frozenset[Thing]:
        """The things that networks get first: what they look at, and what losses call a prediction."""
        return frozenset(
            thing for event in self.facts.record.of("forward") for thing in self.facts.things(event.first)
        )

    @cached_property
    def _comparisons(self) -> list[Event]:
        return list(dict.fromkeys(self._compared()))

    def _compared(self) -> Iterator[Event]:
        """The events that compute a loss from several values, the first of which is the prediction or
        input."""
        for backward in self.gradients.backwards:
            result = self._made_by(backward.loss)
            for event in self.autocasts.differentiated(backward.loss):
                if event in self.flow.followed or event.name[:1] == "." or len(event.inputs) < 2:
                    continue
                kind = next((self.flow.kind(item) for item in self.facts.things(event.subject)), "")
                operator = operator_of(event, kind if event.kind == "forward" else "")
                is_loss = operator == "sub" or operator.endswith("loss") or "cross_entropy" in operator
                if is_loss or (event.kind in _OPAQUE and (event is result or self._is_computed(event.first))):
                    yield event

    def _is_computed(self, value: Value | None) -> bool:
        return any(made.kind in _OPAQUE for made in self.facts.made_by(value))

    def _made_by(self, value: Value | None) -> Event | None:
        """The event that computes a loss before it is scaled or averaged."""
        while (thing := next(self.facts.things(value), None)) is not None:
            made = thing.made
            if made is not None and (made.kind == "scale" or made.name in _REDUCES):
                value = made.first if made.kind == "scale" or made.subject is None else made.subject
            elif thing.operation is not None and thing.operation[0] in (".", "[]"):
                value = thing.operation[1][0]
            else:
                return made
        return None
