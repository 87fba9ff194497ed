"""Recognises models that are limited by memory as a whole, where moving data takes longer than products."""

from __future__ import annotations

from tclint.analysis.change import COMPILED
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import indices_of
from tclint.graph.ops.op import GEMM_KINDS

MOVING_KINDS = ("norm", "pool", "softmax", "elementwise", "reduction")
"""Kinds of ops with few operations per byte."""


def is_memory_bound(context: GraphContext) -> bool:
    """Whether these ops take longer than all products and convolutions on some GPU.

    They have to take longer by more than the error of the prediction, both eagerly and under torch.compile,
    so that memory limits the architecture and not only its execution.
    """
    moving = indices_of(op for op in context.graph.ops if op.kind in MOVING_KINDS)
    products = indices_of(op for op in context.graph.ops if op.kind in GEMM_KINDS)
    compiled = context.with_settings(**COMPILED.settings)
    for scenarios in zip(context.scenarios, compiled.scenarios, strict=True) if products else ():
        estimates = [context.estimate(scenario) for scenario in scenarios]
        if all(
            estimate.time_of_us(moving)
            > estimate.time_of_us(products)
            * (1.0 + estimate.uncertainty_of_percent((*moving, *products)) / 100.0)
            for estimate in estimates
        ):
            return True
    return False
