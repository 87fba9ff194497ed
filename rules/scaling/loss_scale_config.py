"""A rule on the configuration of loss scalers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tclint.plugin import Event, Finding, Fix, Related, SourceContext, SourceRule, Thing, distinct
from tclint.plugin.source import constant_of

_LIMITS: tuple[tuple[str, Callable[[float], bool], str, bool], ...] = (
    ("growth_factor", lambda value: value <= 1, "raises AssertionError: it must be above 1", True),
    ("backoff_factor", lambda value: value >= 1, "raises AssertionError: it must be below 1", True),
    ("init_scale", lambda value: value < 8, "hardly scales: useful factors are 8 to 32768 and up", False),
    (
        "init_scale",
        lambda value: value >= 2**24,
        "overflows: float16 ends at 65504, and steps are skipped until it fits",
        False,
    ),
    ("growth_interval", lambda value: value < 10, "makes every few steps overflow", False),
)
"""(parameter, test for wrong values, their effect, whether they raise an error)."""


class LossScaleConfig(SourceRule):
    """A GradScaler with factors that raise or cannot work.

    What it does
    Finds a `growth_factor` of at most 1, a `backoff_factor` of at least 1, an `init_scale` below 8 (or
    not positive) or from 2**24 on, and a `growth_interval` below 10; in DeepSpeed's settings
    `loss_scale` and `initial_scale_power`.

    Why it costs
    GradScaler raises AssertionError for a growth factor of at most 1 or a backoff factor of at least 1. A
    scale below 8 hardly moves gradients out of the range that float16 flushes to zero (NVIDIA suggests 8
    to 32768), and a scale that grows every few steps overflows just as often, and those steps are
    skipped.

    Example
        scaler = torch.amp.GradScaler("cuda", growth_factor=1.0)

    Use instead
        # init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000
        scaler = torch.amp.GradScaler("cuda")

    When it does not apply
    Values known only at run time, large growth intervals (a static scale on purpose), disabled scalers.
    """

    code = "AMP019"
    name = "loss-scale-config"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch 2.13 torch/amp/grad_scaler.py: defaults and assertions of GradScaler",
        "NVIDIA Train With Mixed Precision, Choosing A Scaling Factor: 8 to 32768 have been used",
    )
    triggers = ("GradScaler", "loss_scale", "initial_scale_power")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for parameter, wrong, why, raises in _LIMITS:
            for made, value, scaler in distinct(self._given(context, parameter)):
                if wrong(value):
                    at, name = context.at(made, scaler, parameter), context.spelled(scaler, parameter)[1]
                    given = f"{parameter}={value:g}"
                    given_text = given if name == parameter else f"`{name}` sets {given}, which"
                    yield self.finding(
                        at,
                        f"{given_text} {why}.",
                        related=(Related(at, f"{parameter} is {value:g}"),),
                        evidence={"parameter": parameter, "value": value, "scaler": context.code(made)},
                        fix=Fix(f"Leave {name} at its default."),
                        level="error" if raises else None,
                        identity=f"{made.place.function.qualified_name}:{parameter}",
                    )

    def _given(self, context: SourceContext, parameter: str) -> Iterator[tuple[Event, float, Thing]]:
        """(event, number passed for a parameter, scaler) for scalers that may be enabled."""
        for made in context.record.of("make"):
            for scaler in context.facts.kinds(made.result, "scaler"):
                value = constant_of(scaler.fields.get(parameter))
                if isinstance(value, bool) or context.facts.is_on(scaler) is False:
                    continue
                if isinstance(value, int | float):
                    yield made, value, scaler
