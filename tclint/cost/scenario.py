"""A scenario: the circumstances under which a graph is priced."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.config.precisions import why_impossible
from tclint.config.settings import (
    SETTINGS,
    LayoutName,
    Mode,
    OptimizerName,
    ParallelName,
    Precision,
    Settings,
)
from tclint.core.errors import UsageError, closest

Layout = LayoutName


@dataclass(frozen=True, slots=True)
class Scenario:
    """GPU, precision, mode, memory layout and execution of a step.

    Raises:
        UsageError: a field has an unknown value (the GPU is looked up when pricing).
    """

    gpu: str = "a100"
    precision: Precision = "fp16"
    mode: Mode = "train"
    layout: Layout = "as_traced"
    compiled: bool = False
    """torch.compile: pointwise chains fused, matmuls padded as Inductor does."""
    optimizer: OptimizerName = "adamw"
    """Whose step a training step ends with."""
    accumulation: int = 1
    """Batches whose gradients are summed before one step of the optimizer; times are per batch."""
    parallel: ParallelName = "none"
    """How a training step is spread over GPUs; memory is that of one of them."""
    gpu_count: int = 8
    """How many, where it is."""
    tensor_parallel: int = 1
    """Over how many GPUs the layers are split; all prices are of one of them."""
    calibration: str = ""
    """File of factors that `tclint profile --calibrate` wrote; '' for none."""

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise UsageError(f"{value!r} is not one of {', '.join(known)}.{closest(value, list(known))}")
        if self.accumulation < 1:
            raise UsageError(f"Gradients accumulate over 1 batch or more, not {self.accumulation}.")
        if self.parallel != "none" and self.gpu_count % self.tensor_parallel:
            raise UsageError(
                f"{self.gpu_count} GPUs cannot be divided into groups of {self.tensor_parallel}: give --gpus "
                "a multiple of --tensor-parallel."
            )
        impossible = why_impossible(self.precision, self.mode)
        if impossible is not None:
            raise UsageError(f"{impossible[0].upper()}{impossible[1:]}.")

    @property
    def replicas(self) -> int:
        """Over how many groups of GPUs `parallel` spreads the batches; a group has the whole model."""
        return self.gpu_count // self.tensor_parallel

    @classmethod
    def of(cls, settings: Settings, gpu: str = "a100") -> Scenario:
        """What the settings say of a step on one of their GPUs."""
        return cls(gpu=gpu, **{setting.field: getattr(settings, setting.field) for setting in _SHARED})


_SHARED = tuple(setting for setting in SETTINGS if setting.field in Scenario.__dataclass_fields__)
_CHOICES = {setting.field: setting.kind.choices for setting in _SHARED if setting.kind.choices}
