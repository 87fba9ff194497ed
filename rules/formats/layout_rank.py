"""A rule on memory formats of another rank than the tensor's."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.layers.layouts import LAST, LAST_3D, RANK, base_of, conversions, sizes_of
from tclint.source.syntax.tables import Call, Expression, Function, Name, dotted, method_of, render


class ChannelsLastWrongRank(SourceRule):
    """channels_last for something that does not have four dimensions.

    What it does
    Finds `memory_format=torch.channels_last` (four dimensions) and `torch.channels_last_3d` (five) on
    tensors whose rank is known to be different, and on modules whose convolutions have a different rank.

    Why it costs
    Tensors and modules with Conv3d raise "required rank 4 tensor to use channels_last format". A module that
    only has Conv1d is silently left as it is.

    Example
        model = nn.Conv3d(1, 32, 3).to(memory_format=torch.channels_last)

    Use instead
        model = nn.Conv3d(1, 32, 3).to(memory_format=torch.channels_last_3d)

    When it does not apply
    Shapes that are known only at run time.
    """

    code = "FMT005"
    name = "cl-wrong-rank"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Channels Last Memory Format tutorial: the format is for tensors of four dims (behaviour "
        "tried on PyTorch 2.13)",
    )
    triggers = ("channels_last",)
    requires = ("memory_format",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for found in conversions(context):
            if found.layout is None or program.in_with(
                found.function, found.event.block, "raises", "assertRaises"
            ):
                continue
            wanted = RANK[found.layout]
            rank = _rank(context, found.function, found.receiver)
            layers = _conv_ranks(context, found.function, found.receiver) if rank is None else {}
            wrong = {name for name, value in layers.items() if value != wanted and value > 3}
            silent = bool(layers) and set(layers.values()) == {3}
            if (rank is None or rank == wanted) and not wrong and not silent:
                continue
            what = f"`{render(found.receiver)}`"
            last = found.layout.rpartition(".")[2]
            if rank is not None:
                message = f"{what} has {rank} dimensions; {last} needs {wanted} and raises."
            elif wrong:
                message = (
                    f"{what} has {', '.join(sorted(wrong))}, whose weights {last} cannot hold: it raises."
                )
            else:
                message = f"{what} has only {', '.join(sorted(layers))}: {last} changes nothing."
            other = LAST_3D if wanted == 4 else LAST
            fits = rank == RANK[other] or bool(wrong)
            yield self.finding(
                context.location(found.event.call.node_id),
                message,
                level="warning" if rank is None and not wrong else None,
                evidence={"memory_format": last, "rank": rank, "layers": sorted(layers)},
                fix=Fix(f"Use {other}." if fits else "Remove the conversion."),
                identity=f"{found.function.qualified_name}:{what}",
            )


def _rank(context: SourceContext, function: Function, expression: Expression) -> int | None:
    sizes = sizes_of(context, function, expression)
    return len(sizes) if sizes is not None else None


def _conv_ranks(context: SourceContext, function: Function, expression: Expression) -> dict[str, int]:
    """Convolution layers of a module and the rank of their weights; empty where some part is unknown."""
    base = base_of(context, function, expression)
    made = [(function, base)]
    if isinstance(base, Name):
        made = [
            (scope, base_of(context, scope, item.value))
            for scope, item in context.resolver.definitions(function, base.dotted)[0]
            if dotted(base_of(context, scope, item.value)) != base.dotted
        ]
    if len(made) != 1 or not isinstance(made[0][1], Call):
        return {}
    scope, call = made[0][0], made[0][1]
    names = list(context.resolver.called(scope, call))
    if "torch.nn.Sequential" in names:
        for argument in call.arguments:
            if isinstance(argument.value, Call):
                names.extend(context.resolver.called(scope, argument.value))
    for maker in context.resolver.local_functions(scope, call.function):
        if maker.kind == "class":
            if _foreign(context, maker):
                return {}
            names.extend(layer.qualified for layer in context.values.layers(maker))
    layers: dict[str, int] = {}
    for name in names:
        last = name.rpartition(".")[2]
        if name.startswith("torch.nn.") and last[:-2] in ("Conv", "ConvTranspose") and last[-1] == "d":
            layers[last] = int(last[-2]) + 2
    return layers


def _foreign(context: SourceContext, owner: Function) -> bool:
    """The class makes parts that are not seen: its Conv1d may not be all that it has."""
    layers = {layer.qualified for layer in context.values.layers(owner)}
    if any("Conv3d" in name for name in layers) and not any("Conv2d" in name for name in layers):
        return False  # what is seen raises already
    for member in context.values.members(owner):
        for event in member.calls:
            last = method_of(event.call)[1]
            known = context.resolver.called(member, event.call)
            if last[:1].isupper() and not any(name.startswith("torch.") for name in known):
                local = context.resolver.local_functions(member, event.call.function)
                if not local or any(_foreign(context, maker) for maker in local if maker is not owner):
                    return True
    return False
