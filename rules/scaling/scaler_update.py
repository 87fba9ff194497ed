"""Scaled steps whose scaler is never updated."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES

from .wording import names_of, scaler_evidence


class StepWithoutUpdate(SourceRule):
    """`scaler.step(optimizer)` without `scaler.update()` in the same iteration.

    What it does
    Finds a scaler's step that no call of its `update` follows: not in the function, not in what it calls,
    not elsewhere in the file. A step whose only updates are in other branches, or that runs in every
    iteration of a loop while the update runs only in some, is reported as well.

    Why it costs
    `update` ends the iteration: it adapts the scale and clears the record of which optimizers have
    stepped. Without it the next step raises "RuntimeError: step() has already been called since the last
    update()".

    Example
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)

    Use instead
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    When it does not apply
    Several optimizers that step before one update, an update in a helper or in another method, a scaler
    that is disabled, a function that only steps and leaves the update to its callers.
    """

    code = "AMP004"
    name = "step-without-update"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Gradient Scaling: step and update of GradScaler",
        "PyTorch Automatic Mixed Precision examples, Working with Multiple Models, Losses, and "
        "Optimizers: one update after all steps",
    )
    triggers = (".step(",)
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for step in distinct(filter(context.scaled_steps.lacks_update, context.scaled_steps.steps())):
            yield self._report(context, step)

    def _report(self, context: SourceContext, step: Event) -> Finding:
        steps = context.scaled_steps
        scaler, optimizer = names_of(step)
        backward = next(steps.backwards_of(step), None)
        related = [] if backward is None else [context.also(backward, "the loss is scaled here")]
        related += [
            context.also(update, f"`{context.code(update)}` does not run in every round of the step")
            for update in distinct(context.record.of("update"))
            if steps.same_scaler(update, step)
        ]
        return self.finding(
            context.at(step),
            f"`{context.code(step)}` is not followed by `{scaler}.update()`: the next step raises "
            "RuntimeError (step() has already been called since the last update()).",
            related=tuple(related) or (context.also(step, "the step"),),
            evidence=scaler_evidence(context, step=step, backward=backward),
            fix=Fix(
                f"Call `{scaler}.update()` once per iteration, after the last optimizer's step.",
                places=context.scaled_places(step),
            ),
            identity=f"{step.place.function.qualified_name}:{scaler}:{optimizer}",
        )
