"""Embeddings that a linear layer shares its weight with, and the one size that a project gives them."""

from __future__ import annotations

from tclint.source.context import SourceContext
from tclint.source.layers.configurations import field_values
from tclint.source.names.queries import has_star
from tclint.source.syntax.tables import (
    Argument,
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    dotted,
    parts_of,
)

_DEPTH = 6
"""Names, parameters and fields followed from an embedding to where its size is written."""


def tied_table(context: SourceContext, function: Function, event: Assignment) -> tuple[Function, Call] | None:
    """The call that makes the embedding of a tie with a linear layer, and its scope."""
    target, source = event.targets[0], dotted(event.value)
    if source and "." not in source:  # shared = self.embedding.weight
        aliases = context.resolver.definitions(function, source)[0]
        source = dotted(aliases[0][1].value) if len(aliases) == 1 else ""
    if not all(name.startswith("self.") and name.endswith(".weight") for name in (target, source)):
        return None
    made = {}
    for name in (target, source):
        found = _layer(context, function, name.removesuffix(".weight"))
        if found is None:
            return None
        for qualified in context.resolver.called(*found):
            made[qualified] = found
    return (
        made.get("torch.nn.Embedding") if made.keys() == {"torch.nn.Embedding", "torch.nn.Linear"} else None
    )


def _layer(context: SourceContext, function: Function, name: str) -> tuple[Function, Call] | None:
    """The one call that makes `self.layer`, or `self.parts.layer` of a dictionary of layers."""
    holder, _, last = name.rpartition(".")
    nested = holder != "self"
    definitions, _ = context.resolver.definitions(function, holder if nested else name)
    if len(definitions) != 1 or definitions[0][1].operator or definitions[0][1].unpacked:
        return None
    scope, item = definitions[0]
    found = _keyed(item.value, last) if nested else item.value
    return (scope, found) if isinstance(found, Call) else None


def _keyed(value: Expression, key: str) -> Expression | None:
    """What a dictionary display or `dict(...)` somewhere in an expression holds under a key."""
    if isinstance(value, Collection) and value.kind == "dict":
        for known, item in zip(value.keys, value.items, strict=True):
            if known == Literal(key):
                return item
    if isinstance(value, Call):
        for argument in value.arguments:
            if isinstance(argument, Argument) and argument.keyword == key:
                return argument.value
    for part in parts_of(value):
        found = _keyed(part, key)
        if found is not None:
            return found
    return None


def only_size(context: SourceContext, scope: Function, value: Expression) -> int | None:
    sizes = _sizes(context, scope, value, _DEPTH)
    only = sizes.pop() if len(sizes) == 1 else None
    return only if isinstance(only, int) and not isinstance(only, bool) else None


def _sizes(context: SourceContext, scope: Function, value: Expression, depth: int) -> set[object]:
    """Every size that the project shows an expression to have; None among them for one it does not."""
    if depth <= 0:
        return {None}
    resolver = context.resolver
    if isinstance(value, Name):
        root, _, last = value.dotted.rpartition(".")
        owner = resolver.owner(scope, root or last)
        parameter = next((p for p in owner.parameters if p.name == (root or last)), None) if owner else None
        if owner is not None and parameter is not None and root != "self":
            if root:
                return _field_sizes(context, scope, value.dotted)
            return _passed_sizes(context, owner, last, parameter.default, depth)
        if root == "self":
            found = resolver.definitions(scope, value.dotted)[0]
            if len(found) == 1 and not found[0][1].operator and not found[0][1].unpacked:
                return _sizes(context, found[0][0], found[0][1].value, depth - 1)
            return {None}
        if root.startswith("self."):
            return _field_sizes(context, scope, value.dotted)
    possible = resolver.evaluate(scope, value)
    if possible.certain or (len(possible.values) == 1 and isinstance(value, Name) and "." in value.dotted):
        return {*possible.values, *_overrides(context, dotted(value))}
    return {None}


def _passed_sizes(
    context: SourceContext, owner: Function, name: str, default: Expression | None, depth: int
) -> set[object]:
    """What the calls of a function or class pass for a parameter; its default where nothing calls it."""
    resolver = context.resolver
    called = resolver.called_as(owner)
    if any(context.neighbours.importing(called.name)):
        return {None}
    calls = resolver.callers.get(called.index, ())
    derived = any(
        dotted(base).rpartition(".")[2] == called.name
        for other in context.tables.functions
        for base in other.bases
    )
    if derived or any(has_star(event.call) for _, event in calls):
        return {None}
    passed = list(resolver.passed(owner, name))
    sizes: set[object] = set()
    for caller, argument in passed:
        sizes |= _sizes(context, caller, argument, depth - 1)
    if len(passed) < len(calls) or not calls:
        if not passed and _overrides(context, name):
            return {None}  # something passes it, though to what is not known
        sizes |= _sizes(context, owner, default, depth - 1) if default is not None else {None}
    return sizes


def _field_sizes(context: SourceContext, scope: Function, name: str) -> set[object]:
    """The default of a field of a configuration, with what the file makes of it."""
    values = field_values(context, scope, name)
    if len(values) != 1:
        return {None}
    return {*values, *_overrides(context, f"config.{name.rpartition('.')[2]}")}


def _overrides(context: SourceContext, name: str) -> set[object]:
    """Other values that the file gives a field, as keyword arguments or by assigning it."""
    holder, _, field = name.rpartition(".")
    if not field:
        return set()
    sizes: set[object] = set()
    for function in context.tables.functions:
        for event in function.events:
            given: list[Expression] = []
            if isinstance(event, CallEvent):
                given = [a.value for a in event.call.arguments if a.keyword == field]
                if any(a.star == "**" for a in event.call.arguments):
                    sizes.add(None)
            elif (
                holder  # a parameter is no attribute
                and isinstance(event, Assignment)
                and any(target.endswith(f".{field}") for target in event.targets)
            ):
                stored = event.targets[0].startswith("self.") and dotted(event.value) == field
                given = [] if stored else [event.value]  # `self.vocab_size = vocab_size` keeps a parameter
            for value in given:
                possible = context.resolver.evaluate(function, value)
                root, _, last = dotted(value).rpartition(".")
                handed_on = last == field and root.rpartition(".")[2] in (holder, "config", "cfg", "conf")
                if not handed_on:
                    sizes |= set(possible.values) if possible.certain else {None}
    return sizes
