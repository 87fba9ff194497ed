"""What an estimate says: one Row per kernel, and totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from tclint.config.precisions import PRECISION_FACTS
from tclint.core.units import plural, time_text
from tclint.cost.gpu import Gpu
from tclint.cost.math_units import tf32_switches, unit_class
from tclint.cost.scenario import Scenario
from tclint.cost.transforms.casts import running
from tclint.graph.lowering.work import Gap, Gemm, Kernel, Phase, Traffic, Work
from tclint.graph.ops.op import Op

FloatArray = npt.NDArray[np.float64]
Limiter = Literal["math", "memory", "latency"]
Bound = Literal["gpu", "host"]

READY_FRACTION = 0.25
"""A kernel runs efficiently on Tensor Cores when it uses them, no contiguous dim or channel count of it is
misaligned, and it reaches at least this share of their datasheet rate or, limited by memory, has
READY_MEMORY_FRACTION. A quarter is what aligned products of one wave reach; narrow and tiny ones fall
below it."""

HOST_US_PER_LAUNCH = 20.0
"""Python, dispatcher, autograd and cudaLaunchKernel together, per kernel of an eager step, on a server's CPU.

The median time between two launches of the forward's thread in public profiler traces that record shapes but
no stacks: 20 us (A100, rank0 of HolisticTraceAnalysis's negative_queue_length_values_check) and 18 us (V100,
DLRM of facebookresearch/param); with stacks 32 to 38 us, with Python frames 49 to 62 us. The profiler takes
a part of it. It hides behind the GPU's work as long as kernels take longer; CUDA graphs save most of it."""
HOST_US_PER_REPEATED_LAUNCH = 3.8
"""The same for each further kernel that a library launches within one call, as cuDNN does for the time steps
of a recurrent layer: what a kernel takes where launches overlap with the work before (NVIDIA, Getting Started
with CUDA Graphs, V100, kernels of 2.9 us)."""

STEP_ERROR_PERCENT = {
    "volta": 10.0,
    "turing": 50.0,
    "ampere": 15.0,
    "ada": 20.0,
    "hopper": 18.0,
    "blackwell": 25.0,
}
"""By generation, what published whole steps were off by, about where two thirds keep to it; no price was
fitted to a step except on H100 (`benchmarks/end_to_end.py` lists them). V100: ten of ResNet-50 and BERT,
mean 6 %; a denoising step of Stable Diffusion takes 43 % longer than predicted. T4: three of ResNet-50 in
NVIDIA's laboratory, mean 7 %, and Stable Diffusion, which takes twice as long as predicted: a card of 70 W
whose clock depends on its server. Ampere: 14 of ResNet-50, BERT and others on A100, A10 and RTX 3090, mean
9 %, 27 of MPT on A100, whose communication is not priced, 15 %, and BERT on SQuAD, 8 %. Ada: BERT, Stable
Diffusion and networks of timm on RTX 4090, 6 to 24 %. H100: 13 of MPT, to which the slowdown within a step
was fitted, and ten of GPT-2 and ResNet-50, 15 %. Blackwell has no slowdown, and states what Hopper was off
by without it."""
CANCELLED_SHARE = 0.5
"""Share of the kernels' mean error that is left in a step where the products were measured on the GPU: steps
of ResNet-50 on V100 state 17 to 29 % for their kernels and are 4 % off. A round number, not a fit."""

READY_MEMORY_FRACTION = 0.5
"""Share of its time that a memory-limited Tensor Core kernel's unavoidable bytes must explain."""


@dataclass(frozen=True, slots=True)
class Price:
    """The predicted time of one piece of work on one GPU, and why."""

    time_us: float
    flops: int
    bytes_read: int
    bytes_written: int
    limiter: Limiter
    balance: float
    """FLOP per byte from which on math limits, in the precision that really runs."""
    uses_tensor_cores: bool
    tensor_core_reason: str
    """Which Tensor Core format runs, or why none does."""
    uncertainty_percent: float
    """Mean absolute error that this kind of kernel had on unseen shapes."""
    calibrated: bool
    """Whether the constants were fitted to measurements of this very GPU and precision."""
    fraction_of_peak: float
    """The share of the datasheet rate for the precision that runs."""
    tile: tuple[int, int] | None = None
    """Rows and columns of C per thread block."""
    split_k: int = 1
    waves: float = 0.0
    """Tiles per SM."""
    tile_efficiency: float = 1.0
    """Useful over computed elements of C."""
    wave_efficiency: float = 1.0
    """Waves over waves rounded up."""
    is_efficient: bool = False
    """Counts towards readiness (READY_FRACTION)."""
    parts_us: tuple[tuple[str, float], ...] = ()
    """What each limit alone would take: 'math', 'latency' (of filling tiles, and idle SMs), 'L2' and
    'memory', which overlap, then 'layout copies' of convolutions and 'launch'."""

    @property
    def arithmetic_intensity(self) -> float:
        """FLOP per byte of DRAM traffic."""
        moved = self.bytes_read + self.bytes_written
        return self.flops / moved if moved else 0.0


