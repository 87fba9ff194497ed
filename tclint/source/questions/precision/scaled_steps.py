"""The cycle of a scaled step (backward, unscale_, step, update): calls that belong together, and their
order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import takewhile

from tclint.source.questions.gradients import Backward, Gradients
from tclint.source.questions.rounds import varies
from tclint.source.run.conditions import exclude
from tclint.source.run.record import conditions_in
from tclint.source.run.values import Atom, Event, Thing

_OF_SCALERS = ("scale", "unscale", "scaler_step", "update")


class ScaledSteps:
    """Answers about the calls of one program's scalers."""

    def __init__(self, gradients: Gradients) -> None:
        self.gradients = gradients
        self.facts = gradients.facts
        self.record = gradients.record

    # -- what belongs together

    def optimizers_of(self, event: Event) -> frozenset[Thing]:
        """The optimizers of a step or an unscaling; empty if it concerns all of them or they are unknown."""
        given = event.subject if event.kind == "step" else event.arguments.get("optimizer")
        return frozenset(
            thing for thing in self.facts.held(given) if thing.kind not in ("list", "tuple", "dict")
        )

    @cached_property
    def _stepped(self) -> dict[int, set[frozenset[Thing]]]:
        """Entry point -> the optimizers of each of its steps."""
        found: dict[int, set[frozenset[Thing]]] = {}
        for step in self.record.of("scaler_step", "step"):
            found.setdefault(step.run, set()).add(self.optimizers_of(step))
        return found

    def same_optimizer(self, one: Event, other: Event) -> bool:
        """Whether two calls may concern the same optimizer."""
        first, second = self.optimizers_of(one), self.optimizers_of(other)
        return not first or not second or bool(first & second)

    def same_scaler(self, one: Event, other: Event) -> bool:
        return self.gradients.same(one.subject, other.subject)

    def is_on(self, event: Event) -> bool:
        """Whether the scaler of a call may be enabled there."""
        scalers = tuple(self.facts.kinds(event.subject, "scaler"))
        return bool(scalers) and not self.gradients.is_off(scalers, event)

    def beside(self, event: Event, scalers: Collection[Thing] = ()) -> dict[str, list[Event]]:
        """The calls of a training step in an event's function by their kind: for its fix.

        Args:
            scalers: only the calls of these, and those of no scaler; by default the event's own.
        """
        own = frozenset(scalers or self.facts.kinds(event.subject, "scaler"))
        found = {
            "clip": [item for item in self.gradients.clips() if item.place.function is event.place.function]
        }
        for kind in (*_OF_SCALERS, "backward", "step"):
            calls = [item for item in self.record.of(kind) if item.place.function is event.place.function]
            if own and kind in _OF_SCALERS:
                calls = [item for item in calls if not own.isdisjoint(self.facts.things(item.subject))]
            if kind == "unscale":
                calls = [item for item in calls if self.same_optimizer(item, event)]
            found[kind] = calls
        return found

    def steps(self) -> Iterator[Event]:
        """The steps through the program's own scalers that may be enabled."""
        return self.calls("scaler_step")

    def calls(self, *kinds: str) -> Iterator[Event]:
        """The calls of scalers that may be enabled and that no framework manages."""
        for event in self.record.of(*kinds):
            managed = any("@managed" in item.fields for item in self.facts.kinds(event.subject, "scaler"))
            if self.is_on(event) and not managed:
                yield event

    def serves_several(self, event: Event) -> bool:
        """Whether a call concerns another optimizer in each round: an item of a list, or one made in a loop
        that has ended."""
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
            # Perhaps only one of the rounds steps and the update comes after the loop.
            for update in self.record.after(step, "update", on=step.subject):
                if all(item.loop is not loop for item in update.loops):
                    return False
        following = next(self.again(step, "scaler_step"), None)
        return following is not None and not self.is_updated_between(step, following)

    def again(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Later calls of these kinds for the same optimizer by the same scaler, earliest first."""
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
        """The updates of the scaler that can happen between two calls in a run that does both."""
        return self.record.between(first, second, "update", on=first.subject)

    def updates_after(self, event: Event) -> list[Event]:
        """The updates of a call's scaler that can happen after it."""
        return list(self.record.after(event, "update", on=event.subject))

    def is_updated_between(self, first: Event, second: Event) -> bool:
        """Whether a run that does both calls updates the scaler between them, or unknown code may do so."""
        updates = self.updates_between(first, second)
        if any(not self.skippable(update, first, second) for update in updates):
            return True
        if any(exclude(one.path, other.path) for one in updates for other in updates):
            return True
        scalers = tuple(self.facts.kinds(first.subject, "scaler"))
        return self.gradients.may_be_handled_elsewhere(scalers, first, second)

    def skippable(self, event: Event, *others: Event) -> tuple[Atom, ...]:
        """The tests around an event, but not around the others, whose outcome varies from round to round."""
        known = {atom for other in others for atom in other.path}
        return tuple(atom for atom in event.path if atom not in known and varies(atom.subject))

    def one_always_with_other(self, one: Event, other: Event) -> bool:
        """Whether one of two calls has no tests of its own, so that every run with the other does it too. If
        they are in different rounds, tests that vary from round to round do not count."""
        first, second = set(one.path), set(other.path)
        if not one.shares_rounds(other):
            first = {atom for atom in first if not varies(atom.subject)}
            second = {atom for atom in second if not varies(atom.subject)}
        return first <= second or second <= first

    def includes(self, one: Event, other: Event) -> bool:
        """Whether one call has no tests of its own, so that it happens whenever the other does."""
        return set(one.path) <= set(other.path)

    def scales_for(self, call: Event, backward: Event) -> bool:
        """Whether a backward pass uses a call's scaler and makes gradients for the call's optimizer."""
        if set(self.facts.kinds(call.subject, "scaler")).isdisjoint(
            self.facts.scalers_of(self.facts.loss_of(backward))
        ):
            return False
        return self.is_for(call, backward)

    def is_for(self, call: Event, backward: Event) -> bool:
        """Whether a backward pass makes gradients for a call's optimizer. If that is unknown, it does if the
        entry point steps no other optimizer."""
        optimizers = self.optimizers_of(call)
        reached = self.gradients.reaches(backward, optimizers)
        if reached is None:
            return self._stepped.get(call.run, set()) <= {optimizers}
        return reached

    def backwards_for(self, step: Event) -> list[Backward]:
        """The backward passes that may make the gradients of a step: those since the step before it, latest
        first."""
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
        """The backward passes before a call that use its scaler, latest first."""
        scalers = set(self.facts.kinds(event.subject, "scaler"))
        for other in self.record.before(event, "backward"):
            if scalers & set(self.facts.scalers_of(self.facts.loss_of(other))):
                yield other
