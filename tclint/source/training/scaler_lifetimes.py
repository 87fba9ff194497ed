"""How long a loss scaler lives, followed through a function and its callers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.facts.scaling import Made
from tclint.source.facts.scaling_view import Op, View, tail
from tclint.source.names.queries import conditions_of, mutually_exclusive, root_name, words
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
    render,
)
from tclint.source.training.scaler_ops import reads_of_round

_MAY_STEP = re.compile(r"(?:^|_)(?:step|optimi[sz]e|unscale|clip)")
"""In names of functions that are not seen and may step through the scaler."""


class EarlyUpdate(NamedTuple):
    """An update that no inf check comes before."""

    update: Op
    backward: Op
    rarer: Op | None
    """A step before it that some rounds leave out."""


def early_updates(context: SourceContext, view: View) -> Iterator[EarlyUpdate]:
    """Updates that every run, or some rounds of a loop, get to without a step or an unscale_ before."""
    if view.of("escape"):
        return
    for update in view.of("update"):
        backward = next(iter(view.before(update, "scaled_backward")), None)
        skipped = None if backward is not None else _skipped(view, update)
        backward = backward or skipped
        if backward is None or update.call.arguments or tail(backward.scaler) != tail(update.scaler):
            continue
        if context.scaling.is_off(view, update) or not _is_torchs(context, view, update):
            continue
        if skipped is not None:
            yield EarlyUpdate(update, skipped, None)
            continue
        checks = view.before(update, "scaler_step", "unscale")
        if not checks:
            unseen = view.before(update, "step", "rescale", "other_backward")
            if not unseen and not _may_step_between(context, view, backward, update):
                yield EarlyUpdate(update, backward, None)
            continue
        if not view.loops(update):
            continue
        rarer = next((op for op in checks if _left_out(view, op, update)), None)
        if rarer is not None and all(_left_out(view, op, update) for op in checks):
            yield EarlyUpdate(update, backward, rarer)


def _skipped(view: View, update: Op) -> Op | None:
    """The backward pass of a loop whose other rounds end with an update as well, where a round that updates
    here leaves it out: `if not isfinite(loss): scaler.update(); continue`."""
    loops = view.loops(update)
    if not loops or view.before(update, "scaler_step", "unscale", "step", "other_backward", "rescale"):
        return None
    inside = [
        op for op in view.of("scaled_backward", "scaler_step", "unscale") if loops[0] in view.around(op)
    ]
    changing = view.changes_in(loops[0])
    for op in inside:
        ends = [end for end in view.after(op, "update") if loops == view.loops(end)]
        if not view.mutually_exclusive(update, op) or view.decided_by_precision(update, op):
            return None
        if op.kind != "scaled_backward" and not any(not view.extra(end, op) for end in ends):
            return None
        if not any(reads_of_round(condition, changing) for condition in view.extra(update, op)):
            return None
    if not {"scaled_backward", "scaler_step"} <= {op.kind for op in inside}:
        return None
    return next(op for op in inside if op.kind == "scaled_backward")


def _is_torchs(context: SourceContext, view: View, update: Op) -> bool:
    """The scaler is a GradScaler that the file makes, or goes through its protocol here; and no other
    function can step it in between."""
    made, others = context.scaling.origins_of(view, update)
    if others or not (made or view.of("scaler_step", "unscale")):
        return False
    owner = context.resolver.owner(view.function, update.scaler) if "." not in update.scaler else None
    if owner is view.function and owner.kind == "function":
        return True
    return not any(
        all(place.function != view.function.index for place in op.places)
        for other in context.scaling.views
        for op in other.alike(update.scaler, "scaler_step", "unscale")
    )


def _may_step_between(context: SourceContext, view: View, backward: Op, update: Op) -> bool:
    """A call between the two that is not seen may step: a method of a base class, `engine.step()`."""
    function = view.function
    for event in function.calls:
        if not backward.places[0].node_id < event.call.node_id < update.places[0].node_id:
            continue
        name = dotted(event.call.function)
        known = context.resolver.called(function, event.call)
        if any(qualified.startswith("torch.") for qualified in known):
            continue
        if context.resolver.local_functions(function, event.call.function):
            continue
        if mutually_exclusive(function, event.block, update.places[0].block):
            continue
        if name.startswith(("self.", "cls.", "super")) and name.count(".") == 1:
            return True
        text = render(event.call.function).lower()
        if "sched" not in text and _MAY_STEP.search(method_of(event.call)[1].lower()):
            return True
    return False


def _left_out(view: View, step: Op, update: Op) -> bool:
    """Some rounds of a loop leave the step out, while the update runs in all of them."""
    loops = view.loops(update)
    if not loops or loops != view.loops(step) or view.extra(update, step):
        # A step in a loop inside may run in its last round, before the update.
        return False
    extra = view.extra(step, update)
    changing = view.changes_in(loops[0])
    return (
        view.encloses(update, step)
        and not view.decided_by_precision(step, update)
        and any(reads_of_round(condition, changing) for condition in extra)
    )


def per_optimizer(view: View) -> Iterator[tuple[Op, Op, Op]]:
    """(update, step, backward) where one backward pass serves several optimizers in a loop, and the scaler
    is updated after each of them."""
    for update in view.of("update"):
        for step in view.before(update, "scaler_step")[:1]:
            backward = next(iter(view.before(step, "scaled_backward")), None)
            loops = view.loops(step)
            if backward is None or not loops or not view.bound_by(loops[0], step.optimizer):
                continue
            inside = [
                op
                for op in view.of("scaled_backward", "backward", "other_backward", "escape")
                if loops[0] in view.around(op)
            ]
            changing = view.changes_in(loops[0])
            if any(reads_of_round(condition, changing) for condition in view.conditions(step)):
                continue  # `if index != chosen: continue`: only one of them steps
            same_rounds = loops == view.loops(update) and not view.extra(update, step)
            if same_rounds and not inside and tail(step.scaler) == tail(update.scaler):
                yield update, step, backward


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
    scaled: dict[int, list[Op]] = {}
    for backward in view.of("scaled_backward"):
        origins, _ = context.scaling.origins(function, backward.scaler)
        for node_id in {origin.node_id for origin in origins}:
            scaled.setdefault(node_id, []).append(backward)
    for made in context.scaling.made:
        if made.function != function.index or made.enabled is False or _when_missing(function, made):
            continue
        for backward in scaled.get(made.node_id, ()):
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