_PRICED = tuple(item.name for item in fields(Price))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Price):
    """One kernel of the step: its price, and where it comes from."""

    op_index: int
    """-1 for the optimizer."""
    name: str
    module_path: str
    kind: str
    phase: Phase
    role: str
    work: Work


@dataclass(frozen=True)
class Estimate:
    """A step priced under one scenario; times in microseconds of GPU time, host excluded."""

    scenario: Scenario
    gpu: Gpu
    kernels: tuple[Kernel, ...]
    prices: tuple[Price, ...]
    """One per kernel."""
    ops: tuple[Op, ...]
    """The ops of the graph as priced, with precision and layout applied."""
    gaps: tuple[Gap, ...]
    memory_of: Callable[[], Memory] = field(repr=False)
    assumptions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        what = f"{self.scenario.precision}, {self.scenario.mode}, {plural(len(self.kernels), 'kernel')}"
        return f"<Estimate: {time_text(self.step_time_us)} on {self.gpu.id}, {what}>"

    @property
    def memory(self) -> Memory:
        """Device memory of the step."""
        return self.memory_of()

    @cached_property
    def launch_count(self) -> int:
        """Kernels that the host launches in one step; with accumulation, on average per batch."""
        shares = shares_of_batch(self.scenario.accumulation)
        return round(sum(_launches(kernel.work) * shares.get(kernel.role, 1.0) for kernel in self.kernels))

    @property
    def host_time_us(self) -> float:
        """What the host needs to launch them, in no other time here (HOST_US_PER_LAUNCH)."""
        shares = shares_of_batch(self.scenario.accumulation)
        calls = sum(shares.get(kernel.role, 1.0) for kernel in self.kernels if _launches(kernel.work))
        repeated = max(self.launch_count - calls, 0.0)
        return calls * HOST_US_PER_LAUNCH + repeated * HOST_US_PER_REPEATED_LAUNCH

    @property
    def bound(self) -> Bound:
        """Which of the two takes longer: a step lasts as long as the slower one."""
        return "host" if self.host_time_us > self.step_time_us else "gpu"

    @cached_property
    def _times_us(self) -> FloatArray:
        return np.array([price.time_us for price in self.prices], dtype=np.float64)

    @cached_property
    def times_by_op_us(self) -> FloatArray:
        """Time of the optimizer, then that of each op."""
        ops = np.array([kernel.op_index for kernel in self.kernels], dtype=np.int64)
        times: FloatArray = np.zeros(len(self.ops) + 1)
        np.add.at(times, ops + 1, self._times_us)
        return times

    @cached_property
    def _by_op(self) -> dict[int, list[int]]:
        positions: dict[int, list[int]] = {}
        for position, kernel in enumerate(self.kernels):
            positions.setdefault(kernel.op_index, []).append(position)
        return positions

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One per kernel, in the order of the step: forward, backward, optimizer."""
        return tuple(self._row(position) for position in range(len(self.kernels)))

    def _row(self, position: int) -> Row:
        kernel, price = self.kernels[position], self.prices[position]
        op = self.ops[kernel.op_index] if kernel.op_index >= 0 else None
        whole_step = "optimizer" if kernel.phase == "optimizer" else "gradients"
        return Row(
            op_index=kernel.op_index,
            name=whole_step if op is None else op.name,
            module_path="" if op is None else op.module_path,
            kind="optimizer" if op is None else op.kind,
            phase=kernel.phase,
            role=kernel.role,
            work=kernel.work,
            **{name: getattr(price, name) for name in _PRICED},
        )

    def rows_of(self, op_index: int) -> tuple[Row, ...]:
        """The kernels that one op causes, forward and backward; -1 gives the optimizer's."""
        return tuple(self._row(position) for position in self._by_op.get(op_index, ()))

    def time_of_us(self, op_indices: Iterable[int]) -> float:
        """Time of all kernels of these ops."""
        return float(
            sum(self.prices[p].time_us for index in set(op_indices) for p in self._by_op.get(index, ()))
        )

    def percent_of_step(self, time_us: float) -> float:
        """A time as a share of the step; 0 of a step that takes none."""
        return 100.0 * time_us / self.step_time_us if self.step_time_us else 0.0

    def uncertainty_of_percent(self, op_indices: Iterable[int]) -> float:
        """Time-weighted mean of the uncertainties of these ops' kernels; 0 where they have none.

        Errors of kernels of one kind have one cause, so they are not assumed to cancel.
        """
        chosen = [self.prices[p] for index in set(op_indices) for p in self._by_op.get(index, ())]
        total = sum(price.time_us for price in chosen)
        if not total:
            return 0.0
        return sum(price.time_us * price.uncertainty_percent for price in chosen) / total

    def _phase_us(self, phase: Phase) -> float:
        return float(
            sum(
                price.time_us
                for kernel, price in zip(self.kernels, self.prices, strict=True)
                if kernel.phase == phase
            )
        )

    @cached_property
    def step_time_us(self) -> float:
        return float(self._times_us.sum())

    @cached_property
    def forward_time_us(self) -> float:
        return self._phase_us("forward")

    @cached_property
    def backward_time_us(self) -> float:
        return self._phase_us("backward")

    @cached_property
    def optimizer_time_us(self) -> float:
        return self._phase_us("optimizer")

    @cached_property
    def flops(self) -> int:
        """The FLOPs of the whole step, forward and backward."""
        return sum(price.flops for price in self.prices)

    @cached_property
    def bytes_moved(self) -> int:
        return sum(price.bytes_read + price.bytes_written for price in self.prices)

    def _share_percent(self, chosen: Sequence[bool]) -> float:
        return self.percent_of_step(float(self._times_us[np.array(chosen, dtype=bool)].sum()))

    @cached_property
    def tensor_core_time_percent(self) -> float:
        """Share of the step spent in kernels that use Tensor Cores, efficiently or not."""
        return self._share_percent([price.uses_tensor_cores for price in self.prices])

    @cached_property
    def readiness_percent(self) -> float:
        """Share of the step spent in kernels that run efficiently on Tensor Cores (READY_FRACTION)."""
        return self._share_percent([price.is_efficient for price in self.prices])

    @cached_property
    def amdahl_ceiling(self) -> float:
        """Speed-up if the Tensor Core kernels took no time at all and all else stayed (Amdahl's law)."""
        rest = 1.0 - self.tensor_core_time_percent / 100.0
        return 1.0 / rest if rest > 0 else float("inf")

    @cached_property
    def uncertainty_percent(self) -> float:
        """Uncertainty of the step: what whole steps were off by, more where its kernels are badly known."""
        kernels = self.uncertainty_of_percent(self._by_op)
        if self.gpu.factors or not self.prices:
            return kernels
        left = CANCELLED_SHARE if self.products_calibrated else 1.0
        return max(left * kernels, STEP_ERROR_PERCENT.get(self.gpu.generation, 0.0))

    @property
    def products_calibrated(self) -> bool:
        """Whether the matrix products run in a precision that was measured on this very GPU."""
        run = running(self.scenario.precision, self.scenario.mode, self.gpu)
        unit = unit_class(
            self.gpu, PRECISION_FACTS[run.precision].dtype, tf32=True in tf32_switches(run.precision)
        )
        if unit is None or run.linear is not None or not unit.modelled:
            return False
        if any(factor.kind == "gemm" and factor.precision == unit.calibration for factor in self.gpu.factors):
            return True
        calibration = self.gpu.calibration("gemm", unit.calibration)
        return calibration is not None and calibration.inherited_from is None


