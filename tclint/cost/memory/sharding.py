"""What one GPU holds of a training step that is spread over several."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tclint.config.settings import ParallelName
from tclint.cost.memory.step_memory import block_of
from tclint.cost.rows import Memory
from tclint.graph.ops import Graph

_SPLIT = {
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradients"),
    "zero3": ("optimizer", "gradients", "parameters"),
    "fsdp": ("optimizer", "gradients", "parameters"),
}
"""What each splits (Rajbhandari et al., arXiv 1910.02054, section 5; Zhao et al., arXiv 2304.11277)."""
_GATHERED = 2
"""Units whose parameters are whole at once: the next is gathered while one runs (FSDP's default prefetch)."""


def is_split(part: str, parallel: ParallelName) -> bool:
    """Whether each GPU has its part of the 'optimizer', the 'gradients' or the 'parameters' alone."""
    return part in _SPLIT.get(parallel, ())


def of_one_gpu(memory: Memory, graph: Graph, parallel: ParallelName, gpus: int) -> Memory:
    """A step's memory on one of so many GPUs, each with the traced batch.

    Of what is split, a GPU holds its part. Where parameters are split, those of a repeated block are whole
    while it runs, and so are their gradients and copies in 16 bits.
    """
    split = _SPLIT.get(parallel, ())
    if not split or gpus < 2:
        return memory
    optimizer, gradients = memory.optimizer_bytes // gpus, memory.gradients_bytes
    if "gradients" in split:
        gradients //= gpus
    if "parameters" not in split:
        return replace(memory, optimizer_bytes=optimizer, gradients_bytes=gradients)
    whole, trained = _largest_units(graph)
    share = whole / memory.parameters_bytes if memory.parameters_bytes else 0.0
    return replace(
        memory,
        optimizer_bytes=optimizer,
        gradients_bytes=gradients + trained,
        parameters_bytes=memory.parameters_bytes // gpus + _GATHERED * whole,
        autocast_bytes=round(memory.autocast_bytes * min(1.0, _GATHERED * share)),
    )


def _largest_units(graph: Graph) -> tuple[int, int]:
    """Bytes of the largest repeated block, or of a tensor outside of blocks that is larger, and of what is
    trained of it."""
    units: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for parameter in graph.parameters:
        if not parameter.is_buffer:
            # What is in no block is gathered tensor by tensor.
            unit = units[block_of(parameter.name) or parameter.name]
            unit[0] += parameter.bytes
            unit[1] += parameter.bytes if parameter.trainable else 0
    whole, trained = max(units.values(), default=[0, 0])
    return whole, trained
