"""A rule on backward passes without the scale that their step removes."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES, Backward

from .wording import loss_name, names_of, scaler_evidence


class UnscaledBackward(SourceRule):
    """`loss.backward()` without scaling, then `scaler.step(optimizer)`.

    What it does
    Finds a scaler's step where every backward pass that leads to it starts from an unscaled loss.

    Why it costs
    `scaler.step` divides all gradients by the loss scale (65536 at first): gradients that were never
    multiplied become that much smaller. When the scaler has never scaled anything, the step raises
    "AssertionError: Attempted step but _scale is None".

    Example
        loss.backward()
        scaler.step(optimizer)
        scaler.update()

    Use instead
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    A loss that was scaled on an earlier line or by a helper, branches with and without a scaler, backward
    methods of engines and frameworks, a scaler that is disabled.
    """

    code = "AMP013"
    name = "unscaled-backward"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: backward goes "
        "through the scaled loss",
    )
    triggers = (".backward(",)
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for backward, step in distinct(self._unscaled(context)):
            yield self._report(context, backward, step)

    def _unscaled(self, context: SourceContext) -> Iterator[tuple[Event, Event]]:
        gradients, steps = context.gradients, context.scaled_steps
        for step in steps.calls("scaler_step"):
            scalers = tuple(context.facts.kinds(step.subject, "scaler"))
            backwards = steps.backwards_for(step)
            if any(item.scalers for item in backwards):
                backwards = self._forgotten(context, step, backwards)
            for backward in backwards[:1]:
                if gradients.may_be_scaled_elsewhere(backward, scalers):
                    continue
                if gradients.may_be_handled_elsewhere(scalers, backward.event, step):
                    continue
                if steps.one_always_with_other(backward.event, step):
                    yield backward.event, step

    def _forgotten(self, context: SourceContext, step: Event, backwards: list[Backward]) -> list[Backward]:
        """The plain backward passes right after a scaled one to whose gradients, for one optimizer, they
        add."""
        if len(backwards) < 2 or backwards[0].scalers or not backwards[1].scalers:
            return []
        plain, scaled = backwards[:2]
        if set(plain.event.path) != set(scaled.event.path):
            return []
        return [plain] if context.scaled_steps.is_for(step, plain.event) else []

    def _report(self, context: SourceContext, backward: Event, step: Event) -> Finding:
        loss = loss_name(context, backward)
        return self.finding(
            context.at(backward),
            f"`{loss}` goes backward unscaled, but `{context.code(step)}` on {context.where(step)} divides "
            "its gradients by the loss scale (or raises AssertionError when nothing was ever scaled).",
            related=(context.also(step, "the step that divides by the scale"),),
            evidence=scaler_evidence(context, step=step, backward=backward),
            fix=Fix(
                f"Write `{names_of(step)[0]}.scale({loss}).backward()`.",
                places=context.scaled_places(step),
            ),
            identity=f"{backward.place.function.qualified_name}:{loss}",
        )
