"""Recording: calls of networks that record for a backward pass although none follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.questions.optimizers import Optimizers
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.steps import Steps
from tclint.source.run.facts import Facts
from tclint.source.run.values import FALSE, Constant, Event, Place, Thing, Value, constant_of, modules_in

_TAKES_GRADIENTS = ("backward", "gradient", "trains", "step", "scaler_step")
_RUNS = ("forward", "call")
_COMPUTES = frozenset({"op", "to", "forward"})
_CUTS = frozenset({".detach", ".data"})


class Unused(NamedTuple):
    """A call that records gradients of weights although no step uses them."""

    call: Event
    network: Thing
    needs_gradients: bool
    """Whether its inputs are computed with a network that another optimizer updates."""
    cleared: Event | None
    """The event that clears the gradients before a step; None if no optimizer updates the network."""


class Recording:
    """Answers about one program."""

    def __init__(self, flow: Flow, autocasts: Autocasts, optimizers: Optimizers, steps: Steps) -> None:
        self.flow = flow
        self.optimizers = optimizers
        self.steps = steps
        self.facts: Facts = flow.facts
        self.record = self.facts.record
        self.autocasts = autocasts

    def evaluating(self) -> Iterator[tuple[Event, Event]]:
        """(call, event that sets the network to evaluation) for calls that record gradients in loops over
        data without a backward pass."""
        for call in self.record.of(*_RUNS):
            if call.subject is None or call.name[:1] == "." or not self._records(call):
                continue
            if call.run and not call.stack:
                continue  # an unknown caller of the function may switch recording off
            evaluation = self._evaluation_of(call)
            if evaluation is not None and self._goes_through_data(call, evaluation):
                yield call, evaluation

    def _evaluation_of(self, call: Event) -> Event | None:
        """The event that has set a network to evaluation before a call of it; None if it is not set so."""
        networks = set(self.facts.things(call.subject))
        for event in self.record.before(call, "evaluate", "train"):
            if not networks.isdisjoint(self.facts.things(event.subject)):
                is_evaluation = event.kind == "evaluate" or event.first == FALSE
                return event if is_evaluation and set(event.path) <= set(call.path) else None
        return None

    def _goes_through_data(self, call: Event, evaluation: Event) -> bool:
        """Whether a call is in a loop over data that begins after the switch to evaluation and computes no
        gradients."""
        outside = {round_.loop for round_ in evaluation.loops}
        for loop in (round_.loop for round_ in call.loops):
            over = loop.over
            if loop in outside or over is None or isinstance(over, Constant):
                continue
            if isinstance(over, Thing) and over.kind in ("range", "parameters"):
                continue
            return not any(
                loop is round_.loop for event in self.record.of(*_TAKES_GRADIENTS) for round_ in event.loops
            )
        return False

    def dropped(self) -> Iterator[Event]:
        """Calls of trained networks that record gradients although their results are detached before anything
        else reads them."""
        found: dict[Place, Event] = {}
        kept: set[Place] = set()
        for call in self.record.of(*_RUNS):
            networks = set(self.facts.things(call.subject)) & self._updated.keys()
            if not networks or not call.arguments or call.inside is not None:
                continue
            seen = self._from_outside(call, {self._updated[item] for item in networks})
            if not self._is_detached(call.result):
                kept.add(seen.place)
            elif self._records(call) and not self._may_be_frozen(networks):
                found[seen.place] = seen
        yield from (call for place, call in found.items() if place not in kept)

    @cached_property
    def _updated(self) -> dict[Thing, Thing]:
        """Network that an optimizer updates, or part of one -> the network."""
        return {
            part: thing
            for event in self.record.of("make")
            for optimizer in self.facts.kinds(event.result, "optimizer")
            for thing in self.facts.parameters_of(optimizer.fields.get("params"))
            for part in (thing, *(modules_in(thing) if thing.kind == "module" else ()))
        }

    def _from_outside(self, call: Event, networks: set[Thing]) -> Event:
        """A call as seen from outside the networks: at the place that calls one of their methods."""
        methods = {
            (owner.file, owner.function.index)
            for network in networks
            for owner in (network.cls.lineage() if network.cls is not None else ())
        }
        for depth, place in enumerate(call.places[1:]):
            if (place.file, place.function.parent) in methods:
                return replace(call, place=call.places[depth], stack=call.places[:depth])
        return call

    def unused(self) -> Iterator[Unused]:
        """The calls of networks that the gradients of a loss flow back through although nothing freezes them,
        and that no optimizer updates, or whose gradients are cleared before their optimizers step."""
        if not self._knows_all_optimizers:
            return
        passes: dict[tuple[Place, ...], list[tuple[Event, list[tuple[Event, Thing]]]]] = {}
        for backward in self.steps.all_backwards:
            calls = list(self._recorded_for(backward))
            passes.setdefault(backward.places, []).append((backward, calls))
        for several in passes.values():
            always = set.intersection(*({call.place for call, _ in calls} for _, calls in several))
            for backward, calls in several:
                for call, network in calls:
                    parts = {network, *modules_in(self.facts.root(network))}
                    owners = {owner for part in parts for owner in self._owners.get(part, ())}
                    cleared = self._cleared(backward, owners) if call.place in always else None
                    if not owners or cleared is not None:
                        whole = self._updated.get(network, network)
                        seen = self._from_outside(call, {whole})
                        yield Unused(seen, whole, self._needs_gradients(seen, owners), cleared)

    def _recorded_for(self, backward: Event) -> Iterator[tuple[Event, Thing]]:
        """The calls of networks that record gradients of their weights for a loss, each with its network."""
        flow = self.autocasts.differentiated(self.facts.loss_of(backward))
        calls = [event for made in flow for event in (made, *made.around) if event.kind in _RUNS]
        for call in dict.fromkeys(calls):
            network = next(self.facts.things(call.subject), None)
            if network is None or call.inside is not None or network.kind != "module" or not call.arguments:
                continue
            if self.facts.is_of_loader(call):
                continue  # batches bring no gradients along
            whole = self.facts.root(network)
            parts = {network, *modules_in(whole)}
            is_trained = not parts.isdisjoint(self._owners)
            if not is_trained and (whole in self._owners or not self.optimizers.has_parameters(whole)):
                continue
            if not parts & self._frozen and self._records(call) and not self._may_be_frozen({network}):
                yield call, network

    def _cleared(self, backward: Event, optimizers: set[Thing]) -> Event | None:
        """The event that clears the gradients which a backward pass makes for some optimizers before any of
        these steps; None if there is none, or if a framework switches such gradients off."""
        for event in self.record.after(backward, "step", "scaler_step", "zero_grad") if optimizers else ():
            stepped = event.arguments.get("optimizer") if event.kind == "scaler_step" else event.subject
            concerned = optimizers.intersection(self.facts.things(stepped))
            if event.kind != "zero_grad":
                if concerned:
                    return None
            elif concerned == optimizers or self._clears_all(event, optimizers):
                toggled = any("@toggled" in optimizer.fields for optimizer in optimizers)
                return event if not toggled else None
        return None

    def _clears_all(self, event: Event, optimizers: set[Thing]) -> bool:
        """Whether a `zero_grad` of a module clears the gradients of all that some optimizers update."""
        modules = self.facts.kinds(event.subject, "module")
        return bool(modules) and all(
            any(self.facts.contains(module, updated) for module in modules)
            for optimizer in optimizers
            for updated in self.optimizers.updated_by(optimizer)
        )

    def _needs_gradients(self, call: Event, owners: set[Thing]) -> bool:
        """Whether the inputs of a network are computed with a network that another optimizer updates."""
        return any(
            not self._owners.get(thing, owners) <= owners
            for value in call.arguments.values()
            for made in self.autocasts.differentiated(value)
            for event in (made, *made.around)
            for thing in self.facts.things(event.subject)
        )

    @cached_property
    def _owners(self) -> dict[Thing, set[Thing]]:
        """Network that optimizers update, or part of one -> these optimizers."""
        found: dict[Thing, set[Thing]] = {}
        for event in self.record.of("make"):
            for optimizer in self.facts.kinds(event.result, "optimizer"):
                for thing in self.optimizers.updated_by(optimizer):
                    for part in (thing, *(modules_in(thing) if thing.kind == "module" else ())):
                        found.setdefault(part, set()).add(optimizer)
        return found

    @cached_property
    def _knows_all_optimizers(self) -> bool:
        """Whether the program makes all optimizers that it steps, from known parameters."""
        stepped = [
            event.arguments.get("optimizer") if event.kind == "scaler_step" else event.subject
            for event in self.record.of("step", "scaler_step")
        ]
        things = [thing for value in stepped for thing in self.facts.things(value)]
        return (
            bool(things)
            and not self.record.of("trains")
            and all(
                thing.made is not None and thing.kind == "optimizer" and self.optimizers.updated_by(thing)
                for thing in things
            )
        )

    @cached_property
    def _frozen(self) -> set[Thing]:
        """The modules some of whose parameters are frozen."""
        switched = [
            event.subject
            for event in self.record.of("set", "requires_grad")
            if event.kind == "requires_grad" or event.name == ".requires_grad"
        ]
        owners = {owner for value in switched for owner in self.facts.parameters_of(value)}
        owners.update(thing for value in switched for thing in self.facts.things(value))
        return {part for owner in owners for part in (owner, *modules_in(owner))}

    def _is_detached(self, value: Value | None) -> bool:
        """Whether everything computed from a value ends in a `.detach()`, `.data` or the like."""
        cut, used = self._fates
        parts = set(self.flow.parts(value))
        return parts.isdisjoint(used) and not parts.isdisjoint(cut)

    @cached_property
    def _fates(self) -> tuple[set[Thing], set[Thing]]:
        """Two sets of results of updated networks and of things computed from them: those from which
        something is detached in the end, and those from which something is used otherwise."""
        calls = (call for call in self.record.of(*_RUNS) if call.inside is None)
        results = (
            call.result
            for call in calls
            if any(item in self._updated for item in self.facts.things(call.subject))
        )
        pending = list(dict.fromkeys(part for result in results for part in self.flow.parts(result)))
        sources: dict[Thing, list[Thing]] = {thing: [] for thing in pending}
        cut, used = set[Thing](), set[Thing]()
        while pending:
            thing = pending.pop()
            for reader in self.flow.readers(thing):
                if reader.name in _CUTS or not any(self._reads(item, thing) for item in reader.inputs):
                    cut.add(thing)
                elif reader.kind in _COMPUTES or reader.name.startswith("torch."):
                    for part in set(self.flow.parts(reader.result)):
                        if part not in sources:
                            sources[part] = []
                            pending.append(part)
                        sources[part].append(thing)
                elif reader.kind != "wait" or reader.name not in (".cpu", ".numpy"):
                    used.add(thing)
        return _upstream(cut, sources), _upstream(used, sources)

    def _reads(self, value: Value, thing: Thing, depth: int = 6) -> bool:
        """Whether a value is, holds or is computed from a thing that is not detached on the way."""
        for item in self.facts.held(value):
            operator, operands = item.operation or ("", ())
            if item is thing:
                return True
            is_cut = operator in (".", "()") and any(f".{constant_of(name)}" in _CUTS for name in operands)
            if depth and not is_cut and any(self._reads(inner, thing, depth - 1) for inner in operands):
                return True
        return False

    def _records(self, call: Event) -> bool:
        """Whether a call records gradients, as far as is known."""
        frozen = call.changed.get("@requires_grad") == FALSE
        switched = self.record.of("grad_mode")
        return not frozen and not switched and self.autocasts.records_gradients(call)

    def _may_be_frozen(self, networks: set[Thing]) -> bool:
        """Whether parameters may be frozen, by the program or by unknown code that gets only the network."""
        if not networks.isdisjoint(self._frozen):
            return True
        return any(
            not networks.isdisjoint(self.facts.held(event.first))
            for event in self.record.of("call")
            if len(event.arguments) == 1 and event.name[:1] != "."
        )


def _upstream(found: set[Thing], sources: dict[Thing, list[Thing]]) -> set[Thing]:
    """The given things and those that they are computed from."""
    pending = list(found)
    while pending:
        new = set(sources[pending.pop()]) - found
        found |= new
        pending.extend(new)
    return found
