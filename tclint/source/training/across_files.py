"""What a file hands to, or takes from, other files of its project; where that is certain."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.facts.autocast_flow import NOWHERE, Flows, Origin
from tclint.source.facts.autocasts import Region
from tclint.source.facts.program import steps_by_itself
from tclint.source.names.queries import PLACING, makers
from tclint.source.syntax.tables import Call, Expression, Function, dotted, method_of


def functions_run_by(
    context: SourceContext, function: Function, call: Call, holding: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions that a call runs, with their files: the function itself, or the forward of its object.

    Args:
        holding: of other files, only those that hold one of these tokens.
    """
    for where, made in context.definitions_of(function, call.function, holding):
        if made.kind == "function":
            yield where, made
    yield from _methods(context, function, dotted(call.function), ("forward", "__call__"), holding)
    receiver, method = method_of(call)
    if receiver is not None and method not in PLACING:
        yield from _methods(context, function, dotted(receiver), (method,), holding)


def _methods(
    context: SourceContext,
    function: Function,
    name: str,
    methods: tuple[str, ...],
    holding: tuple[bytes, ...],
) -> Iterator[tuple[SourceContext, Function]]:
    """Methods that the classes define of which a name is an object."""
    for where, made in context.answer(
        ("classes", function.index, name, holding), lambda: list(_classes(context, function, name, holding))
    ):
        for method in methods:
            for index in where.tables.children.get(made.index, {}).get(method, ()):
                yield where, where.tables.functions[index]


def _classes(
    context: SourceContext, function: Function, name: str, holding: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    for scope, value in context.resolver.origins_of(function, name) if name else ():
        for call in makers(value):
            for where, made in context.definitions_of(scope, call.function, holding):
                if made.kind == "class":
                    yield where, made


def functions_that_train(context: SourceContext) -> set[int]:
    """Functions that go backward and step an optimizer, clear gradients for it, or hand the loss and the
    optimizer to one call that does: `loss_scaler(loss, optimizer)`."""
    found = {item.function.index for item in context.program.trainings}
    for function, event in context.tables.calls:
        if method_of(event.call)[1] == "zero_grad" or steps_by_itself(event.call):
            found.add(function.index)
    return found


def flows_across_files(context: SourceContext) -> Flows:
    """Which autocast regions values come from, through models of other files whose forward always runs
    under autocast."""
    return Flows(context.amp, lambda function, call: forward_elsewhere(context, function, call))


def forward_elsewhere(context: SourceContext, function: Function, call: Call) -> Origin:
    """The autocast regions that the result of `model(x)` comes from, where the model's class is another
    file's and its forward always runs under them; nothing where any of it is unclear."""
    name = dotted(call.function)
    if not name:
        return NOWHERE
    found = NOWHERE
    for scope, value in context.resolver.origins_of(function, name):
        origin = _forward_of(context, scope, value, call)
        if not origin.regions:
            return NOWHERE
        found = found | origin
    return found


def _forward_of(context: SourceContext, scope: Function, value: Expression, call: Call) -> Origin:
    for made in makers(value):
        for where, owner in context.definitions_of(scope, made.function, (b"autocast",)):
            return _returned(where, owner, call) if where is not context else NOWHERE
    return NOWHERE


def _returned(where: SourceContext, owner: Function, call: Call) -> Origin:
    forwards = where.tables.children.get(owner.index, {}).get("forward", ())
    if owner.kind != "class" or len(forwards) != 1:
        return NOWHERE
    forward = where.tables.functions[forwards[0]]
    regions = where.flows.of(forward).returned.regions
    if not regions or not all(_always(forward, region) for region in regions):
        return NOWHERE
    # The other file's node ids mean nothing here: the call stands for the region, which says where it is.
    return Origin(
        frozenset(
            region._replace(
                function=-1,
                node_id=call.node_id,
                autocast=region.autocast._replace(node_id=call.node_id),
                elsewhere=f"{where.path}:{where.location(region.node_id).line}",
            )
            for region in regions
        )
    )


def _always(forward: Function, region: Region) -> bool:
    """The whole forward runs under it, or a with block of its own that no test decides about."""
    return (
        region.function == forward.index
        and region.autocast.enabled is True
        and all(forward.blocks[block].kind in ("with", "body") for block in forward.enclosing(region.block))
    )
