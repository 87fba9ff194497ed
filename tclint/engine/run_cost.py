"""What a training run takes and what fixes save of it, in GPU-hours and money."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Finding
from tclint.engine.report import Metrics

_US_PER_HOUR = 3.6e9


@dataclass(frozen=True, slots=True)
class RunCost:
    """A run of so many steps on one GPU."""

    steps: int
    price: float
    """Per GPU-hour, in any currency; 0: not given."""
    measured_us: float | None
    """The step as the user measured it; None: as predicted."""

    @classmethod
    def of(cls, settings: Settings) -> RunCost | None:
        """None where the number of steps is not given.

        Raises:
            UsageError: a setting goes with one that is missing, or a measured step is of one GPU of several.
        """
        if settings.measured_us is not None and len(settings.gpus) != 1:
            raise UsageError(
                f"--measured is the step of one GPU, and this run is for {', '.join(settings.gpus)}; give "
                "the one with --gpu."
            )
        if settings.steps is None:
            if settings.gpu_hour_price or settings.measured_us is not None:
                given = "--gpu-hour-price" if settings.gpu_hour_price else "--measured"
                raise UsageError(f"{given} goes with --steps, the number of steps of a run.")
            return None
        return cls(settings.steps, settings.gpu_hour_price, settings.measured_us)

    def hours(self, step_time_us: float) -> float:
        """GPU-hours of a run with this step."""
        return step_time_us * self.steps / _US_PER_HOUR

    def money(self, hours: float) -> float | None:
        """What they cost; None where an hour has no price."""
        return hours * self.price if self.price else None

    def with_run(self, metrics: Metrics) -> Metrics:
        """The metrics with what a run takes now, and with all fixes made."""
        now_us = self.measured_us or metrics.step_time_us
        if not math.isfinite(now_us):
            return metrics
        hours = self.hours(now_us)
        fixed_us, fixed = metrics.step_time_fixed_us, None
        if fixed_us is not None and metrics.step_time_us:
            fixed = hours * fixed_us / metrics.step_time_us
        return replace(
            metrics,
            measured_step_time_us=self.measured_us,
            run_steps=self.steps,
            run_gpu_hours=hours,
            run_gpu_hours_fixed=fixed,
            run_price=self.money(hours),
            run_price_fixed=None if fixed is None else self.money(fixed),
        )

    def with_savings(self, finding: Finding, by_gpu: Mapping[str, Metrics]) -> Finding:
        """The finding with what its fix saves of a run: the share of the step that it is to gain."""
        if finding.effect.unknown is not None:
            return finding
        per_gpu = {}
        for gpu, priced in finding.effect.per_gpu.items():
            step_us = self.measured_us or by_gpu[gpu].step_time_us
            hours = self.hours(step_us) * priced.gain_percent / 100.0
            known = math.isfinite(hours)
            per_gpu[gpu] = (
                replace(priced, run_gpu_hours=hours, run_price=self.money(hours)) if known else priced
            )
        return replace(finding, effect=replace(finding.effect, per_gpu=per_gpu))
