"""Kernels too small for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.latency import batch_is_assumed, latency_bound
from tclint.analysis.layers import rounded, share_phrase
from tclint.analysis.widths.resizing import larger_batch
from tclint.graph.ops.op import GEMM_KINDS
from tclint.plugin import Finding, Fix, GraphContext, GraphRule

_LARGER_BATCH = 4
"""The multiple of the present batch from which on to try larger ones: enough that kernels with tiles for a
fifth of the SMs can fill the GPU."""


class LatencyBoundLayers(GraphRule):
    """Kernels that are too small to fill the GPU take much of the step.

    What it does
    Adds up the kernels whose time is limited by latency - whatever they compute, it is too little work
    for the GPU's SMs - and reports the model when they take 20 % of the step, with the operators that
    wait most and the gain per sample of the first batch, 4, 16, ... times as large, that ends it, else
    of the one that gains most in the GPU's memory. At the batches they are trained with, common networks
    have 0 to 2 %.

    Why it costs
    A kernel takes a few microseconds to start, fill and drain, however little it computes. A product with
    tiles for only one SM in five leaves the other four idle.

    Example
        model(images)      # batch 1, many small layers

    Use instead
        model(images)      # batch 8; or mode="reduce-overhead" (CUDA graphs) where the batch is given

    When it does not apply
    Inference whose batch is set by latency requirements. Training whose batch is limited by memory or
    convergence: there wider and fewer layers help. Where nobody states a batch (inputs that tclint
    inferred, without --batch), nothing is reported.
    """

    code = "ARC021"
    name = "latency-bound-layers"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Math And Memory Bounds: small products are"
        " limited by latency",
        "NVIDIA Memory-Limited Layers User's Guide: small operations do not fill a GPU",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if batch_is_assumed(context) or not any(op.kind in GEMM_KINDS for op in context.graph.ops):
            return
        waiting = context.once(latency_bound)
        if waiting is None:
            return
        larger = larger_batch(
            context, _LARGER_BATCH, waiting.op_indices, lambda at: latency_bound(at) is None
        )
        if larger is None:
            return
        effect, words, change = larger
        yield self.finding(
            context.root_location(),
            f"Kernels too small to fill the GPU take {share_phrase(waiting.share_percent)}, most of it in "
            f"{'; '.join(waiting.causes)}{words}.",
            effect=effect,
            evidence={
                "operators": len(waiting.op_indices),
                "share_percent": rounded(waiting.share_percent),
                "causes": list(waiting.causes),
            },
            fix=Fix(
                "Raise the batch; where it is given, launch the step as a CUDA graph "
                '(torch.compile\'s mode="reduce-overhead") or make fewer, wider layers.'
            ),
            identity="latency",
            change=change,
        )
