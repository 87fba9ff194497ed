"""A rule on float16 autocast whose loss nothing scales."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import NONE, UNSEEN, Backward, Function, Region, exclude

from .wording import loss_name

_Lossy = tuple[Event, Region, Thing]
"""A backward pass whose loss nothing scales, and the float16 autocast that it comes from."""


class Fp16AutocastNoScaler(SourceRule):
    """Training under float16 autocast without scaling the loss.

    What it does
    Finds `loss.backward()` on a loss that was computed under float16 autocast (the default dtype of
    autocast on CUDA) where nothing in the file scales losses. The region may be in the forward of a model
    that another file defines, if nothing there scales losses either.

    Why it costs
    float16 represents nothing between 0 and 2^-24 and loses precision below 2^-14. Gradients of the ops
    that ran in float16 are float16 as well, and many of them are smaller than that: they become zero,
    weights stop learning, and the network converges worse or not at all. Scaling the loss moves gradients
    into the range; `torch.amp.GradScaler` chooses the factor and undoes it before the step.

    Example
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    Use instead
        scaler = torch.amp.GradScaler("cuda")
        ...
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        # or, on compute capability 8.0 and newer, bfloat16, which has the exponent range of float32:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    When it does not apply
    bfloat16 or CPU autocast, a dtype that is chosen at run time, regions without gradients, losses scaled
    by hand. Where only the device is chosen at run time (`device.type`), the default on CUDA counts if
    the file mentions CUDA. The rule is silent if the file mentions a scaler that it does not visibly make
    and use itself, imports a framework that scales losses (Accelerate, Lightning, DeepSpeed, apex, ...),
    sets the default dtype of autocast, or passes the loss to a helper that may scale it; and in functions
    that do anything with a scaler.
    """

    code = "AMP001"
    name = "fp16-autocast-no-scaler"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Gradient Scaling: float16 gradients underflow without it",
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: autocast and "
        "GradScaler together",
        "NVIDIA Train With Mixed Precision, Loss Scaling To Preserve Small Gradient Magnitudes: gradients"
        " too small for float16 become zero",
    )
    triggers = (".backward(", "backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Function, list[_Lossy]] = {}
        for lossy in distinct(self._lossy(context)):
            found.setdefault(lossy[0].place.function, []).append(lossy)
        for several in found.values():
            yield self._report(context, several)

    def _lossy(self, context: SourceContext) -> Iterator[_Lossy]:
        autocasts, gradients = context.autocasts, context.gradients
        for backward in gradients.backwards:
            if backward.scalers or gradients.may_be_scaled_elsewhere(backward, ()):
                continue
            if autocasts.is_off_gpu(backward.event):
                continue
            origins = autocasts.origins(backward.loss)
            half = (item for item in origins if autocasts.default_dtype_on_gpu(item[1]) == "torch.float16")
            for region, autocast, _ in islice(half, 1):
                if context.facts.is_on(autocast, backward.event.path) is False:
                    continue
                if self._is_applied(context, backward) and not self._has_other_way(
                    context, backward, autocast
                ):
                    yield backward.event, region, autocast

    def _is_applied(self, context: SourceContext, backward: Backward) -> bool:
        """Whether a plain step applies the gradients and nothing scales them by hand."""
        gradients, record, event = context.gradients, context.record, backward.event
        steps = [*record.after(event, "step", "scaler_step"), *record.before(event, "step")]
        return bool(steps) and steps[0].kind == "step" and not gradients.is_scaled_by_hand(backward)

    def _has_other_way(self, context: SourceContext, backward: Backward, autocast: Thing) -> bool:
        """Whether another branch of the same decision scales the loss, or the decision concerns the
        scaler."""
        facts, event = context.facts, backward.event
        if any(facts.kinds(atom.subject, "scaler") for atom in event.path):
            return True
        for other in context.record.of(*UNSEEN, "scale", "backward"):
            given = exclude(other.path, event.path) and context.gradients.same(other.first, backward.loss)
            if given and (other.kind != "scale" or facts.is_on(autocast) is None):
                return True
        return False

    def _report(self, context: SourceContext, several: list[_Lossy]) -> Finding:
        event, region, autocast = several[0]
        made, entered = autocast.made, region.entered
        assert made is not None
        assert entered is not None
        loss, given = loss_name(context, event), autocast.fields.get("dtype", NONE) != NONE
        following = next(context.record.after(event, "clip", "step"), None)
        clips = following is not None and following.kind == "clip"
        unscale = ", `scaler.unscale_(optimizer)` before gradients are clipped" if clips else ""
        why = "dtype=float16" if given else "its default dtype on CUDA is float16"
        enabled = context.facts.is_on(autocast)
        others = tuple(
            context.also(other, f"`{loss_name(context, other)}` is not scaled here either")
            for other, _, _ in several[1:]
        )
        return self.finding(
            context.at(event),
            f"`{loss}` comes from float16 autocast on {context.where(entered)}"
            f"{'' if enabled else ' (where it is enabled)'} and goes backward unscaled: gradients below "
            "2^-24 become zero.",
            related=(context.also(entered, f"float16 autocast: {why}"), *others),
            evidence={
                "loss": loss,
                "function": event.place.function.qualified_name,
                "autocast": context.code(made),
                "autocast_line": context.at(made).line,
                "dtype": "float16",
                "dtype_from": "argument" if given else "default",
                "enabled": "always" if enabled else "decided at run time",
                "scaler": None,
            },
            fix=Fix(
                'Make one `scaler = torch.amp.GradScaler("cuda")` before the loop, then call '
                f"`scaler.scale({loss}).backward()`{unscale}, `scaler.step(optimizer)` and "
                "`scaler.update()`; or, on compute capability 8.0 and newer, pass dtype=torch.bfloat16 to "
                "autocast: it needs no scaler.",
                places=context.scaled_places(event),
            ),
            identity=f"{event.place.function.qualified_name}:{loss}",
        )
