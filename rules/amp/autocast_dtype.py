"""Autocast to float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, Symbol, distinct
from tclint.plugin.source import FALSE


class AutocastFp32Dtype(SourceRule):
    """Autocast with dtype=torch.float32, which switches it off.

    What it does
    Finds autocast calls whose dtype is float32 (or float64).

    Why it costs
    Autocast supports float16 and bfloat16; with any other dtype it warns once and runs disabled. The code
    reads as mixed precision and computes in float32.

    Example
        with torch.autocast("cuda", dtype=torch.float32):
            loss = model(batch)

    Use instead
        with torch.autocast("cuda", enabled=False):     # or a 16-bit dtype
            loss = model(batch)

    When it does not apply
    Regions that are disabled anyway, dtypes chosen at run time, other devices, which support other
    dtypes.
    """

    code = "AMP023"
    name = "autocast-fp32-dtype"
    level = "warning"
    confidence = "high"
    sources = (
        'PyTorch 2.13 torch/amp/autocast_mode.py: with another dtype autocast warns ("the target dtype is'
        ' not supported. Disabling autocast")',
    )
    triggers = ("autocast",)
    requires = ("torch",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event, made in distinct(context.autocasts.made):
            dtype = made.fields.get("dtype")
            name = dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else ""
            if name not in ("float32", "float64") or made.fields.get("enabled") == FALSE:
                continue
            yield self.finding(
                context.at(event),
                f"Autocast to {name} is not supported: torch warns and leaves it off.",
                related=(context.also(event, "autocast"),),
                evidence={"autocast": context.code(event), "dtype": name},
                fix=Fix("Pass enabled=False if float32 is meant, else float16 or bfloat16."),
                identity=f"{event.place.function.qualified_name}:{context.code(event)}",
            )
