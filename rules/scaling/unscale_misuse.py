"""`unscale_` called twice, too early or too late."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import ScaledSteps

from .wording import names_of, scaler_evidence

_ONCE = "Unscale once per optimizer and step, before anything that looks at gradients."
_LATE = "Unscale after the last backward pass of the step, and before the step."
_RARELY = "Unscale only in rounds that step: move it next to the step, under the same condition."
_RAISES = (
    "the next round raises RuntimeError (unscale_() has already been called on this optimizer since the "
)
_Problem = tuple[Event, Event, str, str]
"""(unscaling, call that conflicts with it, problem, advice)."""


class UnscaleMisuse(SourceRule):
    """`scaler.unscale_` called twice, too early or too late.

    What it does
    Finds `unscale_` that runs twice for one optimizer before `update`; that runs in every iteration of a
    gradient accumulation loop (or in every call of a function that does one iteration) while the update
    runs only in some; after the optimizer's step; or before the last backward pass of the step.

    Why it costs
    `unscale_` divides the gradients in place and may do so once per optimizer between two updates: a
    second call raises "RuntimeError: unscale_() has already been called on this optimizer since the last
    update()", and one after the step raises "unscale_() is being called after step()". A backward pass
    after it adds scaled gradients to unscaled ones, and nothing divides them.

    Example
        for step, batch in enumerate(loader):
            scaler.scale(model(batch) / 4).backward()
            scaler.unscale_(optimizer)
            if step % 4 == 3:
                scaler.step(optimizer)
                scaler.update()

    Use instead
        for step, batch in enumerate(loader):
            scaler.scale(model(batch) / 4).backward()
            if step % 4 == 3:
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()

    When it does not apply
    Different optimizers, loops over optimizers, an update in every iteration, a disabled scaler, an
    unscale_ under the same condition as the update.
    """

    code = "AMP010"
    name = "unscale-misuse"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Working with Unscaled Gradients: once per optimizer "
        "and step",
        "PyTorch Automatic Mixed Precision examples, Gradient accumulation: unscale only before a step",
    )
    triggers = ("unscale_(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for unscale, other, message, advice in distinct(self._problems(context.scaled_steps)):
            yield self.finding(
                context.at(unscale),
                f"`{context.code(unscale)}` {message}",
                related=(context.also(other, f"`{context.code(other)}`"),),
                evidence=scaler_evidence(context, unscale=unscale, other=other),
                fix=Fix(advice, places=context.scaled_places(unscale)),
                identity=f"{unscale.place.function.qualified_name}:{names_of(unscale)[1]}:{message[:20]}",
            )

    def _problems(self, steps: ScaledSteps) -> Iterator[_Problem]:
        for unscale in steps.calls("unscale"):
            yield from self._again(steps, unscale)
            yield from self._in_calls(steps, unscale)
            yield from self._too_early(steps, unscale)
        for step in steps.calls("scaler_step"):
            for late in islice(steps.again(step, "unscale"), 1):
                if step.shares_rounds(late) and steps.clash(step, late):
                    message = (
                        "runs after the optimizer's step: RuntimeError (unscale_() is being called after "
                    )
                    yield late, step, f"{message}step()).", _LATE

    def _again(self, steps: ScaledSteps, unscale: Event) -> Iterator[_Problem]:
        other = next(steps.again(unscale, "unscale"), None)
        if other is None or not steps.clash(unscale, other):
            return
        if unscale.shares_rounds(other):
            message = "runs a second time for this optimizer without an update in between: RuntimeError."
            yield other, unscale, message, _ONCE
        elif unscale.place != other.place:
            return
        elif rare := steps.updates_between(unscale, other):
            message = f"runs in every round, but the update only in some: {_RAISES}last update())."
            yield unscale, rare[0], message, _RARELY
        elif updates := steps.updates_after(other):
            message = (
                "runs in every round of a loop that has no update: the second round raises RuntimeError."
            )
            yield unscale, updates[0], message, _RARELY

    def _in_calls(self, steps: ScaledSteps, unscale: Event) -> Iterator[_Problem]:
        """Problems in a function that performs one round per call, if the update depends on the round and the
        unscaling does not."""
        if unscale.loops or unscale.place.function.kind == "module":
            return
        updates = steps.updates_after(unscale)
        if updates and all(steps.skippable(update, unscale) for update in updates):
            message = f"runs in every call, but the update only in some: {_RAISES}last update())."
            yield unscale, updates[0], message.replace("next round", "next call"), _RARELY

    def _too_early(self, steps: ScaledSteps, unscale: Event) -> Iterator[_Problem]:
        step = next(steps.again(unscale, "scaler_step"), None)
        if step is None or not unscale.shares_rounds(step):
            return
        for backward in steps.record.between(unscale, step, "backward"):
            together = unscale.shares_rounds(backward) and steps.clash(unscale, backward)
            if together and steps.scales_for(unscale, backward):
                message = (
                    "runs before the last backward pass of the step: that pass adds scaled gradients to "
                    "unscaled ones."
                )
                yield unscale, backward, message, _LATE
