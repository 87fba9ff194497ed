"""Backward passes without the scale that their step takes away again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.plugin import Call, Finding, Fix, SourceContext, SourceRule, dotted, render
from tclint.source.facts.scaling_view import Op, View
from tclint.source.training.scaler_ops import scaler_evidence, scales_itself


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
    triggers = ("scaler", "Scaler")
    requires = (".step(", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework:
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                backwards = view.before(step, "scaled_backward", "backward", "other_backward")
                forgotten = self._forgotten(view, backwards)
                if forgotten is not None:
                    backwards = [forgotten]
                if (
                    not backwards
                    or backwards[0].node_id in seen
                    or any(backward.kind != "backward" for backward in backwards)
                    or context.scaling.is_off(view, step)
                    or view.before(step, "escape")
                ):
                    continue
                backward = backwards[0]
                if view.decided_by_precision(backward, step) or view.decided_by_precision(step, backward):
                    continue
                seen.add(backward.node_id)
                loss = dotted(backward.loss) if backward.loss is not None else ""
                if loss and scales_itself(context, view.function, loss):
                    continue
                if self._scaled_elsewhere(context, view, loss):
                    continue
                yield self._report(context, view, step, backward)

    def _forgotten(self, view: View, backwards: Sequence[Op]) -> Op | None:
        """A plain backward pass right after a scaled one whose gradients it adds to: one optimizer, which
        only the scaler steps.

        Args:
            backwards: those before the step, the latest first.
        """
        if [backward.kind for backward in backwards[:2]] != ["backward", "scaled_backward"]:
            return None
        if view.of("step") or len({op.optimizer for op in view.of("scaler_step")}) != 1:
            return None
        plain, scaled = backwards[:2]
        chosen = (
            view.mutually_exclusive(scaled, plain)
            or bool(view.extra(plain, scaled))
            or bool(view.extra(scaled, plain))
        )
        return None if chosen else plain

    def _scaled_elsewhere(self, context: SourceContext, view: View, loss: str) -> bool:
        """A method that another file defines makes the loss, and another file scales losses."""
        made = [
            value for _, value in context.resolver.origins_of(view.function, loss) if isinstance(value, Call)
        ]
        unseen = any(
            dotted(call.function).startswith("self.")
            and dotted(call.function).count(".") == 1
            and not context.resolver.local_functions(view.function, call.function)
            for call in made
        )
        return unseen and context.neighbours.mention(("scaler.scale(",)) is not None

    def _report(self, context: SourceContext, view: View, step: Op, backward: Op) -> Finding:
        loss = render(backward.loss) if backward.loss is not None else "loss"
        return self.finding(
            context.location(backward.node_id),
            f"`{loss}` goes backward unscaled, but `{step.scaler}.step({step.optimizer})` on line "
            f"{context.location(step.node_id).line} divides its gradients by the loss scale (or raises "
            "AssertionError when nothing was ever scaled).",
            related=(context.related(step.node_id, "the step that divides by the scale"),),
            evidence=scaler_evidence(context, view, step=step, backward=backward),
            fix=Fix(f"Write `{step.scaler}.scale({loss}).backward()`."),
            identity=f"{view.function.qualified_name}:{loss}",
        )
