"""The loss of a step whose model returns logits: cross-entropy behind them, as a transform of the graph."""

from __future__ import annotations

from dataclasses import replace

from tclint.graph.ops import Graph, Op, TensorSpec

_BETWEEN = frozenset({"view", "copy", "elementwise"})
"""Kinds of ops that may stand between the layer that makes the logits and the model's output."""
_MATRIX_PRODUCTS = frozenset({"linear", "matmul"})


def computes_loss(graph: Graph) -> bool:
    """Whether a loss is among the traced ops, or the model returns a single number as it may be."""
    is_number = any(spec.is_floating and spec.numel == 1 for spec in graph.outputs)
    return is_number or any(op.kind == "loss" for op in graph.ops)


def with_cross_entropy(graph: Graph) -> Graph | None:
    """The graph with cross-entropy over its logits; None where its output is not told to be logits.

    Logits are the first floating output, where a linear layer made it: [..., classes]. Targets are indices.
    """
    logits = next((spec for spec in graph.outputs if spec.is_floating), None)
    if logits is None or len(logits.shape) < 2 or not _is_made_by_product(graph, logits):
        return None
    classes = logits.shape[-1]
    rows = logits.numel // max(classes, 1)
    ops, flat = graph.ops, logits
    if len(logits.shape) > 2:
        flat = TensorSpec((rows, classes), logits.dtype, (classes, 1), producer=len(ops))
        ops = (*ops, Op(len(ops), "view", "view", (logits,), (flat,), ("self",), {"size": [rows, classes]}))
    index = len(ops)
    loss = Op(
        index,
        "cross_entropy_loss",
        "loss",
        (flat, TensorSpec((rows,), "int64", (1,))),
        (TensorSpec((), logits.dtype, (), producer=index),),
        ("self", "target"),
        {"weight": None, "reduction": 1, "ignore_index": -100, "label_smoothing": 0.0},
        operator="aten::cross_entropy_loss",
    )
    others = tuple(spec for spec in graph.outputs if spec is not logits)
    return replace(graph, ops=(*ops, loss), outputs=(*loss.outputs, *others))


def _is_made_by_product(graph: Graph, spec: TensorSpec) -> bool:
    producer = spec.producer
    while producer is not None:
        op = graph.ops[producer]
        if op.kind in _MATRIX_PRODUCTS:
            return True
        if op.kind not in _BETWEEN or not op.inputs:
            return False
        producer = op.inputs[0].producer
    return False
