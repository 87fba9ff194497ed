"""A rule on gradients that are zeroed instead of dropped."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import FALSE


class ZeroGradMemset(SourceRule):
    """Gradients set to zero instead of None.

    What it does
    Finds `zero_grad(set_to_none=False)` in programs that do not touch `.grad` themselves.

    Why it costs
    Filling every gradient with zeros reads nothing and computes nothing useful, and backward then adds to it
    instead of writing: one more read of all gradients in every step. None is the default since PyTorch 2.0.

    Example
        optimizer.zero_grad(set_to_none=False)

    Use instead
        optimizer.zero_grad()

    When it does not apply
    Code that reads or adds to `p.grad` and relies on it being a tensor; CUDA graphs, whose gradients keep
    their addresses.
    """

    code = "RUN011"
    name = "zero-grad-memset"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Use parameter.grad = None instead of model.zero_grad() or "
        "optimizer.zero_grad(): no memset and no read of the old gradient",
    )
    triggers = ("set_to_none",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        record = context.record
        for event in distinct(record.of("zero_grad")):
            if event.arguments.get("set_to_none") != FALSE or not context.concerns(event):
                continue
            if record.of("grad") or record.of("capture"):
                context.skip(event, "may be needed: the program reads `.grad`, or captures graphs")
                continue
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` fills gradients with zeros, to which backward adds.",
                evidence={"set_to_none": False, "function": event.place.function.qualified_name},
                fix=Fix("Remove set_to_none=False."),
                identity=f"{event.place.function.qualified_name}:{event.receiver_name}.zero_grad",
            )
