"""What tclint knows of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tclint.cost.gpu.calibration import Calibration
from tclint.cost.gpu.factors import Factor

CALIBRATION_CLASS: Mapping[str, str] = {"fp16": "half", "bf16": "half", "tf32": "tf32"}
"""Which calibration a precision class uses; fp16 and bf16 run at one rate and share theirs."""


@dataclass(frozen=True)
class Gpu:
    """One GPU model: datasheet row, what had to be inferred, and calibration constants.

    Throughput is dense (no 2:4 sparsity), in 1e12 FLOP/s; bandwidths are in 1e9 bytes/s.
    """

    id: str
    """'a100-sxm4-80gb'."""
    name: str
    generation: str
    """'volta', 'turing', 'ampere', 'ada', 'hopper', 'blackwell'."""
    compute_capability: tuple[int, int]
    sm_count: int
    boost_mhz: float
    peak_tflops: Mapping[str, float]
    """By precision class: Tensor Core rates, except fp32 and fp16_cuda (CUDA cores) and fp64 (the faster); a
    class that is missing does not exist on this GPU."""
    dram_gb_per_s: float
    dram_gib: float
    l2_mib: float
    l2_gb_per_s: float
    """Read bandwidth of the L2 cache: never in a datasheet, see `inferred`."""
    shared_kib_per_sm: int
    tdp_w: float
    link: str
    """What connects it to its neighbours: 'NVLink 3'; PCIe where bridges are sold apart."""
    link_gb_per_s: float
    """In one direction, all lanes together: half of the total that datasheets give."""
    source: str
    """Document of the datasheet figures."""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    inferred: Mapping[str, str] = field(default_factory=dict)
    """Fields that no datasheet gives, with where the value comes from."""
    sustained: Mapping[str, float] = field(default_factory=dict)
    """Share of the datasheet rate that large GEMMs sustain, by calibration class ('half', 'fp32') or, before
    that, by precision ('fp8'); where missing, the share that the calibration found on the GPU it was fitted
    on."""
    step_slowdown: Mapping[str, float] = field(default_factory=dict)
    """What Tensor Core kernels take within a step relative to being timed alone, by calibration class: power
    limit and clock belong to the step. 1 where missing."""
    calibrations: Mapping[tuple[str, str], Calibration] = field(default_factory=dict)
    """By (kind, precision class), inherited ones included."""
    factors: tuple[Factor, ...] = ()
    """What the user's own calibration multiplies times of this GPU by."""

    def supports(self, precision: str) -> bool:
        """Whether Tensor Cores (for 'fp32': CUDA cores) of this GPU compute in that precision."""
        return precision in self.peak_tflops

    def calibration(self, kind: str, precision_class: str) -> Calibration | None:
        """Constants for a kind of kernel, this GPU's own or inherited; None where there are none."""
        return self.calibrations.get((kind, precision_class))

    def calibrated(self, precision: str) -> bool:
        """Whether the matrix products of that precision were fitted to measurements of this very GPU."""
        calibration = self.calibration("gemm", CALIBRATION_CLASS.get(precision, precision))
        return calibration is not None and calibration.inherited_from is None

    def balance(self, precision: str) -> float:
        """Arithmetic intensity, in FLOP per byte of DRAM, from which on math and not memory limits."""
        return 1000.0 * self.peak_tflops[precision] / self.dram_gb_per_s

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> Gpu:
        """Read one GPU's document; `[calibration]` holds this GPU's own constants."""
        values = {name: value for name, value in data.items() if name not in ("calibration", "inherit")}
        major, minor = data["compute_capability"]
        values["compute_capability"] = (major, minor)
        values["aliases"] = tuple(data.get("aliases", ()))
        values["calibrations"] = {
            (kind, precision_class): Calibration.from_toml(kind, precision_class, table)
            for kind, classes in data.get("calibration", {}).items()
            for precision_class, table in classes.items()
        }
        return cls(**values)
