"""Device memory that a step needs, and the largest batch that fits a GPU; from tensor sizes alone.

Not in any figure here: what the CUDA context, cuBLAS and cuDNN take (RESERVED_BYTES stands for it where a
GPU's capacity is asked for), fragmentation of the allocator, and other processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tclint.config.settings import Mode, OptimizerName
from tclint.cost.gpu import Gpu
from tclint.cost.memory.saved_tensors import (
    SavedTensors,
    backward_peak_bytes,
    checkpointed,
    saved_tensors,
)
from tclint.cost.memory.storages import INPUT, PARAMETER, WEIGHT_COPY, Storage, StorageKey, Storages
from tclint.cost.optimizer import optimizers
from tclint.cost.rows import Memory
from tclint.graph.ops import Graph, Op, itemsize_bytes

RESERVED_BYTES = 2**30
"""Assumed for the CUDA context, library workspaces and the allocator's rounding."""

_NO_ACTIVATIONS = (PARAMETER, WEIGHT_COPY, INPUT)
_NUMBERED = re.compile(r"^((?:[^.]+\.)*?\d+)(?:\.|$)")


def step_memory(graph: Graph, mode: Mode, optimizer: OptimizerName = "adamw") -> Memory:
    """Bytes that a step of a graph with precision applied needs at its peak.

    Training: parameters, gradients, optimizer states, what autograd keeps for the backward pass, and the
    tensors of the op that needs most while it runs backward. All are taken to exist at once, which is so
    from the second step on unless gradients are freed early. Inference: what is alive at once.
    """
    parameters = [p for p in graph.parameters if not p.is_buffer]
    trained = [p for p in parameters if p.trainable]
    common = Memory(
        parameters_bytes=sum(p.bytes for p in parameters),
        buffers_bytes=sum(p.bytes for p in graph.parameters if p.is_buffer),
        inputs_bytes=sum(spec.bytes for spec in graph.inputs),
        autocast_bytes=_weight_copies_bytes(graph),
    )
    if mode != "train":
        return replace(common, activations_bytes=_peak_alive_bytes(graph))
    saved = saved_tensors(graph)
    with_blocks = checkpointed_bytes(graph, saved)
    # The model's inputs are in `inputs_bytes` already.
    kept = sum(size for key, size in saved.storages().items() if key[0] != INPUT)
    activations = kept + saved.recomputed_bytes
    pays = with_blocks is not None and with_blocks < activations
    return replace(
        common,
        gradients_bytes=sum(p.bytes for p in trained),
        optimizer_bytes=sum(optimizers()[optimizer].state_bytes(p.numel, p.dtype) for p in trained),
        activations_bytes=activations,
        working_bytes=max((_working_bytes(op) for op in graph.ops), default=0),
        checkpointed_activations_bytes=with_blocks if pays else None,
        unknown=tuple(
            f"what {name} keeps for backward ({count}x): its inputs are counted"
            for name, count in sorted(saved.unknown.items())
        ),
    )


def _weight_copies_bytes(graph: Graph) -> int:
    """Autocast's cached copies of weights: one each, kept until the forward pass ends or longer."""
    copies = {
        cast.parameter: cast.numel * itemsize_bytes(cast.to_dtype)
        for op in graph.ops
        for cast in op.casts
        if cast.parameter is not None
    }
    return sum(copies.values())


def _working_bytes(op: Op) -> int:
    """Gradients of an op's outputs and of its inputs, which its backward has in hand together."""
    if op.kind == "view" or op.in_place or not op.differentiable:
        return 0
    outputs = sum(spec.bytes for spec in op.outputs if spec.is_floating)
    return outputs + sum(spec.bytes for spec in op.inputs if spec.is_floating and spec.parameter is None)


def _peak_alive_bytes(graph: Graph) -> int:
    """The most that tensors take at once if each is freed after its last use."""
    storages = Storages(graph)
    last_use: dict[StorageKey, int] = {}
    made: dict[int, list[Storage]] = {}
    for op in graph.ops:
        read = [storages.of_input(op, position) for position in range(len(op.inputs))]
        written = [storages.of_result(op, position) for position in range(len(op.outputs))]
        made[op.index] = [
            s for s in (*read, *written) if s.key[0] not in _NO_ACTIVATIONS and s.key not in last_use
        ]
        for storage in (*read, *written):
            last_use[storage.key] = op.index
    for spec in graph.outputs:
        if spec.producer is not None:
            last_use[storages.of_tensor(spec, ()).key] = len(graph.ops)
    freed: dict[int, list[StorageKey]] = {}
    for key, index in last_use.items():
        freed.setdefault(index, []).append(key)
    alive: dict[StorageKey, int] = {}
    peak = 0
    for op in graph.ops:
        alive.update((storage.key, storage.bytes) for storage in made[op.index])
        peak = max(peak, sum(alive.values()) if made[op.index] else 0)
        for key in freed.get(op.index, ()):
            alive.pop(key, None)
    return peak


def block_of(path: str) -> str:
    """The repeated block that something belongs to: 'layers.3' of 'layers.3.norm.weight'; '' for none."""
    found = _NUMBERED.match(path)
    return found[1] if found is not None else ""


def checkpointed_bytes(graph: Graph, saved: SavedTensors) -> int | None:
    """The most that activations take with every repeated block checkpointed.

    A block is what runs inside one numbered submodule that has siblings ('layers.3', 'layer1.0'). A
    checkpointed block keeps its inputs and computes the rest again, one block at a time. Where that
    saves nothing the block is left as it is. None where there are no such blocks, and where the model has
    chosen for itself what to checkpoint.
    """
    if any(op.checkpoint is not None for op in graph.ops):
        return None
    named = ((op.index, block_of(op.module_path)) for op in graph.ops)
    blocks = {index: found for index, found in named if found}
    if len(set(blocks.values())) < 2:
        return None
    kept, again = checkpointed(graph, Storages(graph), saved.by_op, blocks)
    counted = (
        (index, storage.key, storage.bytes)
        for index, own in kept.items()
        for storage in own
        if storage.key[0] != INPUT
    )
    return backward_peak_bytes(counted, again)[1]


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """How a step's memory grows with its batch, from two batch sizes."""

    batch: int
    """As traced."""
    fixed_bytes: float
    per_sample_bytes: float

    def largest(self, gpu: Gpu, share: float = 1.0) -> int:
        """The largest batch that fits a share of the GPU with RESERVED_BYTES left; 0 where no sample does."""
        available = share * (gpu.dram_gib * 2**30 - RESERVED_BYTES) - self.fixed_bytes
        if self.per_sample_bytes <= 0 or available <= 0:
            return 0
        return int(available / self.per_sample_bytes)


def fits(memory_bytes: int, gpu: Gpu) -> bool:
    """Whether the GPU holds a step that needs so much, with RESERVED_BYTES left."""
    return memory_bytes <= gpu.dram_gib * 2**30 - RESERVED_BYTES


def batch_memory(
    batch: int, at_batch: Memory, at_double: Memory, *, checkpointed: bool
) -> BatchMemory | None:
    """The line through the memory of a batch and of twice that batch; None without checkpointed blocks."""
    if checkpointed:
        first, second = at_batch.checkpointed_total_bytes, at_double.checkpointed_total_bytes
    else:
        first, second = at_batch.total_bytes, at_double.total_bytes
    if first is None or second is None:
        return None
    slope = (second - first) / batch
    return BatchMemory(batch, first - slope * batch, slope)
