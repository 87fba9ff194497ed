"""Optimizers that step past the scaler of their gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES, Backward, exclude

from .wording import scaler_evidence, scaler_name


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
    triggers = (".step(", "_step(")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for step, backward in distinct(self._bypasses(context)):
            yield self._report(context, step, backward)

    def _bypasses(self, context: SourceContext) -> Iterator[tuple[Event, Backward]]:
        gradients, steps = context.gradients, context.scaled_steps
        for step in context.record.of("step"):
            optimizers = steps.optimizers_of(step)
            backward = gradients.last_scaled(step, optimizers)
            if backward is None or gradients.rescaled_between(backward.event, step):
                continue
            if gradients.may_be_handled_elsewhere(backward.scalers, backward.event, step):
                continue
            if any(context.facts.root(scaler) is not scaler for scaler in backward.scalers):
                # Unknown code has the scaler: the optimizer itself, or a wrapper of it.
                continue
            same = [item for item in context.record.of("scaler_step") if steps.same_optimizer(item, step)]
            apart = [item.path for item in same if exclude(item.path, step.path)]
            if any(not exclude(path, backward.event.path) for path in apart):
                # Another branch of the same decision steps through the scaler.
                continue
            unscale = self._between(context, backward, step, "unscale")
            # The second step of sharpness-aware minimization cannot go through the scaler.
            if unscale is None or (step.name == ".step" and (same or steps.includes(step, unscale))):
                yield step, backward

    def _between(self, context: SourceContext, backward: Backward, step: Event, kind: str) -> Event | None:
        events = context.record.between(backward.event, step, kind)
        return next((item for item in events if context.scaled_steps.same_optimizer(item, step)), None)

    def _report(self, context: SourceContext, step: Event, backward: Backward) -> Finding:
        scaler, framework = scaler_name(context, backward)
        optimizer, stepped = step.receiver_name, context.code(step)
        method = step.name.removeprefix(".")
        where, related = backward.event, "the loss is scaled here"
        who = framework or f"`{scaler}`"
        message = (
            f"`{stepped}` applies gradients that {who} multiplied by the loss scale on "
            f"{context.where(where)}, without unscaling them and without skipping steps that overflowed."
        )
        advice = f"Replace it by `{scaler}.step({optimizer})` and `{scaler}.update()`."
        if method != "step":
            advice = (
                f"Call `{scaler}.unscale_({optimizer})` after each backward pass, leave the step out where "
                f"gradients are not finite, and end with `{scaler}.update()`."
            )
        repeated = self._between(context, backward, step, "scaler_step")
        unscale = self._between(context, backward, step, "unscale")
        if repeated is not None:
            message = (
                f"`{stepped}` repeats `{context.code(repeated)}` of {context.where(repeated)}: the "
                "gradients are applied twice, and also where they overflowed and the scaler skipped the "
                "step."
            )
            advice = f"Remove `{stepped}`: the scaler's step calls it."
        elif unscale is not None:
            where, related = unscale, "the gradients are unscaled here"
            message = (
                f"`{stepped}` applies the gradients unscaled by `{context.code(unscale)}` on "
                f"{context.where(unscale)} even if they overflowed: only `{scaler}.step({optimizer})` skips "
                "such steps."
            )
            advice = f"Replace it by `{scaler}.step({optimizer})`, which does not unscale twice."
        if framework:
            advice = f"Let {framework} wrap the optimizer: its step then goes through the scaler."
        return self.finding(
            context.at(step),
            message,
            related=(context.also(where, related),),
            evidence=scaler_evidence(context, step=step, backward=backward.event, unscale=unscale),
            fix=Fix(advice, places=context.scaled_places(step, backward.scalers)),
            identity=f"{step.place.function.qualified_name}:{optimizer}",
        )
