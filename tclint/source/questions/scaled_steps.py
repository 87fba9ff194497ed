"""The cycle of a scaled step (backward, unscale_, step, update): which calls belong together, and in which
order they come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile

from tclint.source.questions.gradients import Backward, Gradients
from tclint.source.questions.rounds import shares_rounds, varies
from tclint.source.run.conditions import exclude
from tclint.source.run.record import conditions_in
from tclint.source.run.values import Atom, Event, Thing


class ScaledSteps:
    """Answers about the calls of one program's scalers."""

    def __init__(self, gradients: Gradients) -> None:
        self.gradients = gradients
        self.facts = gradients.facts
        self.record = gradients.record

    # -- what belongs together

    def optimizers_of(self, event: Event) -> frozenset[Thing]:
        """The optimizers that a step or an unscaling deals with; empty: all of them, or not known."""
        given = event.subject if event.kind == "step" else event.arguments.get("optimizer")
        return frozenset(
            thing for thing in self.facts.held(given) if thing.kind not in ("list", "tuple", "dict")
        )

    @cached_property
    def _stepped(self) -> dict[int, set[frozenset[Thing]]]:
        """Entry point -> the optimizers that each of its steps deals with."""
        found: dict[int, set[frozenset[Thing]]] = {}
        for step in self.record.of("scaler_step", "step"):
            found.setdefault(step.run, set()).add(self.optimizers_of(step))
        return found

    def same_optimizer(self, one: Event, other: Event) -> bool:
        """Whether both may deal with one optimizer."""
        first, second = self.optimizers_of(one), self.optimizers_of(other)
        return not first or not second or bool(first & second)

    def same_scaler(self, one: Event, other: Event) -> bool:
        return self.gradients.same(one.subject, other.subject)

    def is_on(self, event: Event) -> bool:
        """Whether the scaler of a call may be enabled where that stands."""
        scalers = tuple(self.facts.kinds(event.subject, "scaler"))
        return bool(scalers) and not self.gradients.is_off(scalers, event)

    def steps(self) -> Iterator[Event]:
        """Steps through scalers of the program's own that may be on."""
        return self.calls("scaler_step")

    def calls(self, *kinds: str) -> Iterator[Event]:
        """Calls of scalers that may be on, and that no framework takes care of."""
        for event in self.record.of(*kinds):
            managed = any("@managed" in item.fields for item in self.facts.kinds(event.subject, "scaler"))
            if self.is_on(event) and not managed:
                yield event

    def serves_several(self, event: Event) -> bool:
        """Whether a call deals with another optimizer in each round: of a list, or made in a loop that has
        ended."""
        around = {round_.loop for round_ in event.loops}
        return any(
            varies(optimizer)
            or (optimizer.made is not None and any(item.loop not in around for item in optimizer.made.loops))
            for optimizer in self.optimizers_of(event)
        )

    # -- order

    def lacks_update(self, step: Event) -> bool:
        """Whether the next step for the same optimizer can come without an update before it."""
        loop = step.loop
        if loop is not None and any(varies(atom.subject) for atom in conditions_in(step, loop)):
            # Only one of the rounds may step, and the update come after all of them.
            for update in self.record.after(step, "update", on=step.subject):
                if all(item.loop is not loop for item in update.loops):
                    return False
        following = next(self.again(step, "scaler_step"), None)
        return following is not None and not self.is_updated_between(step, following)

    def again(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Later calls of these kinds for the same optimizer by the same scaler, the next first."""
        several = self.serves_several(event)
        for other in self.record.after(event, *kinds, on=event.subject):
            if several and (other.place != event.place or other.loops[:-1] == event.loops[:-1]):
                continue
            if several or self.same_optimizer(event, other):
                yield other

    def clash(self, first: Event, second: Event) -> bool:
        """Whether a run does both of two calls without an update of the scaler between them."""
        return self.one_always_with_other(first, second) and not self.is_updated_between(first, second)

    def updates_between(self, first: Event, second: Event) -> list[Event]:
        """Updates of their scaler that a run which does both can do between them."""
        return self.record.between(first, second, "update", on=first.subject)

    def updates_after(self, event: Event) -> list[Event]:
        """Updates of a call's scaler that a run can do after it."""
        return list(self.record.after(event, "update", on=event.subject))

    def is_updated_between(self, first: Event, second: Event) -> bool:
        """Whether a run that does both updates the scaler between them, as far as is seen."""
        updates = self.updates_between(first, second)
        if any(not self.skippable(update, first, second) for update in updates):
            return True
        if any(exclude(one.path, other.path) for one in updates for other in updates):
            return True
        scalers = tuple(self.facts.kinds(first.subject, "scaler"))
        return self.gradients.may_be_handled_elsewhere(scalers, first, second)

    def skippable(self, event: Event, *others: Event) -> tuple[Atom, ...]:
        """Tests that come out differently from round to round, and that something hangs on while others do
        not."""
        known = {atom for other in others for atom in other.path}
        return tuple(atom for atom in event.path if atom not in known and varies(atom.subject))

    def one_always_with_other(self, one: Event, other: Event) -> bool:
        """Whether a run that does one of two calls does the other as well: under no tests of its own. In
        another round, tests of the round come out anew."""
        first, second = set(one.path), set(other.path)
        if not shares_rounds(one, other):
            first = {atom for atom in first if not varies(atom.subject)}
            second = {atom for atom in second if not varies(atom.subject)}
        return first <= second or second <= first

    def includes(self, one: Event, other: Event) -> bool:
        """Whether one is done wherever the other is: under no tests of its own."""
        return set(one.path) <= set(other.path)

    def scales_for(self, call: Event, backward: Event) -> bool:
        """Whether a backward pass is one of a call's scaler, and makes gradients of the call's optimizer."""
        if set(self.facts.kinds(call.subject, "scaler")).isdisjoint(
            self.facts.scalers_of(self.facts.loss_of(backward))
        ):
            return False
        return self.is_for(call, backward)

    def is_for(self, call: Event, backward: Event) -> bool:
        """Whether a backward pass makes gradients of a call's optimizer: of its weights, or of the one there
        is."""
        optimizers = self.optimizers_of(call)
        reached = self.gradients.reaches(backward, optimizers)
        if reached is None:
            return self._stepped.get(call.run, set()) <= {optimizers}
        return reached

    def backwards_for(self, step: Event) -> list[Backward]:
        """The backward passes that may make the gradients of a step, the latest first: those since the step
        before it."""
        optimizers = self.optimizers_of(step)
        before = (item for item in self.record.before(step, "scaler_step") if self.same_optimizer(item, step))
        start = next((item.index for item in before if not self.skippable(item, step)), -1)
        since = takewhile(lambda item: item.index > start, self.record.before(step, "backward"))
        return [
            self.gradients.by_event[item]
            for item in since
            if self.gradients.reaches(item, optimizers) is not False
        ]

    def backwards_of(self, event: Event) -> Iterator[Event]:
        """Backward passes by the scaler of a call before it, the latest first."""
        scalers = set(self.facts.kinds(event.subject, "scaler"))
        for other in self.record.before(event, "backward"):
            if scalers & set(self.facts.scalers_of(self.facts.loss_of(other))):
                yield other
