"""A rule on targets that are cast to float16 by hand."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Event, Finding, Fix, SourceContext, SourceRule, Symbol, distinct, options_of
from tclint.plugin.source import TRAINS

_FLOAT16 = Symbol("torch.float16")


class HalfTargets(SourceRule):
    """Targets of a loss cast to float16 by hand.

    What it does
    Finds casts to a dtype that is, or can be, float16 of what a loss compares with: the second argument of
    a loss, or what a model gets beside its input where it gives the loss itself.

    Why it costs
    float16 keeps 11 significant bits: above 2048 it cannot represent every whole number, near 500 it
    rounds to multiples of 0.25, and the loss compares with the rounded value. Nothing is gained: autocast
    casts what matrix products need, and computes losses in float32.

    Example
        targets = targets.to(torch.float16)
        with torch.autocast("cuda"):
            loss = model(images, targets)

    Use instead
        with torch.autocast("cuda"):
            loss = model(images, targets)

    When it does not apply
    Class indices, which are integers; targets that a model in float16 throughout needs as its own dtype;
    bfloat16, which is a different trade-off.
    """

    code = "AMP030"
    name = "half-targets"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package, CUDA Ops that can autocast to float32: losses are "
        "among them",
        "IEEE 754-2019: binary16 has 11 bits of precision",
    )
    triggers = (".half(", "float16", "torch.half", "HalfTensor")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for cast in distinct(context.record.of("to")):
            dtypes = options_of(cast.arguments["dtype"]) if "dtype" in cast.arguments else ()
            if not any(option == _FLOAT16 for option, _ in dtypes) or not context.concerns(cast):
                continue
            results = context.facts.kinds(cast.result, "tensor") or list(context.facts.things(cast.result))
            if not any(context.losses.is_target(thing, cast.subject) for thing in results):
                context.skip(cast, "no loss compares with what it gives")
            elif not self._is_under_autocast(context, cast):
                context.skip(cast, "the model does not run under autocast, and may need its own dtype")
            else:
                yield self._report(context, cast)

    def _is_under_autocast(self, context: SourceContext, cast: Event) -> bool:
        return any(
            any(True for _ in context.autocasts.origins(backward.loss))
            for backward in context.gradients.backwards
            if backward.event.run == cast.run
        )

    def _report(self, context: SourceContext, cast: Event) -> Finding:
        name, function = cast.receiver_name, cast.place.function.qualified_name
        return self.finding(
            context.at(cast),
            f"`{context.code(cast)}` rounds `{name}` to float16's 11 bits: from 2048 on whole numbers are "
            "lost, and autocast needs no such cast.",
            evidence={"targets": name, "dtype": "float16", "function": function},
            effect=Effect(unknown="it costs accuracy, not time"),
            fix=Fix("Keep the targets in float32; autocast casts what products need."),
            identity=f"{function}:{name}",
        )
