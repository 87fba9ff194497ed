"""Convolutions whose implicit matrix product is small."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tclint.analysis.latency import batch_is_assumed, latency_bound
from tclint.analysis.layers import convolutions, groups_of, indices_of, limiters, worth_pricing
from tclint.analysis.share_findings import share_finding
from tclint.analysis.widths.resizing import larger_batch
from tclint.plugin import Finding, GraphContext, GraphRule, Op

_SMALL_PRODUCT = 128
"""The edge of an ordinary tile; a product with a smaller side fills no tile in that direction."""


def _dense(context: GraphContext) -> list[Op]:
    """Forward convolutions that sum over all channels; transposed ones swap the roles of M and K."""
    return [
        op
        for op in convolutions(context.graph)
        if groups_of(op) == 1 and "transpose" not in op.name and op.inputs[0].shape[1:]
    ]


class SmallConvolution(GraphRule):
    """A convolution's matrix product has too few rows to keep the GPU busy.

    What it does
    Looks at every dense convolution as the matrix product that it is: N P Q rows (batch times output
    positions), K columns, C R S summed values. Convolutions with fewer than 128 rows, or with fewer than
    128 summed values on narrow outputs, whose time is not limited by arithmetic, are reported with the
    gain per sample of a larger batch.

    Why it costs
    A tile computes up to 256 x 128 results. With a batch of 1 on a 7 x 7 image there are 49 rows: one
    tile in that direction, a handful in all, on a GPU with a hundred SMs.

    Example
        nn.Conv2d(512, 512, 3, padding=1)      # batch 1, 7 x 7

    Use instead
        nn.Conv2d(512, 512, 3, padding=1)      # batch 32 or more

    When it does not apply
    Inference whose batch is set by latency requirements, and inputs that tclint inferred: nobody chose
    their batch. Steps in which such layers are a small part. Models that wait as a whole: see
    latency-bound-layers.
    """

    code = "DIM013"
    name = "conv-implicit-gemm-small"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA Convolutional Layers User's Guide: the dims of the implicit GEMM",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        # latency-bound-layers reports a latency-bound model once as a whole.
        if batch_is_assumed(context) or context.once(latency_bound) is not None:
            return
        small = self._small(context)
        concerned = indices_of(small)
        if not small or not worth_pricing(context, concerned):
            return
        rows = self._rows(min(small, key=self._rows))
        larger = larger_batch(context, _SMALL_PRODUCT / rows, concerned, lambda at: not self._small(at))
        if larger is None:
            return
        effect, words, change = larger
        yield share_finding(
            self,
            context,
            small,
            "convolution",
            f", with as few as {rows} rows in their matrix products{words}",
            effect=effect,
            advice="Raise the batch (or the crop) until batch times output positions is 128 or more.",
            evidence={"rows": rows},
            identity="rows",
            change=change,
        )

    def _small(self, context: GraphContext) -> list[Op]:
        return [
            op
            for op in _dense(context)
            if self._rows(op) < _SMALL_PRODUCT and limiters(context, op, products_only=True) - {"math"}
        ]

    def _rows(self, op: Op) -> int:
        shape = op.outputs[0].shape
        return shape[0] * prod(shape[2:])
