"""A rule on where a loss scaler is made and when it is updated."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES

from .lifetimes import (
    recreated,
    unchecked_updates,
    updates_before_steps,
)
from .wording import names_of


class ScalerLifetime(SourceRule):
    """A scaler made again inside the training loop, or updated before the step.

    What it does
    Finds a GradScaler that is made inside the loop whose backward passes it scales, or by a function that
    a loop of the file calls for every epoch or step; and `scaler.update()` between the scaled backward
    pass and the step of an optimizer, or in iterations that skip both (`if loss.isnan(): scaler.update();
    continue`).

    Why it costs
    A scaler learns its scale: it starts at 65536, halves it after an overflow and doubles it after 2000
    clean steps. A new one starts over every time, so the first steps overflow and are skipped again and
    again. An update between a backward pass and its step changes the scale that the step divides by: the
    gradients of the second optimizer are then off by a factor of two whenever the scale changes. An
    update with neither a step nor `unscale_` before it raises "AssertionError: No inf checks were
    recorded prior to update"; that finding is an error.

    Example
        for batch in loader:
            scaler = torch.amp.GradScaler("cuda")
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    Use instead
        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            scaler.scale(model(batch)).backward()
            scaler.step(optimizer)
            scaler.update()

    When it does not apply
    One scaler per model, loops over folds or experiments that also make a new optimizer, a scaler made
    only where there is none yet, one update after each complete cycle.
    """

    code = "AMP011"
    name = "scaler-lifetime"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: one scaler, made once",
        "PyTorch Automatic Mixed Precision examples, Working with Multiple Models, Losses, and "
        "Optimizers: one update after all steps",
    )
    triggers = ("GradScaler", ".update(")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        steps = context.scaled_steps
        for made, step in distinct(recreated(steps)):
            yield self._recreated(context, made, step)
        for update, backward, rare in distinct(unchecked_updates(steps)):
            yield self._unchecked(context, update, backward, rare)
        for update, step, backward in distinct(updates_before_steps(steps)):
            yield self.finding(
                context.at(update),
                f"`{context.code(update)}` runs between the scaled backward pass and `{context.code(step)}`: "
                "the step divides by another scale than the one its gradients were multiplied by.",
                related=(
                    context.also(backward, "the last scaled backward pass"),
                    context.also(step, "the step after the update"),
                ),
                evidence={"step": context.code(step), "backward": context.code(backward)},
                fix=Fix(
                    "Update once per iteration, after the steps of all optimizers.",
                    places=context.scaled_places(update),
                ),
                identity=f"{update.place.function.qualified_name}:update:{names_of(step)[1]}",
            )

    def _recreated(self, context: SourceContext, made: Event, step: Event) -> Finding:
        backward = next(context.scaled_steps.backwards_of(step), step)
        related = [context.also(backward, "it scales this backward pass")]
        where = "in every round of the loop that it scales"
        function, loop = made.place.function, made.loop
        if loop is not None and loop.place.function is not function:
            where = f"anew by every call of `{function.name}`, which runs in a loop"
            call = next(place for place in made.stack if place.function is loop.place.function)
            related.append(context.also(call, "called in a loop here"))
        return self.finding(
            context.at(made),
            f"This GradScaler is made {where}: the scale starts over each time and is never adapted.",
            related=tuple(related),
            evidence={"scaler": context.code(made), "backward": context.code(backward)},
            fix=Fix("Make one scaler before the loop and keep it for the whole run."),
            identity=f"{function.qualified_name}:made",
        )

    def _unchecked(
        self, context: SourceContext, update: Event, backward: Event, rare: Event | None
    ) -> Finding:
        code, scaler = context.code(update), update.receiver_name
        related = [context.also(backward, "the scaled backward pass")]
        message = f"`{code}` runs although nothing has stepped or unscaled since the last update"
        if rare is not None:
            message = f"`{code}` runs in every round, also in those without a step"
            related.append(context.also(rare, "this does not run in every round"))
        return self.finding(
            context.at(update),
            f"{message}: it raises AssertionError (No inf checks were recorded prior to update).",
            level="error",
            related=tuple(related),
            evidence={"update": code, "backward": context.code(backward)},
            fix=Fix(
                f"Call `{scaler}.step(optimizer)`, then `{scaler}.update()`, under the same condition.",
                places=context.scaled_places(update),
            ),
            identity=f"{update.place.function.qualified_name}:update:{scaler}",
        )
