"""Words for findings: the names that the program gives its objects, events in words, and evidence."""

from __future__ import annotations

from collections.abc import Iterable

from tclint.core.text import with_article
from tclint.core.units import plural
from tclint.source.context import SourceContext
from tclint.source.run.values import Constant, Event, Symbol, Thing, Union, Value


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
