"""Linear layers of one class that read the very same tensor, with sizes that the source tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.layers.tied_embeddings import only_size
from tclint.source.names.queries import has_star, keyword
from tclint.source.names.readers import direct_names, sets_up
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    dotted,
    render,
)


class Projection(NamedTuple):
    """A linear layer where it is made."""

    name: str
    """'self.query'."""
    call: Call
    inputs: int
    outputs: int
    bias: str
    """As written, 'True' where nothing is."""


class SharedInput(NamedTuple):
    """Layers that one method calls with the same tensor, one after the other."""

    function: Function
    tensor: str
    layers: tuple[Projection, ...]


def layers_of_one_input(context: SourceContext) -> Iterator[SharedInput]:
    """Sets of at least two such layers, each called once in its class and used in no other way."""
    for owner in context.tables.functions:
        if owner.kind != "class" or not context.values.is_module_class(owner):
            continue
        members = list(context.values.members(owner))
        for member in members:
            for tensor, names in _called_with_the_same(member):
                layers = [_layer(context, member, members, name) for name in names]
                known = [layer for layer in layers if layer is not None]
                alike = {(layer.inputs, layer.bias) for layer in known}
                if len(known) == len(names) >= 2 and len(alike) == 1:
                    yield SharedInput(member, tensor, tuple(known))


def _called_with_the_same(member: Function) -> Iterator[tuple[str, list[str]]]:
    """(variable, layers) of calls `self.layer(variable)` between which it is not assigned."""
    groups: dict[tuple[str, int, int], list[str]] = {}
    assigned: dict[str, int] = {}
    for event in member.events:
        if isinstance(event, CallEvent):
            name, given = dotted(event.call.function), event.call.arguments
            if name.startswith("self.") and len(given) == 1 and not given[0].keyword and not given[0].star:
                tensor = dotted(given[0].value)
                if tensor and "." not in tensor:
                    groups.setdefault((tensor, assigned.get(tensor, 0), event.block), []).append(name)
        elif isinstance(event, Assignment):
            for target in event.targets:
                assigned[target] = assigned.get(target, 0) + 1
    for (tensor, _, _), names in groups.items():
        if len(names) > 1:
            yield tensor, names


def _layer(context: SourceContext, member: Function, members: list[Function], name: str) -> Projection | None:
    definitions, _ = context.resolver.definitions(member, name)
    if len(definitions) != 1 or definitions[0][1].operator or definitions[0][1].unpacked:
        return None
    scope, made = definitions[0][0], definitions[0][1].value
    if not isinstance(made, Call) or "torch.nn.Linear" not in context.resolver.called(scope, made):
        return None
    if has_star(made) or _uses(members, name) != 1:
        return None
    inputs = _size(context, scope, keyword(made, "in_features", 0))
    outputs = _size(context, scope, keyword(made, "out_features", 1))
    if inputs is None or outputs is None:
        return None
    return Projection(name, made, inputs, outputs, render(keyword(made, "bias", 2) or Literal(True)))


def _size(context: SourceContext, scope: Function, value: Expression | None) -> int | None:
    return only_size(context, scope, value) if value is not None else None


def _uses(members: list[Function], name: str) -> int:
    """How often the class reads the layer, but for setting its weights up."""
    return sum(
        read == name or read.startswith(f"{name}.")
        for member in members
        for event in member.events
        for read in direct_names(event)
        if read == name or not sets_up(member)
    )
