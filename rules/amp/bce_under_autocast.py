"""Binary cross entropy on probabilities, which autocast refuses."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct, options_of
from tclint.plugin.source import FALSE, NONE, TRUE, Region


class BceUnderAutocast(SourceRule):
    """binary_cross_entropy or BCELoss under CUDA autocast, which raises.

    What it does
    Finds calls of `torch.nn.functional.binary_cross_entropy` and of `torch.nn.BCELoss` objects inside an
    autocast region on CUDA, including in functions and loss modules of the project that are called from
    one, and where the loss is passed in from another file.

    Why it costs
    Autocast on CUDA raises "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss
    are unsafe to autocast", whatever the dtype of the inputs: the gradient of the logarithm of a sigmoid
    in float16 overflows. `binary_cross_entropy_with_logits` computes both in one stable step.

    Example
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy(torch.sigmoid(model(x)), y)

    Use instead
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)

    When it does not apply
    CPU autocast, which runs it in float32; calls inside `autocast(enabled=False)`; regions that are
    enabled by a parameter which nobody sets; values that were moved to the CPU; functions and methods of
    your own that merely have the name BCELoss.
    """

    code = "AMP007"
    name = "bce-under-autocast"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Prefer binary_cross_entropy_with_logits over "
        "binary_cross_entropy: autocast raises an error for the latter",
    )
    triggers = ("autocast", "binary_cross_entropy", "BCELoss")
    program = ("binary_cross_entropy", "BCELoss")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        events = context.record.of("op", "call", "forward")
        for event in distinct(event for event in events if context.flow.is_bce(event)):
            found = context.dtypes.autocast(event)
            if found is None or not context.autocasts.may_be_on_gpu(found[1]):
                context.skip(event, "no autocast that may be on for a GPU is around it")
            elif _is_off_by_default(found[1]):
                context.skip(event, "autocast is off by default there, and nobody switches it on")
            elif any(_is_on_cpu(context, item) for item in context.facts.read_by(event)):
                context.skip(event, "it gets values that were moved to the CPU")
            elif context.autocasts.is_off_gpu(event):
                context.skip(event, "it does not run on a GPU")
            else:
                yield self._report(context, event, *found[:2])

    def _report(self, context: SourceContext, event: Event, region: Region, autocast: Thing) -> Finding:
        entered, called = region.entered, event.callee_name
        assert entered is not None
        on = context.facts.is_on(autocast, event.path)
        where = f"{context.where(entered, event)}{'' if on else ', where it is enabled'}"
        at = context.at(event)
        related = [context.also(entered, "autocast is on from here")]
        if at.path != event.place.file.path:
            related.append(context.also(event, f"`{context.code(event)}` in this file"))
        return self.finding(
            at,
            f"`{called}` runs under the autocast of {where}: on CUDA it raises RuntimeError (unsafe to "
            "autocast).",
            related=tuple(related),
            evidence={
                "call": context.code(event),
                "function": event.place.function.qualified_name,
                "autocast": context.code(entered),
                "autocast_line": context.at(entered).line,
                "enabled": "always" if on else "decided at run time",
            },
            fix=Fix(
                "Use binary_cross_entropy_with_logits (or BCEWithLogitsLoss) on the logits and drop the "
                'sigmoid; or compute the loss in float32 under `torch.autocast("cuda", enabled=False)`.'
            ),
            identity=f"{event.place.function.qualified_name}:{context.code(event)}",
        )


def _is_on_cpu(context: SourceContext, thing: Thing) -> bool:
    return context.facts.texts(thing.fields.get("@device")) == {"cpu"}


def _is_off_by_default(autocast: Thing) -> bool:
    """Whether only a parameter that is off by default, and that nobody sets, can enable the context."""
    options = [option for option, _ in options_of(autocast.fields.get("enabled", TRUE))]
    return any(option in (FALSE, NONE) for option in options) and all(
        option in (FALSE, NONE) or (isinstance(option, Thing) and option.is_unknown and not option.fields)
        for option in options
    )
