"""Autocast to float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule


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
        for function, event in context.tables.calls:
            for qualified in context.resolver.called(function, event.call):
                if qualified not in context.names.autocast:
                    continue
                autocast = context.amp.autocasts.autocast(function, qualified, event.call)
                if autocast.dtype not in ("float32", "float64") or autocast.enabled is False:
                    continue
                yield self.finding(
                    context.location(event.call.node_id),
                    f"Autocast to {autocast.dtype} is not supported: torch warns and leaves it off.",
                    related=(context.related(event.call.node_id, "autocast"),),
                    evidence={"autocast": context.excerpt(event.call.node_id), "dtype": autocast.dtype},
                    fix=Fix("Pass enabled=False if float32 is meant, else float16 or bfloat16."),
                    identity=f"{function.qualified_name}:{context.excerpt(event.call.node_id)}",
                )
                break
