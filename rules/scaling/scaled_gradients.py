"""A rule on gradients that are read while they are still multiplied by the loss scale."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES, Backward

from .wording import scaler_evidence, unscaling


class ScaledGradientInspection(SourceRule):
    """Gradients measured while they are still multiplied by the loss scale.

    What it does
    Finds norms and statistics of `.grad` between a scaled backward pass and `scaler.step(optimizer)`
    without `scaler.unscale_(optimizer)` before them.

    Why it costs
    The numbers are too large by the loss scale, 65536 at first, and jump by a factor of two whenever it
    changes: logs mislead, and thresholds act on the wrong values.

    Example
        scaler.scale(loss).backward()
        norm = sum(p.grad.norm() for p in model.parameters())
        scaler.step(optimizer)

    Use instead
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = sum(p.grad.norm() for p in model.parameters())
        scaler.step(optimizer)

    When it does not apply
    After the step, which unscales in place; a scaler that is disabled; code that divides by
    `scaler.get_scale()`.
    """

    code = "AMP020"
    name = "scaled-grad-inspection"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Working with Unscaled Gradients: unscale before "
        "reading them",
    )
    triggers = (".grad",)
    pattern = re.compile(rb"\.grad\b")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Event] = set()
        for read, step, backward in distinct(self._reads(context)):
            if backward.event not in seen:
                # Other measurements of the same gradients are just as wrong and not reported.
                seen.add(backward.event)
                yield self._report(context, read, step, backward)

    def _reads(self, context: SourceContext) -> Iterator[tuple[Event, Event, Backward]]:
        gradients, record = context.gradients, context.record
        for read in gradients.reads:
            backward = gradients.last_scaled(read)
            step = next(record.after(read, "scaler_step"), None)
            if backward is None or step is None or not gradients.together(step, backward.event):
                continue
            if record.between(backward.event, step, "get_scale") or record.between(read, step, "backward"):
                continue
            if record.between(backward.event, read, "scaler_step", "update"):
                continue
            if gradients.unscaled_between(backward.event, read):
                continue
            if not gradients.may_be_handled_elsewhere(backward.scalers, backward.event, read):
                yield read, step, backward

    def _report(self, context: SourceContext, read: Event, step: Event, backward: Backward) -> Finding:
        _, advice = unscaling(step, backward)
        return self.finding(
            context.at(read),
            f"`{context.code(read, 50)}` reads gradients that are still multiplied by the loss scale: "
            f"nothing has unscaled them since {context.where(backward.event)}.",
            related=(
                context.also(backward.event, "scaled from here on"),
                context.also(step, "unscaled only here"),
            ),
            evidence=scaler_evidence(context, read=read, backward=backward.event, step=step),
            fix=Fix(advice, places=context.scaled_places(step)),
            identity=f"{read.place.function.qualified_name}:{context.code(read)}",
        )
