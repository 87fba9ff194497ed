"""Which memory the tensors of a graph lie in: views and in-place results share that of their origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tclint.graph.ops import Graph, Op, TensorSpec, itemsize_bytes

StorageKey = tuple[Any, ...]

WEIGHT_COPY = "weight copy"
"""First part of the key of autocast's cached copy of a parameter."""
PARAMETER = "parameter"
INPUT = "input"
"""First part of the key of a model input."""


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of memory."""

    key: StorageKey
    bytes: int


class Storages:
    """Which storage every tensor of a graph lies in."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._dtypes = {
            name: parameter.dtype
            for parameter in graph.parameters
            for name in (parameter.name, *parameter.aliases)
        }
        self._sizes = {
            name: parameter.bytes
            for parameter in graph.parameters
            for name in (parameter.name, *parameter.aliases)
        }
        self._made: dict[tuple[int, int], Storage] = {}
        for op in graph.ops:
            for position, spec in enumerate(op.outputs):
                self._made[op.index, position] = self._output(op, position, spec)

    def _output(self, op: Op, position: int, spec: TensorSpec) -> Storage:
        shares = op.inputs and (op.kind == "view" or (op.in_place and position == 0) or is_identity(op))
        if shares:
            return self.of_tensor(op.inputs[0], (op.index, position))
        # torch takes memory for as many columns, and fills the start of it.
        size = max(spec.bytes, op.inputs[0].bytes) if op.name == "col2im" else spec.bytes
        return Storage(("op", op.index, position), size)

    def of_result(self, op: Op, position: int) -> Storage:
        """The storage of an op's output."""
        return self._made[op.index, position]

    def of_tensor(self, spec: TensorSpec, unnamed: StorageKey) -> Storage:
        """The storage of a tensor before autocast converts it; `unnamed` tells other constants apart."""
        if spec.producer is not None:
            found = self._made.get((spec.producer, spec.output_index))
            return found or Storage(("op", spec.producer, spec.output_index), spec.bytes)
        if spec.memory is not None:
            number, size = spec.memory
            return Storage(("memory", number), size)
        if spec.parameter is not None:
            return Storage((PARAMETER, spec.parameter), self._sizes.get(spec.parameter, spec.bytes))
        if spec.input_name is not None:
            return Storage((INPUT, spec.input_name), spec.bytes)
        return Storage(("constant", *unnamed), spec.bytes)

    def of_input(self, op: Op, position: int) -> Storage:
        """The storage that an op really reads: autocast's copy where there is one."""
        spec = op.inputs[position]
        own = self.of_tensor(spec, (op.index, position))
        if spec.producer is not None:
            source = self._graph.ops[spec.producer].outputs
            before = source[spec.output_index].dtype if spec.output_index < len(source) else spec.dtype
        elif spec.parameter is not None and spec.memory is None:
            before = self._dtypes.get(spec.parameter, spec.dtype)
        else:
            made = (spec.shape, spec.dtype)
            casts = (cast.from_dtype for cast in op.casts if (cast.shape, cast.to_dtype) == made)
            before = next(casts, spec.dtype)
        if before == spec.dtype:
            return own
        size = spec.numel * itemsize_bytes(spec.dtype)
        if spec.parameter is not None and spec.producer is None and spec.memory is None:
            return Storage((WEIGHT_COPY, spec.parameter), size)
        return Storage(("cast", op.index, position), size)


def is_identity(op: Op) -> bool:
    """Dropout that does nothing returns its input."""
    return "dropout" in op.name and not drops(op)


def drops(op: Op) -> bool:
    return bool(op.attributes.get("train", True)) and bool(op.attributes.get("p", 0.5))
