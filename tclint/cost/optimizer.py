"""What the optimizer's step costs and keeps: bytes per trained parameter, from optimizers.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tclint.config.settings import OptimizerName, Precision
from tclint.core.toml import packaged_toml
from tclint.cost.rows import ACCUMULATE
from tclint.graph.lowering.work import Kernel, Traffic
from tclint.graph.ops import Graph, itemsize_bytes

UNSCALE_PASSES: tuple[tuple[str, float, float], ...] = (("unscale gradients and look for infinities", 1, 1),)
"""What GradScaler adds to a step under fp16."""

CHUNK_ELEMENTS = 65_536
"""Elements per thread block of a multi-tensor kernel (ATen/native/cuda/ForeachFunctors.cuh)."""
CHUNKS_PER_LAUNCH = 320
"""Thread blocks per multi-tensor launch (ATen/native/cuda/MultiTensorApply.cuh)."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One optimizer's step, per trained parameter."""

    name: str
    title: str
    passes: tuple[tuple[str, float, float], ...]
    """Kernels: what each does, and how many tensors of the parameters' size it reads and writes."""
    states: int = 0
    """State tensors of the parameter's size and dtype."""
    bytes_of_state: float | None = None
    """Per parameter, where the states have a dtype of their own."""

    def state_bytes(self, elements: int, dtype: str) -> int:
        """Memory of the states of that many parameters."""
        per_element = (
            self.states * itemsize_bytes(dtype) if self.bytes_of_state is None else self.bytes_of_state
        )
        return int(elements * per_element)


@cache
def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer by name."""
    return {
        name: Optimizer(
            name,
            table["title"],
            tuple((what, float(reads), float(writes)) for what, reads, writes in table["passes"]),
            table.get("states", 0),
            table.get("state_bytes"),
        )
        for name, table in packaged_toml("tclint.cost", "optimizers.toml").items()
    }


def optimizer_kernels(
    graph: Graph, precision: Precision, optimizer: OptimizerName = "adamw"
) -> tuple[Kernel, ...]:
    """One optimizer step over every trained parameter; with GradScaler under fp16.

    States have the parameters' dtype, as torch keeps them (fp32 under autocast). Gradients are set to
    None after the step, which costs nothing.
    """
    chosen = optimizers()[optimizer]
    kernels = []
    by_dtype: dict[str, tuple[int, int]] = {}
    for parameter in graph.parameters:
        if parameter.trainable and not parameter.is_buffer and parameter.numel:
            elements, chunks = by_dtype.get(parameter.dtype, (0, 0))
            chunks += -(-parameter.numel // CHUNK_ELEMENTS)
            by_dtype[parameter.dtype] = (elements + parameter.numel, chunks)
    passes = (UNSCALE_PASSES if precision == "fp16" else ()) + chosen.passes
    for dtype, (elements, chunks) in sorted(by_dtype.items()):
        size = itemsize_bytes(dtype)
        for name, reads, writes in passes:
            work = Traffic(
                traffic_class="optimizer",
                operation=f"{optimizer}: {name}",
                bytes_read=int(reads * elements * size),
                bytes_written=int(writes * elements * size),
                flops=int(elements * (reads + 1)),
                dtype=dtype,
                launches=-(-chunks // CHUNKS_PER_LAUNCH),
            )
            kernels.append(Kernel(-1, "optimizer", "optimizer", work))
    return tuple(kernels)


def accumulation_kernels(graph: Graph) -> tuple[Kernel, ...]:
    """Adding a batch's gradients to those of the batches before: one kernel for each parameter, as autograd
    does it (torch/csrc/autograd/functions/accumulate_grad.h); the first batch's are kept as they are."""
    by_dtype: dict[str, tuple[int, int]] = {}
    for parameter in graph.parameters:
        if parameter.trainable and not parameter.is_buffer and parameter.numel:
            elements, count = by_dtype.get(parameter.dtype, (0, 0))
            by_dtype[parameter.dtype] = (elements + parameter.numel, count + 1)
    kernels = []
    for dtype, (elements, count) in sorted(by_dtype.items()):
        size = elements * itemsize_bytes(dtype)
        work = Traffic(
            "elementwise", "accumulate gradients", 2 * size, size, elements, dtype=dtype, launches=count
        )
        kernels.append(Kernel(-1, "backward", ACCUMULATE, work))
    return tuple(kernels)


def optimizer_assumption(precision: Precision, optimizer: OptimizerName = "adamw") -> str:
    """What the optimizer's price rests on, for the report."""
    text = f"optimizer: {optimizers()[optimizer].title}, states in the parameters' dtype"
    if optimizers()[optimizer].bytes_of_state is not None:
        text = f"optimizer: {optimizers()[optimizer].title}"
    return text + (", with GradScaler" if precision == "fp16" else "")
