"""Gradients clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES, Backward

from .wording import scaler_evidence, unscaling


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
    triggers = ("clip_grad", "adaptive_clip", ".grad")
    pattern = re.compile(rb"clip_grad|adaptive_clip|\.grad\b")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for clip in distinct(context.gradients.clips()):
            backward = context.gradients.last_scaled(clip)
            if backward is None:
                context.skip(clip, "no backward pass of a loss that a scaler multiplied leads there")
                continue
            steps = context.record.after(clip, "scaler_step", "step")
            step = next((step for step in steps if context.gradients.together(step, backward.event)), None)
            why = self._excuse(context, clip, backward) if step is not None else "no optimizer steps after it"
            if why or step is None:
                context.skip(clip, why)
            else:
                yield self._report(context, clip, step, backward)

    def _excuse(self, context: SourceContext, clip: Event, backward: Backward) -> str:
        """The reason why scaled gradients may be clipped here; '' if there is none."""
        gradients = context.gradients
        if gradients.gives_infinite_limit(clip):
            return "its limit is infinite, so it only measures"
        if gradients.knows_scale(clip):
            return "its limit is computed from the loss scale"
        if gradients.unscaled_between(backward.event, clip):
            return (
                f"gradients are unscaled between the backward pass of {context.where(backward.event)} and it"
            )
        if gradients.may_be_handled_elsewhere(backward.scalers, backward.event, clip):
            return "code that is not seen gets the scaler before it, and may unscale"
        return ""

    def _report(self, context: SourceContext, clip: Event, step: Event, backward: Backward) -> Finding:
        what = "clipped" if clip.kind == "clip" else "changed"
        without, advice = unscaling(step, backward)
        return self.finding(
            context.at(clip),
            f"Gradients are {what} here while still multiplied by the loss scale since "
            f"{context.where(backward.event)}{without}: the limit then applies to gradients times the scale, "
            "which starts at 65536 and changes.",
            related=(
                context.also(backward.event, "gradients are scaled from here on"),
                context.also(step, f"`{context.code(step)}` unscales only here"),
            ),
            evidence=scaler_evidence(context, clip=clip, step=step, backward=backward.event),
            fix=Fix(advice, places=context.scaled_places(step)),
            identity=f"{clip.place.function.qualified_name}:{context.code(clip)}",
        )
