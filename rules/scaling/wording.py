"""Words for findings on loss scaling: names of scalers and losses, and evidence."""

from __future__ import annotations

from tclint.plugin import Event, SourceContext
from tclint.plugin.source import Backward, constant_of


def names_of(event: Event) -> tuple[str, str]:
    """The names of the scaler and the optimizer in a scaler's call: `scaler`, `optimizer`."""
    if "@scaler" in event.changed:
        # A framework's optimizer steps through a scaler that the program does not name.
        return "scaler", event.receiver_name or "optimizer"
    return event.receiver_name or "scaler", event.argument_text or "optimizer"


def unscaling(step: Event, backward: Backward) -> tuple[str, str]:
    """The unscaling that is missing before gradients are read, as ', without ... first', and the advice."""
    for thing in backward.scalers:
        if "@managed" in thing.fields:
            return "", str(constant_of(thing.fields.get("@unscale")) or "Unscale the gradients first.")
    scaler, optimizer = names_of(step)
    call = f"`{scaler}.unscale_({optimizer})`"
    return f", without {call} first", f"Call {call} first."


def scaler_name(context: SourceContext, backward: Backward) -> tuple[str, str]:
    """The program's name for the scaler that multiplied a loss, and the framework that it belongs to or
    ''."""
    framework = next(
        (str(constant_of(item.fields["@managed"])) for item in backward.scalers if "@managed" in item.fields),
        "",
    )
    for event in context.facts.made_by(backward.loss):
        if event.kind == "scale" and not set(backward.scalers).isdisjoint(
            context.facts.things(event.subject)
        ):
            return event.receiver_name or "scaler", framework
    return "scaler", framework


def loss_name(context: SourceContext, backward: Event) -> str:
    """The loss of a backward pass, as written."""
    if backward.name == ".backward" and backward.first is not context.facts.loss_of(backward):
        return backward.receiver_name or "loss"
    return backward.argument_text or "loss"


def scaler_evidence(context: SourceContext, **events: Event | None) -> dict[str, object]:
    """The evidence of a finding on loss scaling: the lines of its events, by role."""
    evidence: dict[str, object] = {}
    scaler = None
    for role, event in events.items():
        if event is not None:
            evidence.setdefault("function", event.place.function.qualified_name)
            evidence[role] = context.code(event)
            evidence[f"{role}_line"] = context.at(event).line
            scaler = scaler or next(iter(context.facts.kinds(event.subject, "scaler")), None)
    made = scaler.made if scaler is not None else None
    if scaler is not None and made is not None and context.is_in_program(made):
        evidence["scaler"] = context.code(made)
        on = context.facts.is_on(scaler)
        evidence["enabled"] = {True: "always", None: "decided at run time"}.get(on, "never")
    else:
        evidence["scaler"] = "comes from elsewhere"
    return evidence
