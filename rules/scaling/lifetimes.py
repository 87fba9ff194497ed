"""The lifetime of loss scalers, and the updates of their scale."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event
from tclint.plugin.source import ScaledSteps, exclude


def recreated(steps: ScaledSteps) -> Iterator[tuple[Event, Event]]:
    """(event that makes a scaler, step through it) where a later step of the same optimizer uses another
    scaler that is made at the same place in the same loop."""
    for step in steps.calls("scaler_step"):
        for later in steps.record.after(step, "scaler_step"):
            if not steps.optimizers_of(step) & steps.optimizers_of(later):
                continue
            made, again = _made(steps, step), _made(steps, later)
            if made is None or again is None or made is again or made.place != again.place:
                break
            if made.loop is again.loop and _starts_over(steps, made, step):
                yield made, step
            break


def _made(steps: ScaledSteps, call: Event) -> Event | None:
    return next((item.made for item in steps.facts.kinds(call.subject, "scaler")), None)


def _starts_over(steps: ScaledSteps, made: Event, step: Event) -> bool:
    """Whether a loop makes a new scaler in each round but keeps the optimizer. A step two or more loops
    further inside belongs to another training."""
    loop = made.loop
    # A loop over a generator advances with the generator's own loop, so the two count once.
    apart = [item for item in step.loops if item.loop.source is None]
    if loop is None or len(apart) > len(made.loops) + 1:
        return False
    if not set(made.path[loop.depth :]) <= set(step.path):
        return False
    owners = (item.made for item in steps.optimizers_of(step))
    return not any(loop in {item.loop for item in owner.loops} for owner in owners if owner is not None)


def unchecked_updates(steps: ScaledSteps) -> Iterator[tuple[Event, Event, Event | None]]:
    """(update, backward pass, step that some rounds skip) where some or all rounds have neither a step nor an
    unscaling between an update and the one before it."""
    for update in steps.calls("update"):
        if update.arguments or not _is_stepped(steps, update):
            continue
        before = next(steps.record.before(update, "update", on=update.subject), None)
        backward = next(steps.backwards_of(update), None)
        start = before or backward
        if start is None or backward is None or not steps.one_always_with_other(start, update):
            continue
        checks = steps.record.between(start, update, "scaler_step", "unscale", on=update.subject)
        rare = [item for item in checks if item.loops == update.loops and steps.skippable(item, update)]
        if len(rare) < len(checks) or _may_be_checked(steps, start, update):
            continue
        if any(exclude(one.path, other.path) for one in rare for other in rare):
            continue
        yield update, backward, rare[0] if rare else None


def _is_stepped(steps: ScaledSteps, update: Event) -> bool:
    """Whether the scaler of an update is torch's, or the same entry point also steps or unscales through
    it."""
    if any(steps.gradients.is_certain(item) for item in steps.facts.kinds(update.subject, "scaler")):
        return True
    calls = steps.record.on(update.subject, "scaler_step", "unscale")
    return any(item.run == update.run for item in calls)


def _may_be_checked(steps: ScaledSteps, first: Event, second: Event) -> bool:
    scalers = tuple(steps.facts.kinds(second.subject, "scaler"))
    return (
        bool(steps.record.between(first, second, "step"))
        or steps.gradients.rescaled_between(first, second)
        or steps.gradients.may_be_handled_elsewhere(scalers, first, second)
    )


def updates_before_steps(steps: ScaledSteps) -> Iterator[tuple[Event, Event, Event]]:
    """(update, step, backward pass) where an update comes between a backward pass and a step that applies
    gradients of it."""
    for update in steps.calls("update"):
        backward = next(steps.backwards_of(update), None)
        step = next(steps.record.after(update, "scaler_step", on=update.subject), None)
        if step is None or backward is None or steps.record.between(update, step, "backward"):
            continue
        if not all(round_ in update.loops and round_ in step.loops for round_ in backward.loops):
            continue
        if steps.skippable(step, update) or not steps.one_always_with_other(update, step):
            continue
        if steps.gradients.reaches(backward, steps.optimizers_of(step)) is False:
            continue
        if steps.record.between(backward, update, "scaler_step", on=step.subject):
            yield update, step, backward
