"""A rule on layout conversions whose result is thrown away."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, render
from tclint.source.layers.layouts import conversions


class ChannelsLastDiscarded(SourceRule):
    """A tensor converted to channels_last whose result is thrown away.

    What it does
    Finds `x.to(memory_format=...)` and `x.contiguous(memory_format=...)` on tensors as statements by
    themselves.

    Why it costs
    The line does nothing: both return a new tensor and leave `x` as it is. Only `nn.Module.to` converts in
    place. The network still gets NCHW, and the user believes otherwise.

    Example
        images.to(memory_format=torch.channels_last)

    Use instead
        images = images.to(memory_format=torch.channels_last)

    When it does not apply
    Modules, which are converted in place.
    """

    code = "FMT002"
    name = "channels-last-discarded"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Channels Last Memory Format tutorial, Converting existing models: the result of `to` "
        "replaces the input",
        "PyTorch torch.Tensor.to: returns a new tensor (behaviour tried on PyTorch 2.13)",
    )
    triggers = ("memory_format",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for found in conversions(context):
            if not program.is_discarded(found.event.call):
                continue
            if found.method == "to" and context.values.kind_of(found.function, found.receiver) != "tensor":
                continue
            if program.in_with(found.function, found.event.block, "raises", "assertRaises"):
                continue
            text = render(found.receiver)
            yield self.finding(
                context.location(found.event.call.node_id),
                f"`{context.excerpt(found.event.call.node_id)}` returns a converted tensor that is "
                "thrown away: "
                f"`{text}` keeps its layout.",
                evidence={"receiver": text, "kind": "tensor", "method": found.method},
                fix=Fix(f"Assign the result: `{text} = {context.excerpt(found.event.call.node_id)}`."),
                identity=f"{found.function.qualified_name}:{text}",
            )
