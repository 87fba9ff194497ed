"""Gradients looked at while they are still multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.training.scaler_ops import unscales_by_hand


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
    requires = (".scale(", ".step(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for read in view.of("read"):
                step = next(iter(view.after(read, "scaler_step")), None)
                backward = next(iter(view.before(read, "scaled_backward")), None)
                if step is None or backward is None or read.node_id in seen:
                    continue
                if context.scaling.is_off(view, step) or view.decided_by_precision(read, step):
                    continue
                if view.between(read, step, "scaled_backward", "backward", "other_backward", "update"):
                    continue
                if view.before(read, "escape") or view.between(
                    backward, read, "unscale", "scaler_step", "update"
                ):
                    continue
                seen.add(read.node_id)
                yield self.finding(
                    context.location(read.node_id),
                    f"`{context.excerpt(read.node_id, 50)}` reads gradients that are still multiplied "
                    "by the "
                    f"loss scale: `{step.scaler}.unscale_({step.optimizer})` has not run.",
                    related=(
                        context.related(backward.node_id, "scaled from here on"),
                        context.related(step.node_id, "unscaled only here"),
                    ),
                    evidence={
                        "read": context.excerpt(read.node_id),
                        "backward": context.excerpt(backward.node_id),
                        "step": context.excerpt(step.node_id),
                    },
                    fix=Fix(f"Call `{step.scaler}.unscale_({step.optimizer})` first."),
                    identity=f"{view.function.qualified_name}:{context.excerpt(read.node_id)}",
                )
                break