def _launches(work: Work) -> int:
    if isinstance(work, Traffic):
        return work.launches
    return work.repeats if isinstance(work, Gemm) else 1


ACCUMULATE = "accumulate"
"""Role of the kernels that add gradients to those of earlier batches."""


def shares_of_batch(batches: int) -> Mapping[str, float]:
    """By role, how much of what runs once for several batches falls to one; others run for each of them.

    The first batch's gradients are added to nothing.
    """
    return {} if batches == 1 else {"optimizer": 1 / batches, ACCUMULATE: 1 - 1 / batches}


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory of a step, in bytes, without the allocator's and the libraries' own."""

    parameters_bytes: int = 0
    buffers_bytes: int = 0
    gradients_bytes: int = 0
    optimizer_bytes: int = 0
    activations_bytes: int = 0
    """What autograd keeps for the backward pass; in inference the most that is alive at once."""
    autocast_bytes: int = 0
    """Copies of the weights in the lower precision, kept for the backward pass."""
    inputs_bytes: int = 0
    """The bytes of the model's inputs."""
    working_bytes: int = 0
    """Gradients of activations while the op that needs most runs backward."""
    checkpointed_activations_bytes: int | None = None
    """`activations_bytes` with every repeated block checkpointed; None where no such block saves memory."""
    unknown: tuple[str, ...] = ()
    """Parts that are not known, and what stands for them."""

    @property
    def total_bytes(self) -> int:
        return self._besides_activations + self.activations_bytes

    @property
    def checkpointed_total_bytes(self) -> int | None:
        """With every repeated block checkpointed; None where no such block saves memory."""
        if self.checkpointed_activations_bytes is None:
            return None
        return self._besides_activations + self.checkpointed_activations_bytes

    @property
    def _besides_activations(self) -> int:
        return (
            self.parameters_bytes
            + self.buffers_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.autocast_bytes
            + self.inputs_bytes
            + self.working_bytes
        )
