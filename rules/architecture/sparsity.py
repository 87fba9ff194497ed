"""Dims of layers whose weights are to be 2:4 sparse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext, gpu_effect
from tclint.analysis.layers import by_line, gain_phrase, indices_of, leaf_ops, width_dims, worth_pricing
from tclint.analysis.share_findings import share_finding
from tclint.config.precisions import PRECISION_FACTS
from tclint.cost.rows import Row
from tclint.graph.lowering.work import Gemm
from tclint.graph.ops.spec import itemsize_bytes
from tclint.plugin import Effect, Finding, GraphRule

_SPARSE_TILES = {"float16": (32, 64), "bfloat16": (32, 64), "float32": (32, 32)}
"""By dtype: rows and columns of a weight, torch.sparse semi-structured tensors on CUTLASS kernels."""


class Sparse24Shape(GraphRule):
    """A linear layer's weight does not have the shape that 2:4 sparsity needs.

    What it does
    On GPUs of compute capability 8.0 and above, finds linear layers whose weight is not a multiple of 32
    rows by 64 columns (fp16, bf16; 32 by 32 in TF32) and whose share of the step is large enough:
    torch.sparse.to_sparse_semi_structured cannot prune them to two of every four weights. The gain is an
    upper bound: twice the dense speed, as datasheets promise, for the products that are limited by
    arithmetic.

    Why it costs
    Two zeros in every four weights double the peak of the Tensor Cores. A layer whose shape the kernels
    do not accept stays dense.

    Example
        nn.Linear(1000, 4096)

    Use instead
        nn.Linear(1024, 4096)

    When it does not apply
    Models that nobody means to prune: the rule is off unless selected. Heads, whose outputs are classes.
    Sparse products have not been measured: they gain less than the bound.
    """

    code = "ARC015"
    name = "sparse-24-shape"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch 2.13 torch/sparse/semi_structured.py: shape constraints by dtype",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        facts = PRECISION_FACTS[context.settings.precision]
        if facts.linear is not None or facts.dtype not in _SPARSE_TILES:
            return
        rows, columns = _SPARSE_TILES[facts.dtype]
        gpus = (context.estimate(scenario).gpu for scenario in context.scenarios)
        if not any(gpu.compute_capability >= (8, 0) for gpu in gpus):
            return
        outside = []
        for op in leaf_ops(context.graph):
            weight = op.input("weight")
            if (
                op.name != "linear"
                or weight is None
                or not (weight.shape[0] % rows or weight.shape[1] % columns)
            ):
                continue
            if not any(dim.group is not None and dim.group.is_output for dim in width_dims(op, context.dims)):
                outside.append(op)
        for ops in by_line(outside).values():
            if worth_pricing(context, indices_of(ops)):
                effect = _most_gained(context, indices_of(ops))
                most = gain_phrase(effect).replace("is predicted to gain", "would gain at most")
                yield share_finding(
                    self,
                    context,
                    ops,
                    "linear layer",
                    f", with weights that are not multiples of {rows} x {columns} and cannot be 2:4 sparse; "
                    f"pruned in a shape that can be, they {most}",
                    effect=effect,
                    advice=f"Choose widths that are multiples of {columns}.",
                )


_SPARSE_BYTES = 9 / 16
"""Bytes per byte of a dense 16-bit weight: half of the values, and two bits of position for each kept one."""


def _most_gained(context: GraphContext, op_indices: Sequence[int]) -> Effect:
    """An upper bound: sparse products at twice the dense speed, which is what the datasheets promise.

    Sparse is the weight, so the forward product and the input's gradient gain, not the weight's gradient. A
    product that waits for memory gains what its weight no longer reads, one that waits for its launch
    nothing.
    """
    per_gpu = {}
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        if estimate.gpu.compute_capability < (8, 0):
            continue
        gain_us = sum(_row_gain_us(row) for index in op_indices for row in estimate.rows_of(index))
        per_gpu[estimate.gpu.id] = replace(gpu_effect(estimate, op_indices, gain_us), calibrated=False)
    return Effect(per_gpu=per_gpu, op_indices=tuple(op_indices))


def _row_gain_us(row: Row) -> float:
    work = row.work
    if not isinstance(work, Gemm) or row.role == "wgrad" or not row.uses_tensor_cores:
        return 0.0
    if row.limiter == "math":
        return row.time_us / 2
    weight_bytes = work.n * work.k * itemsize_bytes(work.dtype)
    moved = row.bytes_read + row.bytes_written
    if row.limiter == "latency" or not moved:
        return 0.0
    return row.time_us * (1.0 - _SPARSE_BYTES) * min(weight_bytes / moved, 1.0)
