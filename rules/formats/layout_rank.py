"""A rule on memory formats of another rank than the tensor's."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Place

_LAST, _LAST_3D = "torch.channels_last", "torch.channels_last_3d"
_RANK = {_LAST: 4, _LAST_3D: 5}


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
        layouts, seen = context.layouts, set[Place]()
        for event, format_ in layouts.conversions:
            if format_ is None or event.place in seen or not context.lints(event):
                continue
            wanted = _RANK[format_]
            sizes = layouts.sizes(event.subject)
            rank = len(sizes) if sizes is not None else None
            layers = layouts.ranks(event.subject) if rank is None else {}
            wrong = {name for name, value in layers.items() if value not in (wanted, 3)}
            # If all parts of the module are known and their weights have rank 3, nothing is converted.
            silent = set(layers.values()) == {3} and layouts.is_whole(event.subject)
            if (rank is None or rank == wanted) and not wrong and not silent:
                continue
            seen.add(event.place)
            what = f"`{event.receiver_name}`"
            last = format_.rpartition(".")[2]
            if rank is not None:
                message = f"{what} has {rank} dimensions; {last} needs {wanted} and raises."
            elif wrong:
                message = (
                    f"{what} has {', '.join(sorted(wrong))}, whose weights {last} cannot hold: it raises."
                )
            else:
                message = f"{what} has only {', '.join(sorted(layers))}: {last} changes nothing."
            other = _LAST_3D if wanted == 4 else _LAST
            fits = rank == _RANK[other] or bool(wrong)
            yield self.finding(
                context.at(event),
                message,
                level="warning" if rank is None and not wrong else None,
                evidence={
                    "memory_format": last,
                    "rank": rank,
                    "layers": sorted(layers),
                    "replacement": other.rpartition(".")[2] if fits else None,
                },
                fix=Fix(f"Use {other}." if fits else "Remove the conversion."),
                identity=f"{event.place.function.qualified_name}:{what}",
            )
