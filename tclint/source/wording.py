"""Words for findings: the names that the program gives its objects, events in words, and evidence."""

from __future__ import annotations

from collections.abc import Iterable

from tclint.core.text import with_article
from tclint.core.units import plural
from tclint.source.context import SourceContext
from tclint.source.questions.gradients import Backward
from tclint.source.questions.precision.weights import Cast
from tclint.source.run.values import Constant, Event, Symbol, Thing, Union, Value, constant_of
from tclint.source.syntax.tables import Call, method_of, parts_within, render


def receiver_of(event: Event) -> str:
    """The name of the object whose method a call calls: `optimizer` in `optimizer.step()`."""
    receiver = method_of(event.call)[0] if event.call is not None else None
    return render(receiver) if receiver is not None else ""


def argument_of(event: Event) -> str:
    """The first argument of an event's call, as written."""
    arguments = event.call.arguments if event.call is not None else ()
    return render(arguments[0].value) if arguments else ""


def assigned_name(event: Event) -> str:
    """The name to which a statement assigns the result of a call; '' if there is none."""
    for item in event.place.function.assignments:
        calls = (part for part in parts_within(item.value) if isinstance(part, Call))
        if any(call.node_id == event.place.node_id for call in calls) and len(item.targets) == 1:
            return item.targets[0]
    return ""


def value_name(event: Event, value: Value) -> str:
    """An argument of an event's call, as written."""
    position = next((index for index, item in enumerate(event.arguments.values()) if item is value), 0)
    given = event.call.arguments if event.call is not None else ()
    return render(given[position].value) if position < len(given) else argument_of(event)


def names_of(event: Event) -> tuple[str, str]:
    """The names of the scaler and the optimizer in a scaler's call: `scaler`, `optimizer`."""
    if "@scaler" in event.changed:
        # A framework's optimizer steps through a scaler that the program does not name.
        return "scaler", receiver_of(event) or "optimizer"
    return receiver_of(event) or "scaler", argument_of(event) or "optimizer"


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
            return receiver_of(event) or "scaler", framework
    return "scaler", framework


def loss_name(context: SourceContext, backward: Event) -> str:
    """The loss of a backward pass, as written."""
    if backward.name == ".backward" and backward.first is not context.facts.loss_of(backward):
        return receiver_of(backward) or "loss"
    return argument_of(backward) or "loss"


def spelled(context: SourceContext, thing: Thing, option: str) -> tuple[str, str]:
    """The name of what chooses an option of a thing, and the option's spelling there: an argument of a
    framework's class, or a key of its configuration file."""
    for spelling in context.facts.things(thing.fields.get("@spelling")):
        for settings in context.facts.things(thing.fields.get("@settings")):
            for name in context.facts.texts(spelling.fields.get(("item", option))):
                if context.run.is_configuration:
                    return "configuration", name.replace("=", ": ").replace('"', "").replace(
                        "True", "true"
                    ).replace("False", "false")
                return settings.cls.function.name if settings.cls is not None else settings.name, name
    return thing.name.rpartition(".")[2], option


def places_of(context: SourceContext, events: Iterable[Event], besides: Event) -> str:
    """The lines of events for a message, except the line of `besides`: 'line 4', 'lines 4, 7,
    engine.py:12'."""
    at = {context.where(event, besides): context.at(event) for event in events}
    at.pop(context.where(besides, besides), None)
    named = sorted(at, key=lambda where: (at[where].path, at[where].line))
    here = [
        where.removeprefix("line ") for where in named if where.startswith("line ") and " of " not in where
    ]
    elsewhere = [where for where in named if where.removeprefix("line ") not in here]
    lines = [f"{'lines' if len(here) > 1 else 'line'} {', '.join(here)}"] if here else []
    return ", ".join((*lines, *elsewhere))


def called_of(event: Event) -> str:
    """The name of the callee in an event's call: `model` in `model(x)`."""
    return render(event.call.function) if event.call is not None else ""


def model_name(context: SourceContext, cast: Cast) -> str:
    """The program's name for a model: as it passes the parameters to an optimizer, or as it casts the
    model."""
    for event in context.record.before(cast.optimizer, "call"):
        asks = event.name.endswith("parameters") and receiver_of(event) != "self"
        owners = context.facts.things(event.subject) if asks else ()
        known = any(context.facts.contains(thing, cast.module) for thing in owners)
        if known and not event.place.file.is_library:
            return receiver_of(event)
    place = cast.event.place
    for assignment in place.function.assignments:
        if isinstance(assignment.value, Call) and assignment.value.node_id == place.node_id:
            return assignment.targets[0]
    return receiver_of(cast.event) or "model"


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


def told(event: Event) -> str:
    """An event in words: 'clip: torch.nn.utils.clip_grad_norm_(an unknown `x`, 1.0), under 1 test'."""
    given = ", ".join(
        value_text(value) if key.isdigit() else f"{key}={value_text(value)}"
        for key, value in event.arguments.items()
    )
    subject = value_text(event.subject) if event.subject is not None else ""
    called = f"{subject}{event.name}" if event.name.startswith(".") else event.name or subject
    shown = f"{called}({given})" if event.call is not None else f"{called} {given}"
    parts = [f"{event.kind}: {shown}"]
    if event.path:
        parts.append(f"under {plural(len(event.path), 'test')}")
    contexts = [value_text(region.context) for region in event.regions]
    if contexts:
        parts.append(f"in {', '.join(contexts)}")
    if event.loop is not None and event.loop.place.file.path == event.place.file.path:
        loop = event.loop.place
        line = f"in the loop of line {loop.file.spans()[loop.node_id].line}"
        # The lines of a library are those of its table's text.
        parts.append(f"in a loop of {loop.file.name}" if loop.file.is_library else line)
    return ", ".join(parts).strip()


def value_text(value: Value | None, depth: int = 2) -> str:
    """A value in words: 'cuda', a module (torch.nn.Linear), an unknown `x`, one of several."""
    match value:
        case Constant():
            return repr(value.value)
        case Symbol():
            return value.name
        case Union():
            several = dict.fromkeys(value_text(option.value, depth - 1) for option in value.options)
            return f"one of {' | '.join(several)}" if depth > 0 else "one of several"
        case Thing() if value.kind:
            named = f" ({value.name})" if value.name and value.name != value.kind else ""
            return f"{value.kind if value.kind.endswith('s') else with_article(value.kind)}{named}"
        case Thing() if value.cls is not None:
            return f"a {value.cls.function.name}"
        case Thing():
            return f"an unknown `{value.name}`" if value.name.strip(".") else "something unknown"
    return repr(value)
