"""A rule on nn.MultiheadAttention returning weights that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct, render
from tclint.plugin.source import TRAINS, Place

_LAYER = "torch.nn.MultiheadAttention"


class MhaNeedWeights(SourceRule):
    """MultiheadAttention computes weights that nobody uses.

    What it does
    Finds calls of an `nn.MultiheadAttention` whose second result nothing reads (`out, _ = attn(...)`,
    `attn(...)[0]`) without `need_weights=False`.

    Why it costs
    `need_weights` is True by default. The layer then computes softmax(QK^T) in memory and averages it over
    the heads, instead of calling scaled_dot_product_attention, whose fused kernels never write the matrix.

    Example
        out, _ = self.attn(x, x, x)

    Use instead
        out, _ = self.attn(x, x, x, need_weights=False)

    When it does not apply
    Weights that are used; arguments through `**kwargs`.
    """

    code = "ARC017"
    name = "mha-need-weights"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch torch.nn.MultiheadAttention: need_weights",
        "PyTorch 2.13 torch/nn/functional.py, multi_head_attention_forward: need_weights takes the path "
        "without scaled_dot_product_attention",
    )
    triggers = ("MultiheadAttention",)
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        flow = context.flow
        calls: dict[Place, list[bool]] = {}
        events = [event for event in context.record.of("forward") if flow.runs(event) == _LAYER]
        for event in events:
            weights = [item.fields.get(("item", 1)) for item in flow.facts.kinds(event.result, "tuple")]
            computed = not {"need_weights", "**"} & event.arguments.keys()
            unread = bool(weights) and not any(flow.readers(item) for item in weights)
            calls.setdefault(event.place, []).append(computed and unread)
        for event in distinct(events):
            if not all(calls[event.place]) or event.call is None or not context.concerns(event):
                continue
            name, function = render(event.call.function), event.place.function.qualified_name
            yield self.finding(
                context.at(event),
                f"`{name}` computes attention weights that nobody reads, and so misses the fused attention "
                "kernels.",
                evidence={"layer": name, "need_weights": True, "function": function},
                fix=Fix("Pass need_weights=False."),
                identity=f"{function}:{name}",
            )
