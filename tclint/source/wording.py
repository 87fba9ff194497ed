"""How findings speak of what a program does: by the names of its things, with the evidence."""

from __future__ import annotations

import math

from tclint.source.context import SourceContext
from tclint.source.run.values import Constant, Event, Symbol
from tclint.source.syntax.tables import method_of, render

_INFINITE = frozenset({"math.inf", "torch.inf", "numpy.inf"})


def names_of(event: Event) -> tuple[str, str]:
    """How an event's call names its receiver and its first argument: `scaler`, `optimizer`."""
    if event.call is None:
        return "", ""
    receiver = method_of(event.call)[0]
    arguments = event.call.arguments
    return (
        render(receiver) if receiver is not None else "scaler",
        render(arguments[0].value) if arguments else "optimizer",
    )


def gives_infinite_limit(event: Event) -> bool:
    """Clipping to infinity only measures the norm."""
    for value in event.arguments.values():
        if isinstance(value, Constant) and value.value == math.inf:
            return True
        if isinstance(value, Symbol) and value.name in _INFINITE:
            return True
    return False


def scaler_evidence(context: SourceContext, **events: Event | None) -> dict[str, object]:
    """What a finding on loss scaling rests on, by role."""
    evidence: dict[str, object] = {}
    scaler = None
    for role, event in events.items():
        if event is not None:
            evidence.setdefault("function", event.place.function.qualified_name)
            evidence[role] = context.code(event)
            evidence[f"{role}_line"] = context.at(event).line
            scaler = scaler or next(iter(context.facts.kinds(event.subject, "scaler")), None)
    if scaler is not None and scaler.made is not None:
        evidence["scaler"] = context.code(scaler.made)
        on = context.facts.is_on(scaler)
        evidence["enabled"] = {True: "always", None: "decided at run time"}.get(on, "never")
    else:
        evidence["scaler"] = "comes from elsewhere"
    return evidence


__all__ = ["gives_infinite_limit", "names_of", "scaler_evidence"]
