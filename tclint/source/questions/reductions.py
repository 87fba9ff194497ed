"""Reductions: losses that the processes of a training exchange although only a log reads them."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.questions.steps import Step, Steps, seen_from
from tclint.source.run.facts import Facts
from tclint.source.run.values import Event, Value

_SCALES = frozenset({"/", "/=", "*", "*="})


class Reductions:
    """Answers about one program."""

    def __init__(self, facts: Facts, steps: Steps) -> None:
        self.facts = facts
        self.steps = steps

    def of(self, step: Step) -> Iterator[tuple[Event, Event]]:
        """(as seen from the file with the backward pass, itself) of the reductions in every step of its loss,
        or of what is computed from it, on which no step depends."""
        losses = {made for event in step.backwards for made in self._made_last(self.facts.loss_of(event))}
        for event in step.events:
            if event.kind != "reduce" or not self.steps.every_time(step, event):
                continue
            value = event.arguments.get("tensor")
            if losses.isdisjoint(self.facts.made_by(value)) or self._decides(step, value):
                continue
            yield seen_from(step.place, event), event

    def _made_last(self, value: Value | None) -> Iterator[Event]:
        """The events that made a loss, without those that only scale it."""
        for thing in self.facts.things(value):
            made = thing.made
            if made is not None and made.kind == "scale":
                yield from self._made_last(made.first)
            elif made is not None and made.name in _SCALES:
                yield from self._made_last(made.subject)
            elif made is not None:
                yield made

    def _decides(self, step: Step, value: Value | None) -> bool:
        """Whether a backward pass is of what is reduced, or whether a step happens depends on it."""
        within = set(self.facts.things(value))
        for event in (*step.backwards, *step.steps):
            for atom in step.conditions(event):
                if not within.isdisjoint(self.facts.within(atom.subject)):
                    return True
        return False
