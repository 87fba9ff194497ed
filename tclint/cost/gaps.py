"""FLOPs of the operators that have no formula for their time: what a gap may weigh.

Where the arithmetic of an operator is known although its kernels' speed is not, its share of the forward
pass's FLOPs says how much of the step an estimate leaves out; elsewhere the share is unknown, and said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

from tclint.graph.lowering.kernels import NoFormulaError
from tclint.graph.lowering.step import forward_flops, lower_op
from tclint.graph.lowering.work import Gap, Traffic
from tclint.graph.ops import Graph, Op


def with_flops(gaps: Iterable[Gap], graph: Graph) -> tuple[Gap, ...]:
    """Gaps with their forward FLOPs and their share of the forward pass's, where known."""
    found = [(gap, *_flops(gap, graph)) for gap in gaps]
    if not found:
        return ()
    # Products that a GPU cannot run are in the graph's FLOPs, operators without a formula are not.
    uncounted = sum(flops for _, flops, counted in found if flops is not None and not counted)
    total = forward_flops(graph) + uncounted
    return tuple(
        replace(
            gap, flops=flops, flops_percent=100.0 * flops / total if flops is not None and total else None
        )
        for gap, flops, _ in found
    )


def _flops(gap: Gap, graph: Graph) -> tuple[int | None, bool]:
    """Forward FLOPs of a gap's ops, and whether forward_flops has them."""
    ops = [graph.ops[index] for index in gap.op_indices if 0 <= index < len(graph.ops)]
    try:
        kernels = [kernel for op in ops for kernel in lower_op(op, (), training=False)]
    except (NoFormulaError, LookupError, ArithmeticError, TypeError, ValueError):
        counts = [_count(op) for op in ops]
        return (None if None in counts else sum(count for count in counts if count is not None)), False
    return sum(kernel.flops for kernel in kernels if not isinstance(kernel.work, Traffic)), True


def _count(op: Op) -> int | None:
    rule = _COUNTS.get(_name(op))
    if rule is None or not op.inputs or not op.outputs:
        return None
    try:
        return round(rule(op))
    except (LookupError, ArithmeticError, TypeError, ValueError):
        return None  # called in a way that its count was not written for


def _name(op: Op) -> str:
    """'cholesky' of linalg_cholesky_ex."""
    return op.name.removeprefix("linalg_").removesuffix("_ex")


def _weight_only(op: Op) -> float:
    """x[..., K] by a weight that is stored in fewer bits: an ordinary product otherwise."""
    return 2.0 * op.outputs[0].numel * op.inputs[0].shape[-1]


def _factorization(op: Op) -> float:
    """The FLOPs to factorize n x n matrices, a multiple of n^3."""
    *batch, rows, columns = op.inputs[0].shape
    cubes = _CUBES[_name(op)]
    return cubes * prod(batch) * rows * columns * min(rows, columns)


# Leading terms of the operation counts in Golub and Van Loan, Matrix Computations, 4th edition.
_CUBES = {
    **{"cholesky": 1 / 3, "lu_factor": 2 / 3, "det": 2 / 3, "slogdet": 2 / 3, "logdet": 2 / 3},
    **{"inv": 2.0, "inverse": 2.0, "qr": 4.0, "eigh": 9.0, "svd": 20.0},
}
_COUNTS: dict[str, Callable[[Op], float]] = {
    **dict.fromkeys(_CUBES, _factorization),
    "_weight_int8pack_mm": _weight_only,
    "_weight_int4pack_mm": _weight_only,
}
