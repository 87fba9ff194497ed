"""What-if edits that make grouped and depthwise convolutions denser, for pricing only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tclint.plugin import Graph, Op


def ungrouped(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The convolutions with groups=1 and otherwise the same channels."""
    return _regrouped(graph, ops, lambda _: 1)


def regrouped(graph: Graph, ops: Iterable[Op], times: int) -> Graph:
    """The convolutions with `times` groups merged into one, else with groups=1, and the same channels."""
    return _regrouped(graph, ops, lambda groups: groups // times if groups % times == 0 else 1)


def _regrouped(graph: Graph, ops: Iterable[Op], groups: Callable[[int], int]) -> Graph:
    changed = {}
    for op in (graph.ops[op.index] for op in ops):
        weight = op.input("weight")
        if weight is None:
            continue
        before, after = op.groups, groups(op.groups)
        # A transposed convolution stores [C_in, C_out / groups], a forward one [C_out, C_in / groups].
        wider = op.with_input("weight", weight.resized(1, weight.shape[1] * before // after))
        changed[op.index] = replace(wider, attributes={**op.attributes, "groups": after})
    return graph.with_ops(changed)


def with_fused_expansion(graph: Graph, ops: Iterable[Op], *, others_too: bool = False) -> Graph:
    """Depthwise convolutions and the 1x1 convolutions that widen the image before them as one dense one.

    Norm and activation in between are removed too. A depthwise convolution that reads something else stays as
    it is, or with `others_too` becomes dense by itself.
    """
    readers = graph.consumers()
    changed: dict[int, Op] = {}
    left: list[Op] = []
    for op in (graph.ops[op.index] for op in ops):
        source, weight = op.input("input"), op.input("weight")
        between = _expansion_before(graph, op, readers)
        if source is None or weight is None:
            continue
        if not between:
            left.append(op)
            continue
        image = between[-1].inputs[0]
        fused = op.with_input("input", image)
        fused = fused.with_input("weight", weight.resized(1, image.shape[1]))
        changed[op.index] = replace(fused, attributes={**op.attributes, "groups": 1})
        changed |= {other.index: other.emptied() for other in between}
    graph = graph.with_ops(changed)
    return ungrouped(graph, left) if others_too else graph


def _expansion_before(graph: Graph, op: Op, readers: Mapping[int, list[Op]]) -> list[Op]:
    """The ops back to the 1x1 convolution that only this op reads; empty if there is none."""
    between: list[Op] = []
    position = op.input_names.index("input")
    producer = op.inputs[position].producer
    while producer is not None:
        before = graph.ops[producer]
        if len(readers.get(producer, ())) != 1:
            return []
        between.append(before)
        if before.kind == "conv":
            kernel = before.inputs[before.input_names.index("weight")].shape[2:]
            stride = before.attributes.get("stride", 1)
            steps = stride if isinstance(stride, list | tuple) else [stride]
            is_expansion = before.attributes.get("groups", 1) == 1 and "transpose" not in before.name
            return between if is_expansion and {*kernel, *steps} == {1} else []
        if before.kind not in ("norm", "elementwise") or not before.inputs:
            return []
        producer = before.inputs[0].producer
    return []
