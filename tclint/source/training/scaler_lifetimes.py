"""How long a loss scaler lives, followed through a function and its callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.facts.scaling import Made
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.conditions import conditions_of
from tclint.source.names.queries import root_name, words
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Collection,
    Function,
    Literal,
    Name,
    dotted,
    method_of,
)

_OF_OPTIMIZERS = words(
    "step first_step second_step zero_grad state_dict load_state_dict add_param_group train eval"
)
"""Methods of optimizers; none of them makes one."""
_FOLLOWED = 3
"""How many calls deep a function is below the loop."""


class RecreatedInLoop(NamedTuple):
    """A scaler that is made again and again while one optimizer goes on."""

    made: Made
    backward: Op
    call: int | None
    """What runs the function again and again; None: the function has a loop of its own."""


def recreated_in_loop(context: SourceContext, view: View) -> Iterator[RecreatedInLoop]:
    """Scalers that a function makes in the loop whose backward passes they scale, or anew in every call
    by a loop of the file."""
    function = view.function
    for made in context.scaling.made:
        if made.function != function.index or made.enabled is False or _when_missing(function, made):
            continue
        for backward in view.of("scaled_backward"):
            origins, _ = context.scaling.origins(function, backward.scaler)
            if not any(origin.node_id == made.node_id for origin in origins):
                continue
            if _in_loop(context, function, made, backward):
                yield RecreatedInLoop(made, backward, None)
                break
            call = _called_in_loop(context, view, backward)
            if call is not None:
                yield RecreatedInLoop(made, backward, call)
                break


def _when_missing(function: Function, made: Made) -> bool:
    """`if self.scaler is None:` makes it once."""
    return any(
        (condition.holds and " is None" in condition.text) or "hasattr" in condition.text
        for condition in conditions_of(function, made.block)
    )


def _in_loop(context: SourceContext, function: Function, made: Made, backward: Op) -> bool:
    around = function.enclosing(backward.places[0].block)
    for loop in function.enclosing(made.block):
        if function.blocks[loop].kind != "loop":
            continue
        if _makes_optimizer(context, function, loop):
            return False
        if loop in around and not _over_phases(context, function, loop):
            return True
    return False


def _over_phases(context: SourceContext, function: Function, loop: int) -> bool:
    """`for phase in ("train", "val")`: only one of the rounds trains."""
    for block, _, header in context.program.loops_of(function):
        iterated = getattr(header.value, "parts", (None,))[0]
        if block == loop and isinstance(iterated, Collection):
            return all(isinstance(item, Literal) for item in iterated.items)
    return False


def _makes_optimizer(context: SourceContext, function: Function, block: int) -> bool:
    """An optimizer is made in a block, not only where there is none yet."""
    for event in function.events:
        if block not in function.enclosing(event.block) or _only_when_missing(function, event.block):
            continue
        if isinstance(event, CallEvent):
            called = dotted(event.call.function).lower()
            if "optim" in called and method_of(event.call)[1] not in _OF_OPTIMIZERS:
                return True
        elif isinstance(event, Assignment) and not event.unpacked and isinstance(event.value, Call):
            # `optimizer = AdamW(...)`, however the class is imported.
            made = dotted(event.value.function).rpartition(".")[2]
            if made[:1].isupper() and any(
                context.amp.is_optimizer(function, Name(target)) for target in event.targets
            ):
                return True
    return False


def _only_when_missing(function: Function, block: int) -> bool:
    """`if key not in self.optimizers:`, `if self.optimizer is None:`."""
    return any(
        (condition.holds and " is None" in condition.text)
        or (not condition.holds and (" in " in condition.text or condition.text.startswith("hasattr")))
        for condition in conditions_of(function, block)
    )


def _called_in_loop(context: SourceContext, view: View, backward: Op) -> int | None:
    """A call, of the function or of one that calls it, by a loop in which the optimizers stay the
    same ones."""
    function = view.function
    optimizers = [{op.optimizer} for op in view.of("scaler_step") if op.scaler == backward.scaler]
    if not optimizers or set().union(*optimizers) & function.assigned_in(0):
        return None
    if _is_whole_training(context, function, backward):
        return None
    return _loop_around(context, function, optimizers, _FOLLOWED)


def _loop_around(
    context: SourceContext, function: Function, optimizers: list[set[str]], depth: int
) -> int | None:
    if depth <= 0 or function.kind != "function" or _makes_optimizer(context, function, 0):
        return None
    for caller, event in context.resolver.callers.get(function.index, ()):
        passed = [
            set().union(*(_named_in(context, caller, function, name) for name in names))
            for names in optimizers
        ]
        for loop in caller.enclosing(event.block):
            if caller.blocks[loop].kind != "loop":
                continue
            if _makes_optimizer(context, caller, loop) or _over_phases(context, caller, loop):
                break
            if any(not names & caller.assigned_in(loop) for names in passed):
                return event.call.node_id
        if not any(names & caller.assigned_in(0) for names in passed):
            call = _loop_around(context, caller, passed, depth - 1)
            if call is not None:
                return call
    return None


def _is_whole_training(context: SourceContext, function: Function, backward: Op) -> bool:
    """`for epoch in range(epochs):` is in the function itself: its callers start another training."""
    around = function.enclosing(backward.places[0].block)
    return any(
        block in around and any("epoch" in target.lower() for target in header.targets)
        for block, _, header in context.program.loops_of(function)
    )


def _named_in(context: SourceContext, caller: Function, function: Function, name: str) -> set[str]:
    """What a caller calls an object of the function: the arguments that it passes, or the name itself."""
    root = name.partition(".")[0].partition("[")[0]
    if any(parameter.name == root for parameter in function.parameters) and root not in ("self", "cls"):
        return {
            part
            for scope, value in context.resolver.passed(function, root)
            if scope is caller
            for part in (dotted(value), root_name(value))
        }
    return {root, name}
