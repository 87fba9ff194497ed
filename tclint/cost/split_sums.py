"""Where GPUs under tensor parallelism sum what each of them has a part of.

A sum commutes with what is linear, so it can wait: the results of experts are weighted and added first, as
parts, and are summed once (Megatron's MoE layer does so). Of all places on the way to the first op that needs
the sum, those with the fewest bytes are taken, and of equals the fewest. Gradients take the same way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tclint.graph.dims.tensor_parallel import TensorSplit
from tclint.graph.ops import Graph, Op, itemsize_bytes
from tclint.graph.ops.op_tables import DERIVATIVES, PRODUCTS, QUOTIENTS, SUMS

_Tensor = tuple[object, ...]
"""What its readers know it by (`TensorSpec.source`)."""
_ADDED_UP = frozenset({"sum", "mean"})


@dataclass(frozen=True, slots=True)
class _Parts:
    """A tensor of which every GPU has a summand."""

    summed: tuple[int, ...]
    """The ops after which the fewest bytes are summed on the way to it."""
    linear: tuple[int, ...]
    """The ops before those, which run on parts."""
    passed: tuple[int, ...]
    """All ops that could."""


def results(split: TensorSplit, ops: Sequence[Op]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ops whose results are summed in the forward pass, and those that run on parts before that.

    Args:
        split: the model over several GPUs.
        ops: those of its graph in the precision of the step.
    """
    parents = split.graph.composites
    readers = _readers(split.graph, parents)
    open_parts: dict[_Tensor, _Parts] = {}
    for op in ops:
        if op.index in split.summed:
            open_parts["op", op.index, 0] = _Parts((op.index,), (), ())
            continue
        read = {i: spec.source for i, spec in enumerate(op.inputs) if spec.source in open_parts}
        read_here_alone = all(readers[source] == 1 for source in read.values())
        if op.index not in parents and read_here_alone and _is_linear(op, tuple(read)):
            before = [open_parts.pop(source) for source in read.values() if source is not None]
            open_parts["op", op.index, 0] = _after(op, before, ops)
    parts = open_parts.values()
    return tuple(i for each in parts for i in each.summed), tuple(i for each in parts for i in each.linear)


def _after(op: Op, before: Sequence[_Parts], ops: Sequence[Op]) -> _Parts:
    summed = tuple(index for parts in before for index in parts.summed)
    passed = (*(index for parts in before for index in parts.passed), op.index)
    if _saves(op.outputs[0].bytes, [ops[index].outputs[0].bytes for index in summed]):
        return _Parts((op.index,), passed, passed)
    return _Parts(summed, tuple(index for parts in before for index in parts.linear), passed)


def _saves(here_bytes: int, before_bytes: Sequence[int]) -> bool:
    """Whether one sum here takes fewer bytes than those before it, or as many in fewer sums."""
    return (here_bytes, 1) < (sum(before_bytes), len(before_bytes))


def _readers(graph: Graph, parents: frozenset[int]) -> Counter[_Tensor]:
    read = (spec for op in graph.ops if op.index not in parents for spec in op.inputs)
    return Counter(spec.source for spec in (*read, *graph.outputs) if spec.source is not None)


def _is_linear(op: Op, positions: Sequence[int]) -> bool:
    """Whether the sum over GPUs of what an op makes of parts is what it makes of their sum, if one of them
    alone adds what is whole.

    Args:
        op: an operator with one result.
        positions: its inputs of which each GPU has a part.
    """
    if not positions or len(op.outputs) != 1 or not op.outputs[0].is_floating:
        return False
    if op.name in SUMS or op.name in _ADDED_UP or op.kind == "view":
        return True
    if op.kind == "copy":
        return op.attributes.get("reduce") in (None, "sum", "mean")
    if op.name in PRODUCTS:
        return len(positions) == 1
    if op.name in QUOTIENTS:
        return tuple(positions) == (0,)
    if op.kind == "matmul":
        return len(positions) == 1 and len(op.inputs) == 2 and not any(spec.parameter for spec in op.inputs)
    return op.name in DERIVATIVES and DERIVATIVES[op.name].saved in ("none", "free")


def gradients(
    split: TensorSplit, ops: Sequence[Op], needs: Sequence[Sequence[bool]], linear: Sequence[int]
) -> Iterator[int]:
    """The bytes of each gradient that is summed.

    Args:
        split: the model over several GPUs.
        ops: those of its graph in the precision of the step.
        needs: per op and input, whether a gradient is computed for it.
        linear: the ops that run on parts of results: their whole factors get parts of gradients.
    """
    parents = split.graph.composites
    ran = frozenset(linear)
    needed = dict(_in_parts(split, ops, needs, ran))
    waiting: dict[_Tensor, list[_Gradient]] = {}
    for op in reversed(ops):
        result: _Tensor = ("op", op.index, 0)
        found = waiting.pop(result, [])
        if result in needed:
            found = [needed.pop(result)]
        elif found:
            here = _Gradient(op.outputs[0].numel, max(each.itemsize for each in found))
            found = [here] if _saves(here.bytes, [each.bytes for each in found]) else found
        passed = [position for position, need in enumerate(needs[op.index]) if need]
        source = op.inputs[passed[0]].source if len(passed) == 1 else None
        if source is not None and op.index not in parents | ran and _is_linear(op, passed):
            waiting.setdefault(source, []).extend(found)
        else:
            yield from (each.bytes for each in found)
    yield from (each.bytes for each in needed.values())
    yield from (each.bytes for left in waiting.values() for each in left)


class _Gradient(NamedTuple):
    numel: int
    itemsize: int

    @property
    def bytes(self) -> int:
        return self.numel * self.itemsize


def _in_parts(
    split: TensorSplit, ops: Sequence[Op], needs: Sequence[Sequence[bool]], linear: frozenset[int]
) -> Iterator[tuple[_Tensor, _Gradient]]:
    """Tensors of whose gradients an op that reads them makes summands, and those gradients."""
    parts = {("op", index, 0) for index in (*split.summed, *linear)}
    read = list(split.read)
    for op in (ops[index] for index in linear):
        if op.name in PRODUCTS | QUOTIENTS or op.kind == "matmul":
            read += [(op.index, i) for i, spec in enumerate(op.inputs) if spec.source not in parts]
    for index, position in read:
        spec = ops[index].inputs[position]
        if needs[index][position] and spec.source is not None:
            yield spec.source, _Gradient(spec.numel, itemsize_bytes(ops[index].outputs[0].dtype))
