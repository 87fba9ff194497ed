"""Scaled steps whose scaler is never updated."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View, tail
from tclint.source.syntax.tables import Jump
from tclint.source.training.scaler_ops import scaler_evidence


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
    triggers = ("scaler", "Scaler")
    requires = (".step(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        updates = {tail(op.scaler) for view in context.scaling.views for op in view.of("update")}
        excused = {
            op.node_id
            for view in context.scaling.views
            for op in view.of("scaler_step")
            if not self._lacks_update(context, view, op, updates)
        }
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                if step.node_id in excused or step.node_id in seen:
                    continue
                seen.add(step.node_id)
                if self._updated_elsewhere(context, view, step):
                    continue
                yield self._report(context, view, step)

    def _lacks_update(self, context: SourceContext, view: View, step: Op, updates: set[str]) -> bool:
        mine = view.alike(step.scaler, "update")
        if context.scaling.is_off(view, step) or view.of("escape"):
            return False
        loops = [loop for loop in view.loops(step) if not view.bound_by(loop, step.optimizer)]
        reachable = [
            op
            for op in mine
            if not view.mutually_exclusive(step, op) and not view.mutually_exclusive(op, step)
        ]
        if reachable:
            return bool(loops) and all(
                self._rarer(view, op, step, loops[0]) or self._after_the_loop(view, op, step, loops[0])
                for op in reachable
            )
        if mine:
            return bool(loops)
        if loops and self._is_own(context, view, step.scaler):
            # Nobody else can update it between two rounds.
            return True
        if tail(step.scaler) in updates or not view.before(step, "scaled_backward"):
            return False
        made, _ = context.scaling.origins_of(view, step)
        return bool(loops) or bool(made)

    def _updated_elsewhere(self, context: SourceContext, view: View, step: Op) -> bool:
        """The scaler is an attribute or a parameter, and another file of the program updates one."""
        root = step.scaler.partition(".")[0]
        given = any(parameter.name == root for parameter in view.function.parameters)
        if not given or view.of("update"):
            return False
        return context.neighbours.mention(("scaler.update(",)) is not None

    def _is_own(self, context: SourceContext, view: View, scaler: str) -> bool:
        """A parameter or a local variable that no function defined in the function updates."""
        function = view.function
        owner = context.resolver.owner(function, scaler) if "." not in scaler else None
        if owner is not function or function.kind != "function":
            return False
        return not any(
            other.of("update") and any(scope is function for scope in context.resolver.scopes(other.function))
            for other in context.scaling.views
            if other is not view
        )

    def _rarer(self, view: View, update: Op, step: Op, loop: tuple[tuple[int, ...], int, int]) -> bool:
        """The update runs in some rounds of the loop in which the step runs always."""
        if loop not in view.around(update) or not view.encloses(step, update):
            return False
        extra = view.extra(update, step)
        return bool(extra) and not view.decided_by_precision(update, step)

    def _after_the_loop(
        self, view: View, update: Op, step: Op, loop: tuple[tuple[int, ...], int, int]
    ) -> bool:
        """The step runs in every round of a loop, the update once behind it."""
        function = view.amp.tables.functions[loop[1]]
        leaves = any(
            isinstance(event, Jump) and event.kind == "break" and loop[2] in function.enclosing(event.block)
            for event in function.events
        )
        if leaves or loop in view.around(update) or view.extra(step, update):
            return False
        return bool(view.after(step, "update")) and step.scaler == update.scaler

    def _report(self, context: SourceContext, view: View, step: Op) -> Finding:
        backward = next(iter(view.before(step, "scaled_backward")), None)
        related = [
            context.related(op.node_id, f"`{op.scaler}.update()` does not run in every round of the step")
            for op in view.of("update")
        ]
        if backward is not None:
            related.insert(0, context.related(backward.node_id, "the loss is scaled here"))
        return self.finding(
            context.location(step.node_id),
            f"`{step.scaler}.step({step.optimizer})` is not followed by `{step.scaler}.update()`: the next "
            "step raises RuntimeError (step() has already been called since the last update()).",
            related=tuple(related) or (context.related(view.function.node_id, "in this function"),),
            evidence=scaler_evidence(context, view, step=step, backward=backward),
            fix=Fix(f"Call `{step.scaler}.update()` once per iteration, after the last optimizer's step."),
            identity=f"{view.function.qualified_name}:{step.scaler}:{step.optimizer}",
        )
