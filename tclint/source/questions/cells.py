"""Finds recurrent cells that a loop calls step by step although all inputs are known before the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.run.record import conditions_in
from tclint.source.run.values import NONE, Constant, Event, Loop, Thing, Value, options_of

_CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "RNNCell": "RNN"}
_FEWEST_STEPS = 4
"""Joining the calls of a loop with fewer known steps saves next to nothing (a choice of this project)."""
_HOOKS = frozenset({".retain_grad", ".register_hook"})


class CellStep(NamedTuple):
    """The calls of a cell in two successive rounds of a loop over time."""

    first: Event
    second: Event
    loop: Loop
    kind: str
    """'LSTM', 'GRU' or 'RNN'."""


class Cells:
    """Answers about one program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.facts = flow.facts

    def known_beforehand(self) -> Iterator[CellStep]:
        """The cells that a recurrent layer could replace, since the inputs of all steps are known before the
        loop."""
        for step in self._steps():
            if self._carries_state(step) and self._input_is_known(step) and self._returns_enough(step):
                yield step

    def _steps(self) -> Iterator[CellStep]:
        """The cells that every round of a loop calls."""
        earlier: dict[tuple[Value, Loop], Event] = {}
        for event in self.flow.record.of("forward"):
            kind = _CELLS.get(self.flow.kind(event.subject))
            loop = event.loop
            if kind is None or loop is None or event.subject is None or loop.stops:
                continue
            before = earlier.get((event.subject, loop))
            earlier[event.subject, loop] = event
            if before is None or before.loops[-1].number == event.loops[-1].number:
                continue
            is_every_time = not conditions_in(event, loop) and not conditions_in(before, loop)
            if is_every_time and loop.over is not None and not self._is_short(loop):
                yield CellStep(before, event, loop, kind)

    def _is_short(self, loop: Loop) -> bool:
        if isinstance(loop.over, Thing) and loop.over.kind == "range":
            stops = [option for option, _ in options_of(loop.over.fields["stop"])]
            return all(
                isinstance(stop, Constant) and isinstance(stop.value, int) and stop.value < _FEWEST_STEPS
                for stop in stops
            )
        return 0 < loop.rounds < _FEWEST_STEPS

    def _carries_state(self, step: CellStep) -> bool:
        """Whether the state passes unchanged from one step to the next."""
        given, made = step.second.arguments.get("hx"), step.first.result
        return given is not None and (given is made or self._items(given) == self._items(made) != [])

    def _items(self, value: Value | None) -> list[Value]:
        if not isinstance(value, Thing) or value.kind != "tuple":
            return []
        return [item for key, item in value.fields.items() if isinstance(key, tuple)]

    def _input_is_known(self, step: CellStep) -> bool:
        """Whether the input of a step is part of a value that exists before the loop."""
        made = self.facts.made_by(step.second.first)
        if step.first in made:
            return False
        receivers = {
            thing
            for event in self.flow.readers_of_parts(step.first.result)
            for thing in self.facts.things(event.subject)
        }
        if any(thing in receivers for event in made for thing in self.facts.things(event.subject)):
            return False
        return bool(self._of_round(step.second) - self._of_round(step.first))

    def _of_round(self, call: Event) -> set[Value]:
        """The parts of a call's input that change with the round of the loop: its item, its number, an
        indexed part of a value."""
        found: set[Value] = set()
        for event in (call, *self.facts.made_by(call.first)):
            values = (call.first,) if event is call else event.inputs
            if event.name == "[]" and event.loop is call.loop and event.result:
                found.add(event.result)
            for value in values:
                for part in self.flow.parts(value):
                    operator = part.operation[0] if part.operation is not None else ""
                    if part.kind == "number" or operator in ("each", "[]"):
                        found.add(part)
        return found

    def _returns_enough(self, step: CellStep) -> bool:
        """Whether a recurrent layer returns all that the loop reads; it does not return an LSTM's cell state
        at each step, nor the gradient of a step's state."""
        results = self._items(step.first.result) or [step.first.result or NONE]
        if step.kind == "LSTM" and any(event is not step.second for event in self.flow.readers(results[-1])):
            return False
        return not any(event.name in _HOOKS for item in results for event in self.flow.readers(item))
