"""Device memory that a step needs, from tensor sizes alone."""

from __future__ import annotations

from tclint.config import Mode
from tclint.cost.result import Memory
from tclint.graph.graph import Graph

ADAMW_STATES = 2
"""exp_avg and exp_avg_sq, each of the parameter's size."""


def step_memory(graph: Graph, mode: Mode) -> Memory:
    """Bytes of parameters, gradients, AdamW states and activations of a graph with precision applied.

    Activations are an upper bound in training: every tensor an op makes is taken to be kept for the
    backward pass, views and in-place results excepted. In inference they are the largest single op's.
    """
    parameters = sum(p.bytes for p in graph.parameters if not p.is_buffer)
    trained = sum(p.bytes for p in graph.parameters if not p.is_buffer and p.trainable)
    buffers = sum(p.bytes for p in graph.parameters if p.is_buffer)
    copies: dict[str, int] = {}
    made, largest = 0, 0
    for op in graph.ops:
        for cast in op.casts:
            size = cast.numel * (2 if cast.to_dtype in ("float16", "bfloat16") else 4)
            if cast.parameter is not None:
                copies[cast.parameter] = size
        if op.kind == "view" or op.in_place:
            continue
        outputs = sum(spec.bytes for spec in op.outputs)
        made += outputs
        largest = max(largest, outputs + sum(spec.bytes for spec in op.inputs if spec.parameter is None))
    training = mode == "train"
    return Memory(
        parameters_bytes=parameters,
        buffers_bytes=buffers,
        gradients_bytes=trained if training else 0,
        optimizer_bytes=ADAMW_STATES * trained if training else 0,
        activations_bytes=made if training else largest,
        autocast_bytes=sum(copies.values()),
    )
