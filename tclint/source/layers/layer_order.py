"""Which layer directly follows which, where a file itself says so: in nn.Sequential, or in forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.layers.layer_lists import LayerLists
from tclint.source.names.readers import direct_names, mentions, reader_of, sets_up
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import (
    Argument,
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Jump,
    Name,
    Operation,
    Return,
    dotted,
    method_of,
)

_SEQUENTIAL = frozenset({"torch.nn.Sequential", "torch.nn.modules.container.Sequential"})
_REORDERS = frozenset({"insert", "pop", "remove", "clear", "reverse", "sort"})


class Layer(NamedTuple):
    """A layer of torch.nn at the place where it is made."""

    kind: str
    """'Conv2d', 'BatchNorm2d', ..."""
    call: Call
    function: Function


class Pair(NamedTuple):
    """`second` gets what `first` returns; nothing else does."""

    first: Layer
    second: Layer


class LayerOrder:
    """Answers about one file."""

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.resolver = context.resolver
        self.tables = context.tables

    def pairs(self) -> Iterator[Pair]:
        """Every pair that is certain, by the node id of its first layer once."""
        seen: set[int] = set()
        for pair in (*self._sequential_pairs(), *self._forward_pairs()):
            if pair.first.call.node_id not in seen:
                seen.add(pair.first.call.node_id)
                yield pair

    def layer(self, function: Function, expression: Expression | None) -> Layer | None:
        """The layer that an expression makes, or that the only name given to it stands for."""
        if isinstance(expression, Call):
            kind = self._kind(function, expression)
            return Layer(kind, expression, function) if kind else None
        if isinstance(expression, Name) and "." not in expression.dotted:
            found, complete = self.resolver.definitions(function, expression.dotted)
            if complete and len(found) == 1 and found[0][0] is function:
                made = found[0][1]
                once = sum(mentions(event, expression.dotted) for event in function.events) == 1
                if once and not made.operator and not made.unpacked and isinstance(made.value, Call):
                    return self.layer(function, made.value)
        return None

    def _kind(self, function: Function, call: Call) -> str:
        if not isinstance(call.function, Name):
            return ""
        # Through `BatchNorm2d = nn.BatchNorm2d` too.
        possible = self.resolver.evaluate(function, call.function)
        made = possible.only
        if not isinstance(made, Symbol) or not made.qualified.startswith("torch.nn."):
            return ""
        kind = made.qualified.rpartition(".")[2]
        return kind if kind[:1].isupper() else ""

    # -- nn.Sequential

    def _sequential_pairs(self) -> Iterator[Pair]:
        lists: list[tuple[Function, str]] = []
        for function in self.tables.functions:
            if function.kind != "lambda" and self._is_sequential_class(self.tables.class_of(function)):
                lists.append((function, "self"))
            for event in function.events:
                if isinstance(event, CallEvent) and self._makes_sequential(function, event.call):
                    yield from self._adjacent(function, _items(event.call.arguments))
                    lists.extend(self._unpacked(function, event.call))
                elif (
                    isinstance(event, Assignment)
                    and len(event.targets) == 1
                    and isinstance(event.value, Call)
                    and self._makes_sequential(function, event.value)
                ):
                    lists.append((function, event.targets[0]))
        for function, name in dict.fromkeys(lists):
            yield from self._growing(function, name)

    def _adjacent(self, function: Function, items: Iterable[Expression | None]) -> Iterator[Pair]:
        before: Layer | None = None
        for item in items:
            layer = self.layer(function, item)
            if before is not None and layer is not None:
                yield Pair(before, layer)
            before = layer

    def _makes_sequential(self, function: Function, call: Call) -> bool:
        receiver, method = method_of(call)
        if method == "__init__" and isinstance(receiver, Call) and dotted(receiver.function) == "super":
            return self._is_sequential_class(self.tables.class_of(function))
        return bool(_SEQUENTIAL & set(self.resolver.called(function, call)))

    def _is_sequential_class(self, owner: Function | None) -> bool:
        """A subclass of nn.Sequential that runs its layers in order."""
        if owner is None or "forward" in self.tables.children.get(owner.index, {}):
            return False
        outer = self.tables.functions[owner.parent]
        return any(
            name in _SEQUENTIAL
            for base in owner.bases
            if dotted(base)
            for name in self.resolver.qualified(outer, dotted(base))
        )

    def _unpacked(self, function: Function, call: Call) -> Iterator[tuple[Function, str]]:
        """Lists in `nn.Sequential(*layers)`, and in the functions that return them to `*make_layers()`."""
        for argument in call.arguments:
            if argument.star != "*":
                continue
            if isinstance(argument.value, Name):
                yield function, argument.value.dotted
            elif isinstance(argument.value, Call):
                for maker in self.resolver.local_functions(function, argument.value.function):
                    for event in maker.events:
                        if isinstance(event, Return) and isinstance(event.value, Name):
                            yield maker, event.value.dotted

    def _growing(self, function: Function, name: str) -> Iterator[Pair]:
        """Pairs in what is added to a list or a Sequential, one statement after the other."""
        additions = list(_additions(function, name))
        if any(addition is None for addition in additions):
            return
        end: tuple[int, Layer] | None = None
        for addition in additions:
            assert addition is not None
            block, items, continues = addition
            if not items:
                end = None
                continue
            yield from self._adjacent(function, items)
            if continues and end is not None and end[0] == block:
                first = self.layer(function, items[0])
                if first is not None:
                    yield Pair(end[1], first)
            last = self.layer(function, items[-1])
            end = (block, last) if last is not None else None

    # -- forward

    def _forward_pairs(self) -> Iterator[Pair]:
        for owner in self.tables.functions:
            if owner.kind == "class":
                members = list(self.context.values.members(owner))
                made = {
                    event.targets[0]
                    for member in members
                    for event in member.assignments
                    if len(event.targets) == 1 and event.targets[0].startswith("self.")
                }
                if made:
                    yield from self._pairs_of(owner, members, made)
                    if not any(self._derives_from(function, owner) for function in self.tables.functions):
                        yield from self._listed_pairs(members)

    def _pairs_of(self, owner: Function, members: list[Function], made: set[str]) -> Iterator[Pair]:
        layers = {name: layer for name in sorted(made) if (layer := self._attribute(members[0], name))}
        uses: dict[str, set[str]] = {}
        for member in members:
            for position, event in enumerate(member.events):
                if isinstance(event, CallEvent) and dotted(event.call.function) in layers:
                    following = dotted(reader_of(member, position, event.call))
                    uses.setdefault(dotted(event.call.function), set()).add(following)
        for name, readers in uses.items():
            reader = next(iter(readers)) if len(readers) == 1 else ""
            if reader in layers and not self._touched(owner, members, name, reader):
                yield Pair(layers[name], layers[reader])

    def _listed_pairs(self, members: list[Function]) -> Iterator[Pair]:
        lists = LayerLists(self.resolver, members)
        layers: dict[str, list[Layer]] = {}
        for name, items in lists.items().items():
            known = [self.layer(scope, item) for scope, item in items]
            layers[name] = [layer for layer in known if layer is not None]
            if len(layers[name]) != len(items):
                del layers[name]
        for first, second in lists.readers(set(layers)).items():
            if second in layers and len({layer.kind for layer in layers[second]}) == 1:
                alike = len(layers[first]) == len(layers[second])
                for position, layer in enumerate(layers[first]):
                    yield Pair(layer, layers[second][position if alike else 0])

    def _attribute(self, member: Function, name: str) -> Layer | None:
        found, complete = self.resolver.definitions(member, name)
        if not complete or len(found) != 1 or found[0][1].operator or found[0][1].unpacked:
            return None
        scope, item = found[0]
        return self.layer(scope, item.value) if isinstance(item.value, Call) else None

    def _touched(self, owner: Function, members: list[Function], first: str, second: str) -> bool:
        """The layers are used as values too, or other classes or code may run or replace them."""
        for function in self.tables.functions:
            own = function in members
            derived = not own and self._derives_from(function, owner)
            for event in function.events:
                names = direct_names(event) if own or derived else ()
                if derived and (first in names or second in names):
                    return True
                if own:
                    called = dotted(event.call.function) if isinstance(event, CallEvent) else ""
                    if any(name in (first, second) and name != called for name in names):
                        return True
                    if not sets_up(function) and any(name.startswith(f"{first}.") for name in names):
                        return True
                elif isinstance(event, Assignment) and self._replaces(event, derived, first, second):
                    return True
        return False

    def _replaces(self, event: Assignment, derived: bool, first: str, second: str) -> bool:
        """`model.bn1 = ...`; another class's `self.bn1` is its own."""
        return any(
            target.endswith((first[4:], second[4:]))
            and (derived or not target.startswith("self.") or target.count(".") > 1)
            for target in event.targets
        )

    def _derives_from(self, function: Function, owner: Function) -> bool:
        other = self.tables.class_of(function)
        return other is not None and any(dotted(base) == owner.name for base in other.bases)


