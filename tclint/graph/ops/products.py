"""The matrix products of a graph, and their two matrices."""

from __future__ import annotations

from tclint.graph.ops.graph import Graph
from tclint.graph.ops.op import GEMM_KINDS, Op

# Schema names of the two matrices of a product; linear's second is stored [N, K], the others' [K, N].
_OPERANDS = (("input", "weight"), ("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2"), ("self", "other"))


def composites(graph: Graph) -> frozenset[int]:
    """Indices of the ops whose work is carried by child ops (einsum, tensordot, ...)."""
    return frozenset(op.parent for op in graph.ops if op.parent is not None)


def leaf_ops(graph: Graph) -> tuple[Op, ...]:
    """Matrix ops that do work themselves; a composite with children does not."""
    parents = composites(graph)
    return tuple(op for op in graph.ops if op.kind in GEMM_KINDS and op.index not in parents)


def operand_positions(op: Op) -> tuple[int, int] | None:
    """The positions of the two matrices among the inputs of a linear or matmul op."""
    for names in _OPERANDS:
        if all(name in op.input_names for name in names):
            first, second = (op.input_names.index(name) for name in names)
            return first, second
    return None
