"""Training steps: the events in each of them and the tests around these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tclint.source.questions.rounds import varies
from tclint.source.run.conditions import covers
from tclint.source.run.facts import Facts
from tclint.source.run.values import (
    Atom,
    Constant,
    Event,
    Loop,
    Path,
    Place,
    Symbol,
    Thing,
    Value,
    options_of,
)

_MAKES_DATA = frozenset({"batch", "factory", "random", "read"})
_WRAPS = frozenset({"enumerate", "iterator", "progress", "zip"})
_ZERO = Constant(0)
_BACKWARDS = ("backward", "trains")
_STEPS = ("step", "scaler_step", "trains")
_RANKS = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})
"""Environment variables by which launchers tell a process its rank."""


@dataclass(frozen=True)
class Step:
    """A training step: the rounds of a loop, or a function that performs one step."""

    loops: frozenset[Loop]
    """The loop, once for each time that it is entered; empty if the step is a function."""
    place: Place
    """The place of its first backward pass."""
    backwards: tuple[Event, ...]
    steps: tuple[Event, ...]
    """The steps of optimizers in it."""
    events: tuple[Event, ...]
    """All events in it, in order."""

    @cached_property
    def _alike(self) -> dict[object, list[Event]]:
        found: dict[object, list[Event]] = {}
        for event in self.events:
            found.setdefault(_identity(event), []).append(event)
        return found

    def alike(self, event: Event) -> list[Event]:
        """The same event on all ways that lead to it in the same rounds of loops, with itself."""
        return self._alike.get(_identity(event), [])

    def conditions(self, event: Event) -> Path:
        """The tests that an event depends on within the step."""
        return event.path[next((item.loop.depth for item in event.loops if item.loop in self.loops), 0) :]

    def is_accumulated(self, backward: Event, stepped: Event) -> bool:
        """Whether a backward pass runs several times for one step of the optimizer: in a loop inside the
        step, or because a test of a remainder guards the step of the optimizer but not the backward pass."""
        loops = {round_.loop.place for round_ in stepped.loops}
        if any(round_.loop.place not in loops and not round_.loop.rounds for round_ in backward.loops):
            return True
        own = {atom for event in self.backwards for atom in self.conditions(event)}
        return any(_has_remainder(atom.subject) for atom in self.conditions(stepped) if atom not in own)


def _identity(event: Event) -> object:
    return event.kind, event.name, event.places, event.loops, event.run


def seen_from(place: Place, event: Event) -> Event:
    """An event moved to the call in the file of a place that leads to it; events in the file stay.

    Events that a library runs are left as they are.
    """
    for depth in range(len(event.places) - 1, -1, -1):
        if event.places[depth].file is place.file and not place.file.is_library:
            return replace(event, place=event.places[depth], stack=event.places[:depth])
    return event


class Steps:
    """Answers about the training steps of one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.record = facts.record

    @cached_property
    def all(self) -> list[Step]:
        """Every training step of the program."""
        return [step for step in self._found if self._is_repeated(step)]

    @property
    def unrepeated(self) -> list[Event]:
        """The backward passes that run once, or on the same data in every round."""
        return [event for step in self._found if not self._is_repeated(step) for event in step.backwards]

    @cached_property
    def _found(self) -> list[Step]:
        found: dict[tuple[object, int], tuple[list[Event], set[Loop]]] = {}
        for event in self.record.of(*_BACKWARDS):
            loop = self._loop_of(event)
            key = (loop.place, -1) if loop is not None else (event.places[0].function, event.run)
            backwards, loops = found.setdefault(key, ([], set()))
            backwards.append(event)
            loops.update([loop] if loop is not None else [])
        return [self._step(loops, tuple(backwards)) for backwards, loops in found.values()]

    @property
    def all_backwards(self) -> list[Event]:
        """The backward passes of all training steps that optimizers follow."""
        return [event for step in self.all if step.steps for event in step.backwards]

    def _loop_of(self, backward: Event) -> Loop | None:
        """The innermost loop around a backward pass that also contains an optimizer's step. A loop over known
        items, such as the optimizers of a GAN, is part of a step."""
        loops = [round_.loop for round_ in reversed(backward.loops)]
        around = [loop for loop in loops if not loop.rounds] or loops
        return next((loop for loop in around if loop in self._stepping), around[0] if around else None)

    @cached_property
    def _stepping(self) -> frozenset[Loop]:
        """The loops in which an optimizer steps."""
        return frozenset(round_.loop for event in self.record.of(*_STEPS) for round_ in event.loops)

    @cached_property
    def _by_run(self) -> dict[int, list[Event]]:
        """Entry point -> its events."""
        found: dict[int, list[Event]] = {}
        for event in self.record.events:
            found.setdefault(event.run, []).append(event)
        return found

    def _step(self, loops: set[Loop], backwards: tuple[Event, ...]) -> Step:
        first = backwards[0]
        if loops:
            loops = loops | {loop.source for loop in loops if loop.source is not None}
            events = tuple(
                event for event in self.record.events if any(item.loop in loops for item in event.loops)
            )
            backwards = tuple(event for event in events if event.kind in _BACKWARDS)
        else:
            events = tuple(self._by_run[first.run])
        steps = tuple(event for event in events if event.kind in _STEPS)
        return Step(frozenset(loops), first.place, backwards, steps, events)

    def _is_repeated(self, step: Step) -> bool:
        """Whether a step runs for one batch after another, neither once nor on all data in every round."""
        if not step.loops:
            # The step is a function that gets its batch as an argument.
            entry = step.backwards[0].places[0].function
            return bool(step.steps) and bool(entry.parameters) and step.backwards[0].run > 0
        counts = all(self._counts(loop) for loop in step.loops)
        return not counts or any(self._gets_data(step, event) for event in step.backwards)

    def _counts(self, loop: Loop) -> bool:
        """Whether a loop only counts: its rounds get nothing but their number."""
        over = loop.over
        while isinstance(over, Thing) and over.kind in _WRAPS and "over" in over.fields:
            over = over.fields["over"]
        return (
            over is None or isinstance(over, Constant) or (isinstance(over, Thing) and over.kind == "range")
        )

    def _gets_data(self, step: Step, backward: Event) -> bool:
        """Whether the loss of a backward pass is computed from something that the round gets."""
        for made in self.facts.made_by(self.facts.loss_of(backward)):
            if not any(item.loop in step.loops for item in made.loops):
                continue
            if (
                made.kind in _MAKES_DATA
                or self.facts.is_of_loader(made)
                or any(
                    item.made is not None and item.made.kind == "random"
                    for item in self.facts.things(made.subject)
                )
            ):
                return True  # the last: a generator of random numbers gives others in every call
            if made.kind == "call" and all(self._is_plain(value) for value in made.inputs):
                return True
            if made.kind == "call" and self._draws(made, step.loops):
                return True
            if any(self._is_of_round(value, step.loops) for value in made.inputs):
                return True
        return False

    def _draws(self, made: Event, loops: frozenset[Loop]) -> bool:
        """Whether a method of something unknown that the loop finds gets how much it shall give:
        `replay.sample(256)`."""
        owners = self.facts.things(made.subject) if made.arguments and made.subject is not None else ()
        return all(map(self._is_setting, made.arguments.values())) and any(
            owner.is_unknown
            and (owner.made is None or not any(item.loop in loops for item in owner.made.loops))
            for owner in owners
        )

    def _is_setting(self, value: Value) -> bool:
        """Whether a value is plain or an attribute of something unknown, such as `config.batch_size`."""
        return all(
            self._is_plain(option)
            or (isinstance(option, Thing) and option.is_unknown and option.made is None)
            for option, _ in options_of(value)
        )

    def _is_plain(self, value: Value) -> bool:
        return all(
            isinstance(option, Constant | Symbol) or (isinstance(option, Thing) and option.kind == "number")
            for option, _ in options_of(value)
        )

    def _is_of_round(self, value: Value, loops: frozenset[Loop], depth: int = 6) -> bool:
        """Whether a value is the item of a round or depends on it, as `data[index]` does."""
        for thing in self.facts.held(value):
            if thing.operation is not None:
                operator, operands = thing.operation
                if operator == "each" and any(operands[0] is loop.over for loop in loops):
                    return True
                if depth and any(self._is_of_round(operand, loops, depth - 1) for operand in operands):
                    return True
        return False

    # -- how often

    def is_repeated(self, event: Event) -> bool:
        """Whether an event happens again and again: in a loop, in the forward of a module or in a training
        step, under no test that varies from round to round."""
        depth = event.loops[-1].loop.depth if event.loops else 0
        if any(varies(atom.subject) for atom in event.path[depth:]):
            return False
        in_step = any(event.index in self._indices(step) for step in self.all)
        return bool(event.loops) or event.inside is not None or in_step

    def _indices(self, step: Step) -> range:
        return range(step.events[0].index, step.events[-1].index + 1) if not step.loops else range(0)

    def every_time(self, step: Step, event: Event) -> bool:
        """Whether an event happens in every step: the only tests around it are those of the step itself and
        those that one process always passes."""
        return not self.deciding(step, event)

    def deciding(self, step: Step, event: Event) -> Path:
        """The tests that decide in which steps an event happens. The body of a `with` over a function that
        yields in both branches of a test happens either way."""
        path = self._deciding(step, event)
        alike = step.alike(event) if path else []
        if len(alike) > 1:
            paths = [self._deciding(step, other) for other in alike]
            common = tuple(atom for atom in path if all(atom in other for other in paths))
            if covers([tuple(atom for atom in other if atom not in common) for other in paths]):
                return common
        return path

    def _deciding(self, step: Step, event: Event) -> Path:
        own = {atom for other in (*step.backwards, *step.steps) for atom in step.conditions(other)}
        # What is computed in some rounds only may reach the backward pass of all of them.
        own = {atom for atom in own if atom.opposite not in own or not varies(atom.subject)}
        own.update(atom for loop in step.loops for atom in loop.lasts_while)
        return tuple(
            atom for atom in step.conditions(event) if atom not in own and not self._always_holds(atom)
        )

    def _always_holds(self, atom: Atom) -> bool:
        if isinstance(atom.other, Value) and not isinstance(atom.other, Constant):
            return True  # the choice among a value's alternatives is not a test of the program
        if atom.test == "is" and atom.other == Constant(None) and not atom.holds:
            return any(thing.kind == "writer" for thing in self.facts.things(atom.subject))
        if atom in self.record.required:
            return True
        operation = atom.subject.operation if isinstance(atom.subject, Thing) else None
        if operation is not None and operation[0] in ("isinstance", "hasattr"):
            return True
        if operation == ("()", (Symbol("torch.cuda.is_available"),)):
            return atom.holds
        if _counts_items(atom.subject) and atom.other in (None, _ZERO):
            # The way for no items at all is for data that a step seldom gets.
            return atom.holds == (atom.test == "truth")
        return self.is_of_process(atom.subject)

    @cached_property
    def asks_for_process(self) -> bool:
        """Whether the program tests which of several processes it is."""
        tests = {atom for event in self.record.events for atom in event.path}
        return any(self.is_of_process(atom.subject) for atom in tests)

    def is_of_process(self, value: Value) -> bool:
        """Whether a value tells the rank of the process, so that one of the processes passes its tests."""
        pending: list[Value] = [value]
        for _ in range(24):
            if not pending:
                break
            item = pending.pop()
            for option, _guard in options_of(item):
                if not isinstance(option, Thing):
                    continue
                if option.fields.get("@chosen by") in (Constant("rank"), Constant("accumulation")):
                    return True
                if option.operation is not None:
                    operands = option.operation[1]
                    if any(isinstance(key, Constant) and key.value in _RANKS for key in operands):
                        return True
                    pending.extend(operands)
                elif option.made is not None and option.kind in ("number", ""):
                    pending.extend(option.made.inputs)
        return False


def _counts_items(value: Value) -> bool:
    """Whether a value is the number of items of something: `len(boxes)`, `mask.numel()`."""
    things = [option for option, _ in options_of(value) if isinstance(option, Thing)]
    return len(things) == len(options_of(value)) and all(
        thing.operation[0] == "len"
        if thing.operation is not None
        else thing.made is not None and thing.made.name in (".numel", ".nelement")
        for thing in things
    )


def _has_remainder(value: Value, depth: int = 6) -> bool:
    return any(
        operator == "%" or (depth > 0 and any(_has_remainder(item, depth - 1) for item in operands))
        for option, _ in options_of(value)
        if isinstance(option, Thing)
        for operator, operands in (option.operation or ("", ()),)
    )
