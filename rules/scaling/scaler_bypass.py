"""Optimizers that step past the scaler of their gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.queries import words
from tclint.source.syntax.tables import method_of
from tclint.source.training.scaler_ops import (
    belongs_to,
    scaled_by,
    scaler_evidence,
    scales_itself,
    stepped_before,
    unscales_by_hand,
)

_OVERFLOW_WORDS = words("finite isfinite isnan isinf nan inf found overflow overflowed skip skipped")
"""A file with one of these words may look for overflows itself."""


class StepBypassesScaler(SourceRule):
    """`optimizer.step()` on gradients that a scaler has scaled.

    What it does
    Finds an optimizer that is stepped directly after `scaler.scale(loss).backward()`, including by the
    `second_step` of sharpness-aware minimization.

    Why it costs
    The gradients are still multiplied by the loss scale, so the optimizer takes steps tens of thousands
    of times too large (or, with Adam, ignores its epsilon), and a step with inf or NaN gradients, which a
    scaler would skip, ruins the weights.

    Example
        scaler.scale(loss).backward()
        optimizer.step()

    Use instead
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    The branch without a scaler, an optimizer that was unscaled explicitly or that owns the scaler,
    optimizers whose own loss is not scaled, optimizers of frameworks (Accelerate's steps through the
    scaler), disabled scalers.
    """

    code = "AMP005"
    name = "optimizer-step-bypasses-scaler"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: "
        "scaler.step(optimizer)",
    )
    triggers = ("scaler", "Scaler")
    requires = (".step(", ".scale(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework or unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("step"):
                backward = scaled_by(context, view, step)
                if step.node_id in seen:
                    continue
                unscale = _unscaled_and_stepped(context, view, step) if backward is None else None
                if unscale is not None:
                    seen.add(step.node_id)
                    yield self._overflows(context, view, step, unscale)
                if backward is None:
                    continue
                seen.add(step.node_id)
                if scales_itself(context, view.function, step.optimizer):
                    continue
                if belongs_to(context, view.function, backward.scaler, step.optimizer):
                    continue
                yield self._report(context, view, step, backward)

    def _overflows(self, context: SourceContext, view: View, step: Op, unscale: Op) -> Finding:
        return self.finding(
            context.location(step.node_id),
            f"`{step.optimizer}.step()` applies the gradients unscaled by "
            f"`{unscale.scaler}.unscale_({unscale.optimizer})` on line "
            f"{context.location(unscale.node_id).line} even if they overflowed: only "
            f"`{unscale.scaler}.step({unscale.optimizer})` skips such steps.",
            related=(context.related(unscale.node_id, "the gradients are unscaled here"),),
            evidence=scaler_evidence(context, view, step=step, unscale=unscale),
            fix=Fix(
                f"Replace it by `{unscale.scaler}.step({unscale.optimizer})`, which does not unscale twice."
            ),
            identity=f"{view.function.qualified_name}:{step.optimizer}",
        )

    def _report(self, context: SourceContext, view: View, step: Op, backward: Op) -> Finding:
        method = method_of(step.call)[1]
        advice = f"Replace it by `{backward.scaler}.step({step.optimizer})` and `{backward.scaler}.update()`."
        if method != "step":
            advice = (
                f"Call `{backward.scaler}.unscale_({step.optimizer})` after each backward pass, leave the "
                f"step out where gradients are not finite, and end with `{backward.scaler}.update()`."
            )
        message = (
            f"`{step.optimizer}.{method}()` applies gradients that `{backward.scaler}` multiplied by the "
            f"loss scale on line {context.location(backward.node_id).line}, without unscaling them and "
            "without "
            "skipping steps that overflowed."
        )
        repeated = stepped_before(view, step)
        if repeated is not None:
            message = (
                f"`{step.optimizer}.{method}()` repeats `{repeated.scaler}.step({step.optimizer})` of line "
                f"{context.location(repeated.node_id).line}: the gradients are applied twice, and also where "
                "they overflowed and the scaler skipped the step."
            )
            advice = f"Remove `{step.optimizer}.{method}()`: the scaler's step calls it."
        return self.finding(
            context.location(step.node_id),
            message,
            related=(context.related(backward.node_id, "the loss is scaled here"),),
            evidence=scaler_evidence(context, view, step=step, backward=backward),
            fix=Fix(advice),
            identity=f"{view.function.qualified_name}:{step.optimizer}",
        )


def _unscaled_and_stepped(context: SourceContext, view: View, step: Op) -> Op | None:
    """The unscale_ of the same optimizer before a plain step that nothing holds back from overflows."""
    if method_of(step.call)[1] != "step" or context.program.words & _OVERFLOW_WORDS:
        return None
    if view.of("scaler_step") or view.of("backward", "other_backward", "escape"):
        return None
    for op in view.before(step, "unscale"):
        same = op.optimizer == step.optimizer and view.before(op, "scaled_backward")
        if same and not view.extra(step, op) and not context.scaling.is_off(view, op):
            return op
    return None
