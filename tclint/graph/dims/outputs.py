"""Outputs that padding makes larger: the products that make them, and the model with them cut back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tclint.graph.ops import Graph, Op, TensorSpec

_MOST_STEPS = 8
_PRODUCTS = frozenset({"linear", "matmul", "conv"})


def padded_heads(before: Graph, after: Graph) -> Iterator[tuple[Op, int]]:
    """Products that make more outputs than the model has, and the axis of these."""
    starts = [(old, new) for old, new in zip(before.outputs, after.outputs, strict=True)]
    for mine, op in zip(before.ops, after.ops, strict=True):
        if mine.kind == "loss" and mine.inputs:
            starts.append((mine.inputs[0], op.inputs[0]))
    heads: dict[int, Op] = {}
    for old, new in starts:
        if old.shape != new.shape:
            heads.update((op.index, op) for op in _heads(before, after, old))
    for head in heads.values():
        was, now = head.outputs[0].shape, after.ops[head.index].outputs[0].shape
        axes = [axis for axis, (a, b) in enumerate(zip(was, now, strict=True)) if a != b]
        if len(axes) == 1:
            yield head, -1 if axes[0] == len(was) - 1 else axes[0]


def _heads(before: Graph, after: Graph, spec: TensorSpec, depth: int = 0) -> Iterator[Op]:
    """The products behind a tensor whose own outputs grow."""
    if spec.producer is None or depth == _MOST_STEPS:
        return
    op = before.ops[spec.producer]
    if op.outputs[spec.output_index].shape == after.ops[op.index].outputs[spec.output_index].shape:
        return
    if op.kind in _PRODUCTS:
        yield op
        return
    for source in op.inputs:
        yield from _heads(before, after, source, depth + 1)


def with_outputs_cut(before: Graph, after: Graph) -> Graph | None:
    """The padded model with a slice behind each product that makes more outputs, so that it returns what it
    did; None where nothing grows.

    Args:
        before: the model as it is.
        after: the same ops at larger sizes, some of them perhaps without an input.
    """
    heads = {head.index: axis for head, axis in padded_heads(before, after)}
    if not heads:
        return None
    ops: list[Op] = []
    made: dict[int, int] = {}
    """Index of an op -> index of what its readers get: the op itself, or the slice behind it."""
    cut = set(heads)
    """Ops whose outputs keep their size, by themselves or behind their slice."""

    def read(spec: TensorSpec, was: TensorSpec | None) -> TensorSpec:
        if spec.producer is None:
            return spec
        if spec.producer in heads:
            return ops[made[spec.producer]].outputs[0]
        return replace(was if was and spec.producer in cut else spec, producer=made[spec.producer])

    for was, op in zip(before.ops, after.ops, strict=True):
        inputs = tuple(
            read(spec, was.input(name)) for spec, name in zip(op.inputs, op.input_names, strict=True)
        )
        reads_cut = op.index not in heads and any(spec.producer in cut for spec in op.inputs)
        whole = was if reads_cut else op
        if reads_cut:
            cut.add(op.index)
        index = made[op.index] = len(ops)
        outputs = tuple(replace(spec, producer=index) for spec in whole.outputs)
        parent = None if op.parent is None else made[op.parent]
        ops.append(replace(whole, index=index, inputs=inputs, outputs=outputs, parent=parent))
        if op.index in heads:
            made[op.index] = len(ops)
            ops.append(_slice(ops[-1], was.outputs[0], heads[op.index]))
    outputs = tuple(read(*pair) for pair in zip(after.outputs, before.outputs, strict=True))
    return replace(after, ops=tuple(ops), outputs=outputs)


def _slice(head: Op, was: TensorSpec, axis: int) -> Op:
    """The first entries of a product's outputs: a view of them."""
    index, whole = head.index + 1, head.outputs[0]
    axis %= len(whole.shape)
    piece = replace(whole, shape=was.shape, producer=index, output_index=0)
    bounds = {"dim": axis, "start": 0, "end": was.shape[axis], "step": 1}
    return Op(
        index,
        "slice",
        "view",
        (whole,),
        (piece,),
        ("self",),
        bounds,
        module_path=head.module_path,
        call_site=head.call_site,
        checkpoint=head.checkpoint,
        operator="aten::slice.Tensor",
    )
