"""What runs in every training step: the body of a loop, or a function that is called in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.facts.program import Training, loss_of
from tclint.source.names.queries import names_in, words
from tclint.source.syntax.tables import (
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    method_of,
)

_STEP_METHODS = words(
    "training_step train_step train_one_iter train_iter train_batch train_one_batch train_on_batch "
    "optimize_parameters optimise_parameters run_step train_one_step one_step step_batch"
)
_STEP_HOOKS = words(
    "training_step on_after_backward on_before_optimizer_step on_train_batch_end on_before_zero_grad"
)
"""Methods of Lightning modules and callbacks that run in every step."""


class Step(NamedTuple):
    """What runs in every training step."""

    function: Function
    block: int
    """The loop; 0 where the whole function is one step."""
    backwards: tuple[CallEvent, ...]
    losses: tuple[Expression, ...]


def steps_of(context: SourceContext) -> Iterator[Step]:
    """The training steps of a file: bodies of loops, and functions that are one step."""
    program = context.program
    trained = set()
    for training in program.trainings:
        function = training.function
        trained.add(function.index)
        loops: dict[int, list[CallEvent]] = {}
        for event in function.calls:
            if program.goes_backward(function, event.call):
                loops.setdefault(_loop_of_step(training, event), []).append(event)
        for loop, events in loops.items():
            is_step = not _over_epochs(context, function, loop) if loop else _is_step(context, function)
            if is_step:
                losses = (loss_of(event.call) for event in events)
                yield Step(function, loop, tuple(events), tuple(loss for loss in losses if loss is not None))
    if context.amp.framework == "Lightning":
        for function in context.tables.functions:
            is_hook = function.name in _STEP_HOOKS and context.tables.class_of(function) is not None
            if is_hook and function.index not in trained:
                yield Step(function, 0, (), _lightning_loss(function))


def is_repeated(context: SourceContext, training: Training) -> bool:
    """A loop goes around what trains, in its function or around a call of that."""
    return bool(training.block) or _is_step(context, training.function)


def returned_losses(function: Function, position: int) -> tuple[Expression, ...]:
    """The part at a position of what a function returns."""
    found: list[Expression] = []
    for event in function.events:
        if isinstance(event, Return):
            items = event.value.items if isinstance(event.value, Collection) else (event.value,)
            found += items[position : position + 1]
    return tuple(found)


def loss_names(loss: Expression) -> set[str]:
    """`loss` of `loss / steps` and of `loss.mean()`."""
    if isinstance(loss, Name):
        return {loss.dotted}
    if isinstance(loss, Operation):
        return {name for name in names_in(loss) if "loss" in name.lower()}
    if isinstance(loss, Call):
        receiver, _ = method_of(loss)
        return loss_names(receiver) if receiver is not None else set()
    return set()


def _lightning_loss(function: Function) -> tuple[Expression, ...]:
    """What a Lightning module's training_step returns, alone or as `{"loss": loss}`."""
    found = []
    for event in function.events:
        value = event.value if isinstance(event, Return) else None
        if isinstance(value, Collection) and Literal("loss") in value.keys:
            value = value.items[value.keys.index(Literal("loss"))]
        if isinstance(value, Name):
            found.append(value)
    return tuple(found) if function.name == "training_step" else ()


def _loop_of_step(training: Training, backward: CallEvent) -> int:
    """The innermost loop around a backward call that holds the optimizer's step as well."""
    function = training.function
    steps: set[int] | None = function.known.get("steps")
    if steps is None:
        steps = function.known["steps"] = {
            index
            for event in function.calls
            if method_of(event.call)[1] == "step"
            for index in function.enclosing(event.block)
        }
    loops = [index for index in function.enclosing(backward.block) if function.blocks[index].kind == "loop"]
    return next((index for index in loops if index in steps), loops[0] if loops else 0)


def _over_epochs(context: SourceContext, function: Function, loop: int) -> bool:
    """`for epoch in range(n)`: one step per epoch, where a number per epoch is what is wanted."""
    return any(
        index == loop and any("epoch" in name.lower() for name in header.targets)
        for index, _, header in context.program.loops_of(function)
    )


def _is_step(context: SourceContext, function: Function) -> bool:
    """A function without a loop that goes backward once: called in a loop, or by its name."""
    if function.kind != "function" or any("epoch" in item.name.lower() for item in function.parameters):
        return False
    callers = [(context, *call) for call in context.resolver.callers.get(function.index, [])]
    callers = callers or list(context.callers_elsewhere(function))
    loops = [
        (where, caller, loop)
        for where, caller, event in callers
        if (loop := where.program.loop_around(caller, event.block))
    ]
    if loops:
        return not any(_over_epochs(where, caller, loop) for where, caller, loop in loops)
    return not callers and function.name in _STEP_METHODS
