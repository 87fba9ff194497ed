"""Layers in `nn.ModuleList`s that forward runs in pairs: `bn(conv(x))` for each of `self.convs`.

Lists of lists count as one: `self.convs[i][j]` is an item of `self.convs` two levels down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tclint.source.names.readers import mentions, reader_of, sets_up
from tclint.source.names.resolve import Resolver
from tclint.source.syntax.tables import (
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

_WALKERS = frozenset({"enumerate", "len", "zip", "range"})
_LEVELS = 3
"""Lists in lists and names of them that are followed."""


class _Place(NamedTuple):
    """Something inside a list."""

    name: str
    """'self.convs'."""
    levels: int
    """0 for the list itself, 1 for its items, 2 for the items of these."""


_NOWHERE = _Place("", 0)

_Items = list[tuple[Function, Expression]]


class LayerLists:
    """The lists of one class; `members` are its methods."""

    def __init__(self, resolver: Resolver, members: list[Function]) -> None:
        self.resolver = resolver
        self.members = members
        self._levels: dict[str, int] = {}

    def items(self) -> dict[str, _Items]:
        """By 'self.name', what makes the layers in a ModuleList; lists that are filled otherwise too are
        left out, and lists whose items are not all equally deep."""
        found: dict[str, _Items] = {}
        for name, made in self._filled(self.members, lambda name: name.startswith("self.")).items():
            layers: _Items = []
            depths = set()
            for member, item in made:
                flat, depth = self._flat(member, item, _LEVELS)
                layers += flat
                depths.add(depth)
            if len(depths) == 1 and layers:
                found[name] = layers
                self._levels[name] = depths.pop()
        return found

    def _filled(self, members: Iterable[Function], wanted: Callable[[str], bool]) -> dict[str, _Items]:
        """What is put into lists of these names, by assigning and appending."""
        found: dict[str, _Items] = {}
        unclear: set[str] = set()
        for member in members:
            for event in member.events:
                if isinstance(event, Assignment):
                    for name in event.targets:
                        made = self._made(member, event.value)
                        if name in found or made is None or event.operator or event.unpacked:
                            unclear.add(name)
                        elif wanted(name):
                            found[name] = [(member, item) for item in made]
                elif isinstance(event, CallEvent):
                    receiver, method = method_of(event.call)
                    name = dotted(receiver) if receiver is not None else ""
                    if method == "append" and name in found and len(event.call.arguments) == 1:
                        found[name].append((member, event.call.arguments[0].value))
                    elif wanted(name):
                        unclear.add(name)
        return {name: items for name, items in found.items() if items and name not in unclear}

    def _made(self, member: Function, value: Expression) -> tuple[Expression, ...] | None:
        """The items that a ModuleList is made with; None for anything else."""
        if not isinstance(value, Call) or "torch.nn.ModuleList" not in self.resolver.called(member, value):
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

    def _flat(self, member: Function, item: Expression, depth: int) -> tuple[_Items, int]:
        """The layers of an item, and how many levels below its list they are; level 0: not known."""
        inner = self._made(member, item)
        several = [(member, part) for part in inner or ()]
        if isinstance(item, Name) and "." not in item.dotted:
            several = self._local_list(member, item.dotted)
            if not several and self._is_list(member, item.dotted):
                return [], 0
        if not several:
            return ([(member, item)], 1) if inner is None else ([], 0)
        if depth <= 0:
            return [], 0
        parts = [self._flat(scope, part, depth - 1) for scope, part in several]
        below = {level for _, level in parts}
        if len(below) != 1 or 0 in below:
            return [], 0
        return [layer for layers, _ in parts for layer in layers], below.pop() + 1

    def _is_list(self, member: Function, name: str) -> bool:
        return any(
            self._made(member, item.value) is not None for item in self.resolver.assignments(member, name)
        )

    def _local_list(self, member: Function, name: str) -> _Items:
        """What a ModuleList in a variable holds, if it is handed to one other list and nothing else."""
        found = self._filled([member], lambda other: other == name).get(name, [])
        handed_on = 0
        for event in member.events:
            if mentions(event, name):
                receiver, method = method_of(event.call) if isinstance(event, CallEvent) else (None, "")
                if receiver is None or method != "append":
                    return []
                handed_on += dotted(receiver) != name
        return found if handed_on == 1 else []

    def readers(self, names: set[str]) -> dict[str, str]:
        """By list, the list whose items alone are called with what its items return."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for member in self.members:
            for position, event in enumerate(member.events):
                for name in self._other_uses(member, event):
                    if name in found:
                        found[name].add("")
                if isinstance(event, CallEvent):
                    name = self._list_of(member, event.call.function)
                    if name in found:
                        found[name].add(self._list_of(member, reader_of(member, position, event.call)))
        return {name: readers.pop() for name, readers in found.items() if len(readers) == 1}

    def _list_of(self, member: Function, called: Expression) -> str:
        """'self.convs' of `self.convs[i]`, and of a variable that takes its items one after the other."""
        place = self._place(member, called, _LEVELS)
        return place.name if place.levels == self._levels.get(place.name) else ""

    def _place(self, member: Function, value: Expression, depth: int) -> _Place:
        """Where in a list something is that its attribute, a subscript or a variable names."""
        if depth < 0:
            return _NOWHERE
        if isinstance(value, Subscript):
            inner = self._place(member, value.value, depth - 1)
            sliced = isinstance(value.key, Other)
            return _Place(inner.name, inner.levels + 1) if inner.name and not sliced else _NOWHERE
        name = dotted(value)
        if name in self._levels:
            return _Place(name, 0)
        if not name or "." in name:
            return _NOWHERE
        made, complete = self.resolver.definitions(member, name)
        if not complete or len(made) != 1 or made[0][1].operator:
            return _NOWHERE
        item = made[0][1]
        if isinstance(item.value, Subscript | Name) and not item.unpacked:
            return self._place(member, item.value, depth - 1)
        if isinstance(item.value, Other) and item.value.kind == "iterate":
            walked = _walked(item.value.parts[0], item.targets.index(name), len(item.targets))
            inner = self._place(member, walked, depth - 1) if walked is not None else _NOWHERE
            return _Place(inner.name, inner.levels + 1) if inner.name else _NOWHERE
        return _NOWHERE

    def _other_uses(self, member: Function, event: Event) -> Iterator[str]:
        """Lists that an event hands on, slices or takes apart in another way, or some of whose items are."""
        match event:
            case CallEvent(call, _) if dotted(call.function) in _WALKERS:
                return
            case CallEvent(call, _):
                parts: tuple[Expression, ...] = tuple(argument.value for argument in call.arguments)
                if not self._place(member, call.function, _LEVELS).name:
                    parts = (call.function, *parts)
            case Assignment(_, value, _, _):
                if isinstance(value, Other) and value.kind == "iterate":
                    value = value.parts[0]
                if self._place(member, value, _LEVELS).name and (value != event.value or not event.unpacked):
                    return
                parts = (value,)
            case Return(value, _, _):
                parts = (value,)
            case _:
                return
        yield from self._lists_in(member, parts)

    def _lists_in(self, member: Function, parts: tuple[Expression, ...]) -> Iterator[str]:
        for part in parts:
            if isinstance(part, Name):
                yield self._place(member, part, _LEVELS).name
                holder, dot, _ = part.dotted.partition(".")
                if dot and not sets_up(member):
                    yield self._place(member, Name(holder), _LEVELS).name
            elif not isinstance(part, Call):
                yield from self._lists_in(member, parts_of(part))


def _walked(iterated: Expression, position: int, targets: int) -> Expression | None:
    """What gives a loop's target at this position its items: `for i, (a, b) in enumerate(zip(...))`."""
    if isinstance(iterated, Name | Subscript):
        return iterated if targets == 1 else None
    if not isinstance(iterated, Call):
        return None
    arguments = [argument.value for argument in iterated.arguments]
    if dotted(iterated.function) == "enumerate" and len(arguments) == 1 and position > 0:
        return _walked(arguments[0], position - 1, targets - 1)
    if dotted(iterated.function) == "zip" and len(arguments) == targets:
        return arguments[position]
    return None
