"""Gradients clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.scaling_view import Op, View
from tclint.source.training.scaler_ops import scaled_by, scaler_evidence, unscales_by_hand


class ClipBeforeUnscale(SourceRule):
    """Gradients clipped while they are still multiplied by the loss scale.

    What it does
    Finds `torch.nn.utils.clip_grad_norm_`, `clip_grad_value_`, timm's `dispatch_clip_grad`, clamping of
    `.grad`, and noise or weight decay added to it, between a scaled backward pass and
    `scaler.step(optimizer)` without `scaler.unscale_(optimizer)` first.

    Why it costs
    After `scaler.scale(loss).backward()` gradients are 65536 times too large at first, and later some
    other power of two. A limit of 1.0 on the scaled norm is a limit of 1.5e-5 on the true one: every step
    is clipped, `scaler.step` then divides by the scale, and the network hardly learns. How hard gradients
    are clipped changes whenever the scale does.

    Example
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    Use instead
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    A scaler that is disabled, clipping in the branch without a scaler, clipping functions of frameworks
    (`accelerator.clip_grad_norm_`, FSDP's `model.clip_grad_norm_`), `amp.master_params` of apex, an
    optimizer that was unscaled earlier in the same step, gradients divided by the scale by hand. The rule
    is silent when the scaler is passed to code that the rule cannot see before the clipping.
    """

    code = "AMP003"
    name = "clip-before-unscale"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Gradient clipping: unscale first",
        "PyTorch Automatic Mixed Precision recipe, Inspecting/modifying gradients: unscale first",
    )
    triggers = ("clip_grad", "clamp", "adaptive_clip", ".grad")
    requires = (".step(", "caler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if unscales_by_hand(context):
            return
        seen: set[int] = set()
        for view in context.scaling.views:
            for clip in view.of("clip", "cut"):
                step = self._step_of(context, view, clip)
                if step is None or clip.node_id in seen:
                    continue
                seen.add(clip.node_id)
                backward = next(iter(view.before(clip, "scaled_backward")), None)
                yield self._report(context, view, clip, step, backward)

    def _step_of(self, context: SourceContext, view: View, clip: Op) -> Op | None:
        """The scaler's step that comes after a clipping of scaled gradients."""
        step = next(iter(view.after(clip, "scaler_step")), None)
        if step is None:
            step = self._bypassing_step(context, view, clip)
        if step is None or context.scaling.is_off(view, step) or view.decided_by_precision(clip, step):
            return None
        if view.between(clip, step, "scaled_backward", "backward", "other_backward"):
            return None
        if view.before(clip, "escape", "rescale") or any(
            _still_counts(view, unscale, clip) for unscale in view.before(clip, "unscale")
        ):
            return None
        backward = next(iter(view.before(clip, "scaled_backward", "backward", "other_backward")), None)
        if backward is not None:
            return step if view.before(clip, "scaled_backward") else None
        # Backward happens elsewhere, and so may unscale_.
        made, _ = context.scaling.origins_of(view, step)
        elsewhere = any(other.of("unscale", "escape") for other in context.scaling.views)
        return step if made and not elsewhere else None

    def _bypassing_step(self, context: SourceContext, view: View, clip: Op) -> Op | None:
        """An optimizer's own step on scaled gradients, which is a mistake of its own."""
        if context.amp.framework:
            return None
        for step in view.after(clip, "step"):
            scaled = scaled_by(context, view, step)
            if scaled is not None:
                return step._replace(scaler=scaled.scaler)
        return None

    def _report(self, context: SourceContext, view: View, clip: Op, step: Op, backward: Op | None) -> Finding:
        what = "changed" if clip.kind == "cut" else "clipped"
        related = [context.related(step.node_id, f"`{step.scaler}` unscales only here")]
        if backward is not None:
            since = f" since line {context.location(backward.node_id).line}"
            related.insert(0, context.related(backward.node_id, "gradients are scaled from here on"))
        return self.finding(
            context.location(clip.node_id),
            f"Gradients are {what} here while still multiplied by the loss scale{since}, without "
            f"`{step.scaler}.unscale_({step.optimizer})` first: the limit then applies to gradients times "
            "the scale, which starts at 65536 and changes.",
            related=tuple(related),
            evidence=scaler_evidence(context, view, clip=clip, step=step, backward=backward),
            fix=Fix(f"Call `{step.scaler}.unscale_({step.optimizer})` before clipping."),
            identity=f"{view.function.qualified_name}:{context.excerpt(clip.node_id)}",
        )


def _still_counts(view: View, unscale: Op, clip: Op) -> bool:
    """Gradients are still unscaled: neither an update nor the optimizer's own step came in between."""
    if view.between(unscale, clip, "update"):
        return False
    return not any(step.optimizer == unscale.optimizer for step in view.between(unscale, clip, "scaler_step"))
