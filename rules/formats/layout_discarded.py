"""A rule on layout conversions whose result is thrown away."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct


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
        flow = context.flow
        converted = {item.event for item in context.layouts.conversions if not item.is_of_module}
        for event in distinct(context.record.of("to", "op", "call")):
            if event not in converted or not context.lints(event) or not event.is_discarded:
                continue
            if event.name != ".contiguous" and not flow.is_data(event.subject):
                continue
            text = event.receiver_name
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` returns a converted tensor that is thrown away: `{text}` keeps its "
                "layout.",
                evidence={"receiver": text, "kind": "tensor", "method": event.name[1:]},
                fix=Fix(f"Assign the result: `{text} = {context.code(event)}`."),
                identity=f"{event.place.function.qualified_name}:{text}",
            )
