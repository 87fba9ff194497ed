"""Layers in `nn.ModuleList`s that forward runs in pairs: `bn(conv(x))` for each of `self.convs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tclint.source.resolve import Resolver
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Collection,
    Event,
    Expression,
    Function,
    Name,
    Other,
    Return,
    Subscript,
    dotted,
    method_of,
    parts_of,
)

_WALKERS = frozenset({"enumerate", "len", "zip"})


class LayerLists:
    """The lists of one class; `members` are its methods."""

    def __init__(self, resolver: Resolver, members: list[Function]) -> None:
        self.resolver = resolver
        self.members = members

    def items(self) -> dict[str, list[tuple[Function, Expression]]]:
        """By 'self.name', what makes the items of a ModuleList; lists that are filled otherwise too are
        left out."""
        found: dict[str, list[tuple[Function, Expression]]] = {}
        unclear: set[str] = set()
        for member in self.members:
            for event in member.events:
                if isinstance(event, Assignment):
                    for name in event.targets:
                        made = self._made(member, event)
                        if name in found or made is None or not name.startswith("self."):
                            unclear.add(name)
                        else:
                            found[name] = [(member, item) for item in made]
                elif isinstance(event, CallEvent):
                    receiver, method = method_of(event.call)
                    name = dotted(receiver) if receiver is not None else ""
                    if method == "append" and name in found and len(event.call.arguments) == 1:
                        found[name].append((member, event.call.arguments[0].value))
                    elif name.startswith("self."):
                        unclear.add(name)
        return {name: items for name, items in found.items() if items and name not in unclear}

    def _made(self, member: Function, event: Assignment) -> tuple[Expression, ...] | None:
        value = event.value
        if event.operator or event.unpacked or not isinstance(value, Call):
            return None
        if "torch.nn.ModuleList" not in self.resolver.called(member, value):
            return None
        match value.arguments:
            case ():
                return ()
            case (argument,) if isinstance(argument.value, Collection):
                return argument.value.items
            case (argument,) if isinstance(argument.value, Other) and argument.value.kind == "comprehension":
                return argument.value.parts[:1]
            case _:
                return None

    def readers(self, names: set[str]) -> dict[str, str]:
        """By list, the list whose items alone are called with what its items return."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for member in self.members:
            for position, event in enumerate(member.events):
                for name in _other_uses(event, names):
                    found[name].add("")
                if isinstance(event, CallEvent):
                    name = self._list_of(member, event.call.function)
                    if name in found:
                        found[name].add(self._outer(member, position, event.call))
        return {name: readers.pop() for name, readers in found.items() if len(readers) == 1}

    def _outer(self, member: Function, position: int, call: Call) -> str:
        for event in member.events[position + 1 :]:
            if isinstance(event, CallEvent) and [argument.value for argument in event.call.arguments] == [
                call
            ]:
                return self._list_of(member, event.call.function)
        return ""

    def _list_of(self, member: Function, called: Expression) -> str:
        """'self.convs' of `self.convs[i]`, and of a variable that takes its items one after the other."""
        if isinstance(called, Subscript):
            return _indexed(called)
        name = dotted(called)
        if not name or "." in name:
            return ""
        made, complete = self.resolver.definitions(member, name)
        if not complete or len(made) != 1 or made[0][1].operator:
            return ""
        item = made[0][1]
        if isinstance(item.value, Subscript) and not item.unpacked:
            return _indexed(item.value)
        if isinstance(item.value, Other) and item.value.kind == "iterate":
            return _walked(item.value.parts[0], item.targets.index(name), len(item.targets))
        return ""


def _indexed(value: Subscript) -> str:
    sliced = isinstance(value.key, Other)
    name = dotted(value.value)
    return name if name.startswith("self.") and not sliced else ""


def _walked(iterated: Expression, position: int, targets: int) -> str:
    """The list that gives a loop's target at this position: `for i, (a, b) in enumerate(zip(...))`."""
    if isinstance(iterated, Name):
        return iterated.dotted if targets == 1 else ""
    if not isinstance(iterated, Call):
        return ""
    arguments = [argument.value for argument in iterated.arguments]
    if dotted(iterated.function) == "enumerate" and len(arguments) == 1 and position > 0:
        return _walked(arguments[0], position - 1, targets - 1)
    if dotted(iterated.function) == "zip" and len(arguments) == targets:
        return dotted(arguments[position])
    return ""


def _other_uses(event: Event, names: set[str]) -> Iterator[str]:
    """Lists that an event hands on, slices or takes apart in another way."""
    match event:
        case CallEvent(call, _) if dotted(call.function) in _WALKERS:
            return
        case CallEvent(call, _):
            parts: tuple[Expression, ...] = tuple(argument.value for argument in call.arguments)
            if not (isinstance(call.function, Subscript) and _indexed(call.function)):
                parts = (call.function, *parts)
        case Assignment():
            value = event.value
            if isinstance(value, Subscript) and _indexed(value) and not event.unpacked:
                return
            if isinstance(value, Other) and value.kind == "iterate" and isinstance(value.parts[0], Name):
                return
            parts = (value,)
        case Return():
            parts = (event.value,)
        case _:
            return
    yield from _names(parts, names.__contains__)


def _names(parts: tuple[Expression, ...], wanted: Callable[[str], bool]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, Name):
            if wanted(part.dotted):
                yield part.dotted
        elif not isinstance(part, Call):
            yield from _names(parts_of(part), wanted)
