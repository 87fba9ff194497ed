"""How a loss scaler is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule


class LossScaleConfig(SourceRule):
    """A GradScaler with factors that raise or cannot work.

    What it does
    Finds `growth_factor` of at most 1, `backoff_factor` of at least 1, an `init_scale` below 8 or not
    above 0, and a `growth_interval` below 10.

    Why it costs
    GradScaler raises AssertionError for a growth factor of at most 1 or a backoff factor of at least 1. A
    scale below 8 hardly moves gradients out of the range that float16 flushes to zero (NVIDIA suggests 8
    to 32768), and growing every few steps makes every few steps overflow and be skipped.

    Example
        scaler = torch.amp.GradScaler("cuda", growth_factor=1.0)

    Use instead
        scaler = torch.amp.GradScaler("cuda")

    (init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000)

    When it does not apply
    Values known only at run time, large growth intervals (a static scale on purpose), disabled scalers.

    References
    PyTorch 2.13, torch/amp/grad_scaler.py, GradScaler.__init__.
    NVIDIA, Train With Mixed Precision, "Choosing A Scaling Factor".
    """

    code = "AMP019"
    name = "loss-scale-config"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch 2.13, torch.amp.GradScaler: defaults and assertions",
        "NVIDIA, Train With Mixed Precision: Choosing A Scaling Factor",
    )
    triggers = ("GradScaler",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        limits: tuple[tuple[str, Callable[[float], bool], str, bool], ...] = (
            ("growth_factor", lambda value: value <= 1, "raises AssertionError: it must be above 1", True),
            ("backoff_factor", lambda value: value >= 1, "raises AssertionError: it must be below 1", True),
            (
                "init_scale",
                lambda value: value < 8,
                "hardly scales: useful factors are 8 to 32768 and up",
                False,
            ),
            ("growth_interval", lambda value: value < 10, "makes every few steps overflow", False),
        )
        for made in context.scaling.made:
            if made.enabled is False:
                continue
            function = context.tables.functions[made.function]
            for parameter, wrong, why, raises in limits:
                if parameter not in made.arguments:
                    continue
                possible = context.resolver.evaluate(function, made.arguments[parameter])
                value = possible.only
                if isinstance(value, bool) or not isinstance(value, int | float) or not wrong(value):
                    continue
                yield self.finding(
                    context.location(made.node_id),
                    f"{parameter}={value:g} {why}.",
                    related=(context.related(made.node_id, f"{parameter} is {value:g}"),),
                    evidence={
                        "parameter": parameter,
                        "value": value,
                        "scaler": context.excerpt(made.node_id),
                    },
                    fix=Fix(f"Leave {parameter} at its default."),
                    level="error" if raises else None,
                    identity=f"{function.qualified_name}:{parameter}",
                )
