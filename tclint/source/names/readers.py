"""What reads the result of a call, or a name, in the order of a function's events."""

from __future__ import annotations

from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Closure,
    Definition,
    Discard,
    Event,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Return,
    parts_of,
)

NOTHING = Literal(None)
METADATA = frozenset({"shape", "size", "dtype", "device", "dim", "ndim"})
"""Attributes of a tensor that no bias changes."""


def reader_of(function: Function, position: int, call: Call) -> Expression:
    """What alone is called with the result of a call: `self.bn1` in `self.bn1(self.conv1(x))`, or one
    statement later; NOTHING where something else may read it."""
    for index in range(position + 1, len(function.events)):
        event = function.events[index]
        if isinstance(event, CallEvent):
            if any(_is_call(argument.value, call) for argument in event.call.arguments):
                return event.call.function if len(event.call.arguments) == 1 else NOTHING
        elif isinstance(event, Assignment) and _is_call(event.value, call):
            if event.unpacked or event.operator or len(event.targets) != 1 or "." in event.targets[0]:
                return NOTHING
            return _next_reader(function, index, event.targets[0], event.block)
    return NOTHING


def _is_call(value: Expression, call: Call) -> bool:
    return isinstance(value, Call) and value.node_id == call.node_id


def _next_reader(function: Function, position: int, name: str, block: int) -> Expression:
    """What is called with a variable that nothing else reads before it is assigned again."""
    reader: Expression = NOTHING
    for event in function.events[position + 1 :]:
        if _reads(event, name):
            only = isinstance(event, CallEvent) and [argument.value for argument in event.call.arguments]
            if reader != NOTHING or event.block != block or only != [Name(name)]:
                return NOTHING
            assert isinstance(event, CallEvent)
            reader = event.call.function
        if isinstance(event, Assignment) and name in event.targets:
            if event.block in function.enclosing(block):
                return reader
            if reader == NOTHING:
                return NOTHING
    in_loop = any(function.blocks[outer].kind == "loop" for outer in function.enclosing(block))
    return NOTHING if in_loop else reader


def _reads(event: Event, name: str) -> bool:
    if isinstance(event, Assignment) and event.operator and name in event.targets:
        return True  # `x += y`
    return any(
        read == name or (read.startswith(f"{name}.") and read.split(".")[1] not in METADATA)
        for read in direct_names(event)
    )


def mentions(event: Event, name: str) -> int:
    """How often an event reads a name or something of it."""
    return sum(read == name or read.startswith(f"{name}.") for read in direct_names(event))


def direct_names(event: Event) -> list[str]:
    """Names that an event reads itself: those inside of further calls belong to the calls' own events."""
    match event:
        case CallEvent(call, _):
            pending = [call.function, *(argument.value for argument in call.arguments)]
        case Assignment(_, value, _, _) | Return(value, _, _):
            pending = [value]
        case Discard() | Jump() | Definition():
            return []
    found: list[str] = []
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.append(part.dotted)
        elif not isinstance(part, Call | Closure):
            pending.extend(parts_of(part))
    return found


def sets_up(function: Function) -> bool:
    """The function makes layers or initialises their weights, by its name."""
    return any(word in function.name for word in ("init", "reset", "weight"))
