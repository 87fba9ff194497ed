"""Loss scalers where the gradients are bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import SCALES, Region, exclude

_CHOICES = frozenset({"==", "!=", "in", "not in", "not", "is", "is not"})
"""Operators of tests that may concern the dtype."""


class ScalerWithBf16(SourceRule):
    """Loss scaling for bfloat16 autocast.

    What it does
    Finds `scaler.scale(loss)` on a loss that comes only from bfloat16 autocast, with a scaler that is
    always enabled, or whose `enabled` has nothing to do with the dtype.

    Why it costs
    bfloat16 has the exponent range of float32, so gradients do not underflow without scaling. A scaler
    then only adds work to every step: scaling, a pass over all gradients to unscale them, and a
    synchronization to look for inf.

    Example
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Use instead
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss.backward()
        optimizer.step()

        # or, where the dtype is an option, a scaler that is off in bfloat16:
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

    When it does not apply
    A dtype chosen at run time, a scaler that is disabled or whose `enabled` depends on the dtype or the
    precision, a scaler that comes from elsewhere.
    """

    code = "AMP008"
    name = "scaler-with-bf16"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Autocasting and Gradient Scaling: it is float16 that "
        "uses autocast and GradScaler together",
    )
    triggers = ("bfloat16", "bf16")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for scale, region, scaler in distinct(self._needless(context)):
            yield self._report(context, scale, region, scaler)

    def _needless(self, context: SourceContext) -> Iterator[tuple[Event, Region, Thing]]:
        autocasts, gradients = context.autocasts, context.gradients
        for scale in context.scaled_steps.calls("scale"):
            scalers = context.facts.kinds(scale.subject, "scaler")
            origins = [
                item
                for item in autocasts.origins(scale.first)
                if context.facts.is_on(item[1], scale.path) is not False
            ]
            dtypes = {autocasts.dtype_on_gpu(autocast) for _, autocast, _ in origins}
            if dtypes != {"torch.bfloat16"} or not all(map(self._is_on_anyway, scalers)):
                continue
            if not all(map(gradients.is_certain, scalers)):
                continue
            if not any(
                exclude(other.event.path, scale.path) and gradients.same(other.loss, scale.first)
                for other in gradients.backwards
            ):
                yield scale, origins[0][0], scalers[0]

    def _is_on_anyway(self, scaler: Thing) -> bool:
        """Whether a scaler is enabled, always or by a setting that does not depend on a test of a dtype."""
        enabled = scaler.fields.get("enabled")
        if enabled is None:
            return "**" not in scaler.fields and "*" not in scaler.fields
        return not (
            isinstance(enabled, Thing) and enabled.operation is not None and enabled.operation[0] in _CHOICES
        )

    def _report(self, context: SourceContext, scale: Event, region: Region, scaler: Thing) -> Finding:
        loss, name, entered, made = scale.argument_text, scale.receiver_name, region.entered, scaler.made
        assert entered is not None
        assert made is not None
        return self.finding(
            context.at(scale),
            f"`{loss}` comes from the bfloat16 autocast of {context.where(entered, scale)}; bfloat16 has "
            f"float32's range and needs no loss scaling, `{name}` only costs time.",
            related=(
                context.also(entered, "bfloat16 autocast"),
                context.also(made, "the scaler is made here"),
            ),
            evidence={
                "loss": loss,
                "autocast": context.code(entered),
                "scaler": context.code(made),
                "enabled": "always" if context.facts.is_on(scaler) else "decided at run time",
            },
            fix=Fix(
                "Drop the scaler (`loss.backward()`, `optimizer.step()`), or make it with "
                "`enabled=dtype == torch.float16`.",
                places=context.places(made=[made]),
            ),
            identity=f"{scale.place.function.qualified_name}:{loss}",
        )
