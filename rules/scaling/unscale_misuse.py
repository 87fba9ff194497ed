"""`unscale_` called twice, too early or too late."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View, tail
from tclint.source.training.scaler_ops import either_apart, reads_of_round, scaler_evidence


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
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for unscale in view.of("unscale"):
                if unscale.node_id in seen or context.scaling.is_off(view, unscale) or view.of("escape"):
                    continue
                found = self._problem(view, unscale)
                if found is None:
                    continue
                other, message, advice = found
                seen.add(unscale.node_id)
                yield self.finding(
                    context.location(unscale.node_id),
                    f"`{unscale.scaler}.unscale_({unscale.optimizer})` {message}",
                    related=(context.related(other.node_id, f"`{context.excerpt(other.node_id)}`"),),
                    evidence=scaler_evidence(context, view, unscale=unscale, other=other),
                    fix=Fix(advice),
                    identity=f"{view.function.qualified_name}:{unscale.optimizer}:{message[:20]}",
                )

    def _problem(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        for other in view.before(unscale, "unscale"):
            if _again(view, other, unscale):
                return (
                    other,
                    "runs a second time for this optimizer without an update in between: RuntimeError.",
                    "Unscale once per optimizer and step, before anything that looks at gradients.",
                )
        for step in view.before(unscale, "scaler_step"):
            if _again(view, step, unscale):
                return (
                    step,
                    "runs after the optimizer's step: RuntimeError (unscale_() is being called after "
                    "step()).",
                    "Unscale after the last backward pass and before the step.",
                )
        return self._accumulates(view, unscale) or self._too_early(view, unscale)

    def _accumulates(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        updates = [op for op in view.of("update") if tail(op.scaler) == tail(unscale.scaler)]
        if not view.loops(unscale):
            return _in_calls(view, unscale, updates)
        loops = [loop for loop in view.loops(unscale) if not view.bound_by(loop, unscale.optimizer)]
        if not loops:
            return None
        loop = loops[0]
        near = [op for op in updates if loop in view.around(op)]
        if not updates:
            return None
        advice = "Unscale only in rounds that step: move it next to the step, under the same condition."
        if not near:
            scaled = [op for op in view.of("scaled_backward") if loop in view.around(op)]
            after = [op for op in updates if op in view.after(unscale, "update")]
            if scaled and after:
                message = (
                    "runs in every round of a loop that has no update: the second round raises RuntimeError."
                )
                return after[0], message, advice
            return None
        reachable = [op for op in near if not either_apart(view, op, unscale)]
        if reachable and all(
            (view.encloses(unscale, op) or _by_flag(view, unscale, op, loop))
            and view.extra(op, unscale)
            and not view.decided_by_precision(op, unscale)
            for op in reachable
        ):
            # Both branches of one test may update.
            later = view.after(unscale, "update")
            if any(either_apart(view, one, other) for one in later for other in later if one in near):
                return None
            condition = view.extra(reachable[0], unscale)[-1]
            test = condition.text if condition.holds else f"not {condition.text}"
            message = (
                f"runs in every round, but the update only if `{test}`: the next round raises RuntimeError "
                "(unscale_() has already been called on this optimizer since the last update())."
            )
            return reachable[0], message, advice
        return None

    def _too_early(self, view: View, unscale: Op) -> tuple[Op, str, str] | None:
        step = next((op for op in view.after(unscale, "scaler_step") if _same(op, unscale)), None)
        if step is None or len({op.optimizer for op in view.of("scaler_step", "step")}) > 1:
            return None
        for backward in view.between(unscale, step, "scaled_backward"):
            if _related_blocks(view, unscale, backward) and not view.between(unscale, backward, "update"):
                message = (
                    "runs before the last backward pass of the step: that pass adds scaled gradients to "
                    "unscaled ones."
                )
                return backward, message, "Unscale after the last backward pass of the step."
        return None


def _same(one: Op, other: Op) -> bool:
    return one.optimizer == other.optimizer and tail(one.scaler) == tail(other.scaler)


def _again(view: View, one: Op, other: Op) -> bool:
    """Both happen to one optimizer in one run, without an update in between."""
    if not _same(one, other) or not _related_blocks(view, one, other):
        return False
    return not view.between(one, other, "update")


def _related_blocks(view: View, one: Op, other: Op) -> bool:
    """Where one of them runs, the other runs as well."""
    return view.encloses(one, other) or view.encloses(other, one)


_ROUND = re.compile(r"%.*==|==.*%")
"""`(step + 1) % accumulation == 0`."""


def _in_calls(view: View, unscale: Op, updates: list[Op]) -> tuple[Op, str, str] | None:
    """Of a function that does one round in every call: the update hangs on the number of the call, the
    unscale_ does not."""
    if not view.before(unscale, "scaled_backward") or view.before(unscale, "update"):
        return None
    later = [op for op in updates if op in view.after(unscale, "update")]
    rare = [[item for item in view.extra(op, unscale) if _ROUND.search(item.text)] for op in later]
    if not later or not all(rare) or len(later) < len(updates):
        return None
    if any(_ROUND.search(condition.text) for condition in view.conditions(unscale)):
        return None
    test = rare[0][-1].text if rare[0][-1].holds else f"not {rare[0][-1].text}"
    message = (
        f"runs in every call, but the update only if `{test}`: the next call raises RuntimeError "
        "(unscale_() has already been called on this optimizer since the last update())."
    )
    return (
        later[0],
        message,
        "Unscale only in calls that step: move it next to the step, under the same condition.",
    )


def _by_flag(view: View, unscale: Op, update: Op, loop: tuple[tuple[int, ...], int, int]) -> bool:
    """A setting decides about unscale_ for the whole loop, the round decides about the update:
    `if clip: unscale_` beside `if step % accumulation == 0: update`."""
    changing = view.changes_in(loop)
    return not any(reads_of_round(condition, changing) for condition in view.extra(unscale, update)) and any(
        reads_of_round(condition, changing) for condition in view.extra(update, unscale)
    )
