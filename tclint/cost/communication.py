"""What GPUs send each other in a training step that is spread over several of them."""

from __future__ import annotations

from tclint.config.settings import ParallelName
from tclint.graph.ops import Graph, itemsize_bytes

_ROUNDS = {"none": 0, "ddp": 2, "zero1": 2, "zero2": 2, "fsdp": 3, "zero3": 3}
"""How often all parameters pass a GPU: a ring all-reduce is a reduce-scatter and an all-gather (Patarasuk
and Yuan 2009); FSDP gathers parameters for forward and for backward, and scatters gradients (Zhao et al.,
arXiv 2304.11277), and ZeRO's third stage does the same (Rajbhandari et al., arXiv 1910.02054)."""


def communication_bytes(graph: Graph, parallel: ParallelName, gpus: int) -> int:
    """Bytes that one GPU sends in one step, and receives as many: (N - 1)/N of the parameters in each round.

    Parameters and gradients have the dtype in which the model holds its weights; frozen ones are not sent by
    DDP. Several machines are slower than the link of one.
    """
    trained_only = parallel in ("ddp", "zero1", "zero2")
    size = sum(
        parameter.numel * itemsize_bytes(parameter.dtype)
        for parameter in graph.parameters
        if not parameter.is_buffer and (parameter.trainable or not trained_only)
    )
    return round(_ROUNDS[parallel] * size * (gpus - 1) / gpus)
