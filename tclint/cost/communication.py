"""What GPUs send each other in a step that is spread over several of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tclint.config.settings import Mode, ParallelName
from tclint.cost.split_sums import gradients, results
from tclint.graph.dims.tensor_parallel import TensorSplit
from tclint.graph.lowering.gradients import gradient_needs, recomputed
from tclint.graph.ops import Graph, Op, itemsize_bytes

_ROUNDS = {
    "none": (0, 0),
    "ddp": (0, 2),
    "zero1": (0, 2),
    "zero2": (1, 1),
    "fsdp": (3, 0),
    "zero3": (3, 0),
}
"""How often all parameters pass a GPU for each batch, and once more for each step of the optimizer.

A ring all-reduce is a reduce-scatter and an all-gather (Patarasuk and Yuan 2009). FSDP gathers parameters for
forward and for backward, and scatters gradients (Zhao et al., arXiv 2304.11277), and ZeRO's third stage does
the same. Where GPUs keep gradients in parts, as from ZeRO's second stage on (Rajbhandari et al., arXiv
1910.02054), each batch scatters its own; the others sum gradients up and send them once."""


def communication_bytes(graph: Graph, parallel: ParallelName, gpus: int, accumulation: int = 1) -> int:
    """Bytes that one GPU sends for a batch, and receives as many: (N - 1)/N of the parameters in each round.

    Of what is sent once for each step of the optimizer, a batch has its share. Parameters and gradients have
    the dtype in which the model holds its weights; frozen ones are not sent by DDP. Several machines are
    slower than the link of one.
    """
    per_batch, per_step = _ROUNDS[parallel]
    trained_only = parallel in ("ddp", "zero1", "zero2")
    size = sum(
        parameter.numel * itemsize_bytes(parameter.dtype)
        for parameter in graph.parameters
        if not parameter.is_buffer and (parameter.trainable or not trained_only)
    )
    return round((per_batch + per_step / accumulation) * size * (gpus - 1) / gpus)


@dataclass(frozen=True, slots=True)
class Sums:
    """The all-reduces of one step under tensor parallelism."""

    count: int
    sent_bytes: int
    """What one GPU sends for all of them, and receives as much."""


def sums(split: TensorSplit, ops: Sequence[Op], parts: int, mode: Mode) -> Sums:
    """Results of products split over their rows, and gradients of what products split over their columns
    read, where what is linear lets them meet; of each a ring all-reduce sends 2 (N - 1)/N.

    Args:
        split: the model over so many GPUs.
        ops: those of its graph in the precision of the step.
        parts: the number of GPUs.
        mode: in training, results that checkpoints compute again are summed again too.
    """
    sizes = list(_sums(split, ops, mode))
    return Sums(len(sizes), round(2 * sum(sizes) * (parts - 1) / parts))


def _sums(split: TensorSplit, ops: Sequence[Op], mode: Mode) -> Iterator[int]:
    summed, linear = results(split, ops)
    yield from (ops[index].outputs[0].bytes for index in summed)
    if mode == "train":
        needs = gradient_needs(split.graph)
        again = {index for region in recomputed(split.graph, needs).values() for index in region}
        yield from (ops[index].outputs[0].bytes for index in summed if index in again)
        yield from gradients(split, ops, needs, linear)
