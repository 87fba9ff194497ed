"""Constants fitted to measured kernel times, with what they were fitted on and how wrong they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SIZE_BINS_US: tuple[tuple[str, float], ...] = (
    ("below_20_us", 20.0),
    ("20_to_200_us", 200.0),
    ("above_200_us", float("inf")),
)
"""Names and upper limits of the sizes for which held-out errors are stated, by kernel time."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of one kind of kernel in one precision class, and the evidence for them.

    `constants` are named and documented by the dataclass of tclint.cost.kernels.constants that `kind` names.
    """

    kind: str
    """'gemm', 'conv', 'attention' or 'traffic'."""
    precision_class: str
    """'half' (fp16 and bf16, which run at one rate), 'tf32', 'fp32', ..."""
    constants: Mapping[str, float]
    fitted_on: str
    """The measurements: GPU, source and kinds of shapes; 'nothing' where the constants are assumed."""
    n: int
    """Number of measurements, fitted and held out together."""
    date: str
    held_out_mean_percent: float
    """Mean absolute percentage error on shapes that the fit did not see."""
    held_out_median_percent: float
    held_out_by_size_percent: Mapping[str, float] = field(default_factory=dict)
    """Mean error per size of SIZE_BINS_US; sizes without measurements are missing."""
    inherited_from: str | None = None
    """Id of the GPU whose measurements these are, when it is another one."""

    def error_percent(self, time_us: float) -> float:
        """Held-out mean error of kernels of about this time, else of all."""
        for name, limit_us in SIZE_BINS_US:
            if time_us < limit_us:
                return self.held_out_by_size_percent.get(name, self.held_out_mean_percent)
        return self.held_out_mean_percent

    def inherited(self, gpu_id: str) -> Calibration:
        """The same constants, marked as another GPU's."""
        return replace(self, inherited_from=gpu_id)

    @classmethod
    def from_toml(cls, kind: str, precision_class: str, table: Mapping[str, Any]) -> Calibration:
        """Read one `[calibration.KIND.CLASS]` table."""
        held_out = table["held_out"]
        return cls(
            kind=kind,
            precision_class=precision_class,
            constants={name: float(value) for name, value in table["constants"].items()},
            fitted_on=str(table["fitted_on"]),
            n=int(table["n"]),
            date=str(table["date"]),
            held_out_mean_percent=float(held_out["mean_percent"]),
            held_out_median_percent=float(held_out["median_percent"]),
            held_out_by_size_percent={
                name: float(held_out[name]) for name, _ in SIZE_BINS_US if name in held_out
            },
        )
