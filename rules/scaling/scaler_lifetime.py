"""Where a loss scaler is made and when it is updated."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View
from tclint.source.training.scaler_lifetimes import (
    EarlyUpdate,
    RecreatedInLoop,
    early_updates,
    per_optimizer,
    recreated_in_loop,
)


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
    requires = (".scale(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for found in recreated_in_loop(context, view):
                if found.made.node_id not in seen:
                    seen.add(found.made.node_id)
                    yield self._recreated_in_loop(context, view, found)
            for early in early_updates(context, view):
                if early.update.node_id not in seen:
                    seen.add(early.update.node_id)
                    yield self._early(context, view, early)
            for update, step, backward in self._updated_early(view):
                if update.node_id not in seen:
                    seen.add(update.node_id)
                    yield self.finding(
                        context.location(update.node_id),
                        f"`{update.scaler}.update()` runs between the scaled backward pass and "
                        f"`{step.scaler}.step({step.optimizer})`: the step divides by another scale than the "
                        "one its gradients were multiplied by.",
                        related=(
                            context.related(backward.node_id, "the last scaled backward pass"),
                            context.related(step.node_id, "the step after the update"),
                        ),
                        evidence={
                            "step": context.excerpt(step.node_id),
                            "backward": context.excerpt(backward.node_id),
                        },
                        fix=Fix("Update once per iteration, after the steps of all optimizers."),
                        identity=f"{view.function.qualified_name}:update:{step.optimizer}",
                    )

    def _recreated_in_loop(self, context: SourceContext, view: View, found: RecreatedInLoop) -> Finding:
        related = [context.related(found.backward.node_id, "it scales this backward pass")]
        where = "in every round of the loop that it scales"
        if found.call is not None:
            where = f"anew by every call of `{view.function.name}`, which runs in a loop"
            related.append(context.related(found.call, "called in a loop here"))
        return self.finding(
            context.location(found.made.node_id),
            f"This GradScaler is made {where}: the scale starts over each time and is never adapted.",
            related=tuple(related),
            evidence={
                "scaler": context.excerpt(found.made.node_id),
                "backward": context.excerpt(found.backward.node_id),
            },
            fix=Fix("Make one scaler before the loop and keep it for the whole run."),
            identity=f"{view.function.qualified_name}:made",
        )

    def _early(self, context: SourceContext, view: View, early: EarlyUpdate) -> Finding:
        scaler = early.update.scaler
        related = [context.related(early.backward.node_id, "the scaled backward pass")]
        message = f"`{scaler}.update()` runs although nothing has stepped or unscaled since the backward pass"
        if view.mutually_exclusive(early.update, early.backward):
            message = f"`{scaler}.update()` runs in rounds that leave out the backward pass and the step"
        if early.rarer is not None:
            message = f"`{scaler}.update()` runs in every round, also in those without a step"
            related.append(context.related(early.rarer.node_id, "this does not run in every round"))
        return self.finding(
            context.location(early.update.node_id),
            f"{message}: it raises AssertionError (No inf checks were recorded prior to update).",
            level="error",
            related=tuple(related),
            evidence={
                "update": context.excerpt(early.update.node_id),
                "backward": context.excerpt(early.backward.node_id),
            },
            fix=Fix(f"Call `{scaler}.step(optimizer)`, then `{scaler}.update()`, under the same condition."),
            identity=f"{view.function.qualified_name}:update:{scaler}",
        )

    def _updated_early(self, view: View) -> Iterator[tuple[Op, Op, Op]]:
        if view.of("escape"):
            return
        for update in view.of("update"):
            step = next(iter(view.after(update, "scaler_step")), None)
            backward = next(iter(view.before(update, "scaled_backward")), None)
            if step is None or backward is None or step.scaler != update.scaler:
                continue
            earlier = any(op.optimizer != step.optimizer for op in view.before(update, "scaler_step"))
            if not earlier or view.between(update, step, "scaled_backward", "backward", "other_backward"):
                continue
            if view.encloses(update, step) and view.loops(update) == view.loops(step):
                yield update, step, backward
        yield from per_optimizer(view)