def _items(arguments: Iterable[Argument]) -> list[Expression | None]:
    """The layers given to Sequential in order; None where something else may stand."""
    found: list[Expression | None] = []
    for argument in arguments:
        value, star = argument.value, argument.star
        if star == "*" and isinstance(value, Collection) and value.kind in ("list", "tuple"):
            found.extend(value.items)
        elif argument.keyword or star:
            found.append(None)
        elif isinstance(value, Call) and method_of(value)[1] == "OrderedDict" and len(value.arguments) == 1:
            found.extend(_named_items(value.arguments[0].value))
        else:
            found.append(value)
    return found


def _named_items(value: Expression) -> list[Expression | None]:
    """The layers of `[("conv", layer), ...]` or `{"conv": layer, ...}`."""
    if not isinstance(value, Collection):
        return [None]
    if value.kind == "dict":
        return [item if key is not None else None for item, key in zip(value.items, value.keys, strict=True)]
    return [
        item.items[1] if isinstance(item, Collection) and len(item.items) == 2 else None
        for item in value.items
    ]


_Addition = tuple[int, list[Expression | None], bool]
"""Block, items, and whether they come after what was there; without items: anything may have happened."""


def _additions(function: Function, name: str) -> Iterator[_Addition | None]:
    """What is done to a list in order; None when its order is changed."""
    for event in function.events:
        if isinstance(event, Assignment) and name in event.targets:
            yield _assigned(event, name) if event.operator != "[]" else None
        elif isinstance(event, CallEvent):
            receiver, method = method_of(event.call)
            values = [argument.value for argument in event.call.arguments if not argument.star]
            if receiver is not None and dotted(receiver) == name:
                if method in _REORDERS:
                    yield None
                elif method == "append" and len(values) == 1:
                    yield event.block, [values[0]], True
                elif method == "add_module" and len(values) == 2:
                    yield event.block, [values[1]], True
                elif method == "extend" and len(values) == 1 and isinstance(values[0], Collection):
                    yield event.block, list(values[0].items), True
                elif name != "self" or method in ("append", "extend", "register_module"):
                    yield event.block, [], False
            elif name in direct_names(event):
                yield event.block, [], False
        elif isinstance(event, Jump | Return):
            yield event.block, [], False


def _assigned(event: Assignment, name: str) -> _Addition:
    value = event.value
    if event.unpacked:
        return event.block, [], False
    if event.operator in ("", "+") and isinstance(value, Collection) and value.kind in ("list", "tuple"):
        return event.block, list(value.items), event.operator == "+"
    if (
        not event.operator
        and isinstance(value, Operation)
        and value.operator == "+"
        and value.operands[0] == Name(name)
        and isinstance(value.operands[1], Collection)
    ):
        return event.block, list(value.operands[1].items), True
    return event.block, [], False
