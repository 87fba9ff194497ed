"""A rule on contiguous() where the sizes leave the layout ambiguous."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Place


class ContiguousInsteadOfTo(SourceRule):
    """contiguous() for a layout that the tensor seems to have already.

    What it does
    Finds `x.contiguous(memory_format=torch.channels_last)` on tensors whose channels, or height and width,
    are known to be 1.

    Why it costs
    For such sizes NCHW and NHWC are the same order in memory, so `contiguous` returns the tensor with its
    NCHW strides, and the next convolution takes the NCHW kernel. `to` rewrites the strides.

    Example
        x = torch.randn(64, 1, 28, 28).contiguous(memory_format=torch.channels_last)

    Use instead
        x = torch.randn(64, 1, 28, 28).to(memory_format=torch.channels_last)

    When it does not apply
    Any other size: both do the same.
    """

    code = "FMT007"
    name = "contiguous-vs-to"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Channels Last Memory Format tutorial, Converting existing models: the note on tensors "
        "with C == 1 or H == W == 1 (strides tried on PyTorch 2.13)",
    )
    triggers = ("contiguous(memory_format",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen = set[Place]()
        for event, format_ in context.layouts.conversions:
            sizes = context.layouts.sizes(event.subject)
            if event.name != ".contiguous" or format_ != "torch.channels_last" or event.place in seen:
                continue
            if sizes is None or len(sizes) != 4 or not (sizes[1] == 1 or (sizes[2] == 1 and sizes[3] == 1)):
                continue
            seen.add(event.place)
            known = ", ".join("?" if size is None else str(size) for size in sizes)
            yield self.finding(
                context.at(event),
                f"contiguous leaves a tensor of size ({known}) with its NCHW strides.",
                evidence={"sizes": list(sizes)},
                fix=Fix("Write `.to(memory_format=torch.channels_last)`, which rewrites the strides."),
                identity=f"{event.place.function.qualified_name}:{event.receiver_name}",
            )
