"""What the optimizer's step costs: bytes per trained parameter."""

from __future__ import annotations

from tclint.config import Precision
from tclint.graph.graph import Graph
from tclint.graph.spec import itemsize_bytes
from tclint.graph.work import Kernel, Traffic

ADAMW_PASSES: tuple[tuple[str, int, int], ...] = (
    ("weight decay: param *= 1 - lr * wd", 1, 1),
    ("lerp exp_avg", 2, 1),
    ("exp_avg_sq *= beta2", 1, 1),
    ("addcmul exp_avg_sq", 2, 1),
    ("sqrt", 1, 1),
    ("div bias correction", 1, 1),
    ("add eps", 1, 1),
    ("addcdiv param", 3, 1),
)
"""Multi-tensor kernels of torch.optim.AdamW's default (foreach) step, torch/optim/adam.py, with the
tensors each reads and writes: 20 accesses, 80 bytes per fp32 parameter. fused=True needs 7 (28 bytes)."""

UNSCALE_PASSES = (("unscale gradients and look for infinities", 1, 1),)
"""What GradScaler adds to a step under fp16."""

CHUNK_ELEMENTS = 65_536
"""Elements per thread block of a multi-tensor kernel (ATen/native/cuda/ForeachFunctors.cuh)."""
CHUNKS_PER_LAUNCH = 320
"""Thread blocks per multi-tensor launch (ATen/native/cuda/MultiTensorApply.cuh)."""


def optimizer_kernels(graph: Graph, precision: Precision) -> tuple[Kernel, ...]:
    """AdamW with torch's defaults over every trained parameter; with GradScaler under fp16.

    States have the parameters' dtype, as torch keeps them (fp32 under autocast). Gradients are set to
    None after the step, which costs nothing.
    """
    kernels = []
    by_dtype: dict[str, tuple[int, int]] = {}
    for parameter in graph.parameters:
        if parameter.trainable and not parameter.is_buffer and parameter.numel:
            elements, chunks = by_dtype.get(parameter.dtype, (0, 0))
            chunks += -(-parameter.numel // CHUNK_ELEMENTS)
            by_dtype[parameter.dtype] = (elements + parameter.numel, chunks)
    passes = (UNSCALE_PASSES if precision == "fp16" else ()) + ADAMW_PASSES
    for dtype, (elements, chunks) in sorted(by_dtype.items()):
        size = itemsize_bytes(dtype)
        for name, reads, writes in passes:
            work = Traffic(
                traffic_class="optimizer",
                operation=f"adamw: {name}",
                bytes_read=reads * elements * size,
                bytes_written=writes * elements * size,
                flops=elements * (reads + 1),
                dtype=dtype,
                launches=-(-chunks // CHUNKS_PER_LAUNCH),
            )
            kernels.append(Kernel(-1, "optimizer", "optimizer", work))
    return tuple(kernels)


def optimizer_assumption(precision: Precision) -> str:
    """What the optimizer's price rests on, for the report."""
    text = "optimizer: AdamW with torch's defaults (foreach, states in the parameters' dtype)"
    return text + (", with GradScaler" if precision == "fp16" else "")
