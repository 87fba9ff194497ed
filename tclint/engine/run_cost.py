"""The cost of a training run and the savings of fixes, in GPU-hours and money."""

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
    """A run of a number of steps on one GPU."""

    steps: int
    price: float
    """The price of a GPU-hour, in any currency; 0: not given."""
    measured_us: float | None
    """The step time that the user measured; None: the predicted one counts."""

    @classmethod
    def of(cls, settings: Settings) -> RunCost | None:
        """The run that the settings describe; None if the number of steps is not given.

        Raises:
            UsageError: a setting needs another one that is missing, or there is one measured step for several
                GPUs.
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
        """The GPU-hours of a run with this step time."""
        return step_time_us * self.steps / _US_PER_HOUR

    def money(self, hours: float) -> float | None:
        """The price of these GPU-hours; None if an hour has no price."""
        return hours * self.price if self.price else None

    def with_run(self, metrics: Metrics) -> Metrics:
        """The metrics with the cost of a run, now and with all fixes made."""
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
        """The finding with the savings of its fix, in proportion to its share of the step."""
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
