"""When a loss scaler is updated: before its step, or in rounds that take none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.conditions import mutually_exclusive
from tclint.source.syntax.tables import dotted, method_of, render
from tclint.source.training.scaler_ops import reads_of_round, tail

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
        tail(op.scaler) == tail(update.scaler)
        and all(place.function != view.function.index for place in op.places)
        for other in context.scaling.views
        for op in other.of("scaler_step", "unscale")
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
