"""Launches: loops of training steps that start small kernels one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tclint.source.questions.devices import Devices
from tclint.source.questions.rounds import varies
from tclint.source.questions.steps import Step, Steps
from tclint.source.run.facts import Facts
from tclint.source.run.values import Event, Loop, Place, Thing, Value

_LAUNCH_NOTHING = frozenset(
    {
        ".T",
        ".chunk",
        ".data",
        ".detach",
        ".expand",
        ".flatten",
        ".grad",
        ".mT",
        ".narrow",
        ".permute",
        ".reshape",
    }
    | {
        ".requires_grad_",
        ".select",
        ".split",
        ".squeeze",
        ".t",
        ".transpose",
        ".unbind",
        ".unsqueeze",
        ".view",
    }
    | {".view_as", "[]", ".detach_"}
)
"""Operations that give another view of the same memory."""
_NO_LOOP_OF_KERNELS = frozenset({"forward", "backward", "reduce", "exchange"})
"""Events of loops that take more than the launches of their kernels."""


@dataclass(frozen=True)
class LaunchLoop:
    """A loop that every step of a training runs."""

    loop: Loop
    step: Step
    kernels: tuple[Event, ...]
    """The operations that launch a kernel in one round, in order."""


class Launches:
    """Answers about one program."""

    def __init__(self, facts: Facts, devices: Devices, steps: Steps) -> None:
        self.facts = facts
        self.devices = devices
        self.steps = steps

    def over_parameters(self) -> Iterator[LaunchLoop]:
        """The loops over the parameters of modules, one for each place, that compute on the GPU and run
        neither a module nor a backward pass, nor exchange anything with other processes."""
        seen: set[Place] = set()
        for step in self.steps.all:
            for loop, events in self._loops_in(step):
                if loop.place in seen or not self._goes_through_parameters(loop.over):
                    continue
                kernels = self._kernels(events)
                if kernels and not any(event.kind in _NO_LOOP_OF_KERNELS for event in events):
                    seen.add(loop.place)
                    yield LaunchLoop(loop, step, kernels)

    def _loops_in(self, step: Step) -> Iterator[tuple[Loop, list[Event]]]:
        """The loops that each round of a step enters, with the events of their first rounds."""
        found: dict[Loop, list[Event]] = {}
        for event in step.events:
            inner = [round_ for round_ in event.loops if round_.loop not in step.loops]
            if step.loops:
                around = [round_.loop for round_ in event.loops]
                start = max(at for at, loop in enumerate(around) if loop in step.loops)
                inner = list(event.loops[start + 1 :])
            for round_ in inner:
                if round_.number == 0:
                    found.setdefault(round_.loop, []).append(event)
        # What decides within the loop, such as whether a parameter has a gradient, does not count.
        entered = {
            loop: replace(events[0], path=events[0].path[: loop.depth]) for loop, events in found.items()
        }
        own = {atom for event in (*step.backwards, *step.steps) for atom in step.conditions(event)}
        under = {(loop.place, atom) for loop, event in entered.items() for atom in step.conditions(event)}
        for loop, events in found.items():
            # Of several ways to train, such as optimizers that an option chooses, none is taken for granted.
            others = [atom.opposite for atom in step.conditions(entered[loop]) if not varies(atom.subject)]
            is_choice = any(atom in own and (loop.place, atom) not in under for atom in others)
            if not is_choice and not self.steps.deciding(step, entered[loop]):
                yield loop, events

    def _goes_through_parameters(self, over: Value | None) -> bool:
        return any(
            thing.kind == "parameters" or "@parameter of" in thing.fields for thing in self.facts.held(over)
        )

    def _kernels(self, events: list[Event]) -> tuple[Event, ...]:
        found = tuple(
            event
            for event in events
            if event.kind == "op" and event.name not in _LAUNCH_NOTHING and not event.precedes_error
        )
        return found if any(map(self._may_be_on_gpu, found)) else ()

    def _may_be_on_gpu(self, event: Event) -> bool:
        return any(self.devices.may_be_on_gpu(value) for value in event.inputs if isinstance(value, Thing))
