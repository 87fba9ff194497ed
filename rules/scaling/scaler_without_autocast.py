"""Loss scalers where nothing runs in float16."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, Symbol, options_of
from tclint.plugin.source import HALF_DTYPES, Value


class ScalerWithoutAutocast(SourceRule):
    """A loss scaler where nothing computes in float16.

    What it does
    Finds a GradScaler that scales losses in a file where neither it nor anything that it imports from its
    project mentions autocast, float16 or half.

    Why it costs
    Gradients computed in float32 do not underflow, so the scaler only costs time, and nothing uses the
    Tensor Cores' 16-bit rate: autocast was probably forgotten.

    Example
        scaler = torch.amp.GradScaler("cuda")
        loss = model(batch)
        scaler.scale(loss).backward()

    Use instead
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()

    When it does not apply
    Autocast inside the model or in other files of the project, explicit casts, scalers that are disabled,
    models of libraries that are not known to leave the dtype alone, losses that are computed by callers
    outside the file.
    """

    code = "AMP012"
    name = "scaler-without-autocast"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package: autocast and GradScaler are modular, and used "
        "together for float16",
    )
    triggers = ("GradScaler",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if self._has_16_bits(context):
            return
        for scale in context.scaled_steps.calls("scale"):
            scaler = next(iter(context.facts.kinds(scale.subject, "scaler")))
            if not context.gradients.is_certain(scaler) or scaler.made is None:
                continue
            if not self._is_known(context, scale.first):
                continue
            yield self.finding(
                context.at(scale),
                "The loss is scaled, but nothing here computes in float16: no autocast, no cast.",
                related=(context.also(scaler.made, "the scaler"),),
                evidence={"scaler": context.code(scaler.made), "autocast": None},
                fix=Fix('Compute the loss under `torch.autocast("cuda")`, or drop the scaler.'),
                identity=scale.place.function.qualified_name,
            )
            return

    def _has_16_bits(self, context: SourceContext) -> bool:
        """Whether the program anywhere enters autocast or casts to 16 bits or to an unknown dtype."""
        facts, record = context.facts, context.record
        if any(facts.kinds(event.subject, "autocast") for event in record.of("enter")):
            return True
        given = (value for event in record.events for key, value in event.arguments.items() if "dtype" in key)
        return record.of("autocast_default") != [] or any(map(self._may_be_16_bits, given))

    def _may_be_16_bits(self, dtype: Value) -> bool:
        return any(
            not isinstance(option, Symbol) or option.name in HALF_DTYPES for option, _ in options_of(dtype)
        )

    def _is_known(self, context: SourceContext, loss: Value | None) -> bool:
        """Whether a loss is computed only by code of the program and known libraries."""
        made = context.facts.made_by(loss)
        return bool(made) and all(
            event.subject is not None or event.kind not in ("call", "escape") for event in made
        )
