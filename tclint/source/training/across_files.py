"""What a file hands to, or takes from, other files of its project; where that is certain."""

from __future__ import annotations

from tclint.source.context import SourceContext
from tclint.source.facts.autocast_flow import NOWHERE, Flows, Origin
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import makers
from tclint.source.syntax.tables import Call, Expression, Function, dotted


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
