"""Convolutions whose implicit matrix product is small."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tclint.analysis.latency import batch_is_assumed, latency_bound
from tclint.analysis.layers import (
    by_line,
    convolutions,
    groups_of,
    indices_of,
    limiters,
    width_dims,
    worth_pricing,
    worth_saying_unpriced,
)
from tclint.analysis.share_findings import share_finding
from tclint.analysis.widths.alignment import SMALLEST_WIDTH, efficient_multiple
from tclint.analysis.widths.resizing import larger_batch
from tclint.plugin import Effect, Finding, GraphContext, GraphRule, Op

_FEWEST_CHANNELS = 32
_SMALL_PRODUCT = 128
"""Edge of an ordinary tile: a product with a smaller side fills no tile in that direction."""


def _dense(context: GraphContext) -> list[Op]:
    """Forward convolutions that sum over all channels; transposed ones swap the roles of M and K."""
    return [
        op
        for op in convolutions(context.graph)
        if groups_of(op) == 1 and "transpose" not in op.name and op.inputs[0].shape[1:]
    ]


class FewChannels(GraphRule):
    """A convolution in the body of the network has fewer than 32 channels.

    What it does
    Finds dense convolutions with fewer than 32 input or output channels by design (not the image's
    channels, not the model's output) and reports them with their share of the step when that share is
    large enough.

    Why it costs
    Channels are two of the three dims of a convolution's matrix product. With 16 output channels seven
    eighths of a 128-wide tile stay empty, and such layers usually run on large images, where they cost
    most.

    Example
        nn.Conv2d(16, 16, 3, padding=1)      # at 224 x 224

    Use instead
        nn.Conv2d(32, 32, 3, padding=1, stride=2)     # wider, on fewer positions

    When it does not apply
    First layers on images, heads, grouped and depthwise convolutions. Networks for phones. The rule says
    what the layers take, not what wider ones would gain: those would be another model.
    """

    code = "DIM007"
    name = "few-channels"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, Tensor Core operations: at least 32 input and output channels "
        "recommended",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        few = [op for op in _dense(context) if self._chosen(op, context)]
        for ops in by_line(few).values():
            if not worth_saying_unpriced(context, indices_of(ops)):
                continue
            channels = sorted({size for op in ops for size in self._chosen(op, context)})
            yield share_finding(
                self,
                context,
                ops,
                "convolution",
                f", with {', '.join(map(str, channels[:4]))} channels; at least {_FEWEST_CHANNELS} fill "
                "tiles better",
                effect=Effect(unknown="wider layers make a different model"),
                advice="Use wider layers, on images made smaller first (stride, pixel unshuffle).",
                evidence={"channels": channels},
            )

    def _chosen(self, op: Op, context: GraphContext) -> list[int]:
        return [
            dim.size
            for dim in width_dims(op, context.dims)
            if SMALLEST_WIDTH <= dim.size < _FEWEST_CHANNELS
            and dim.group is not None
            and not (dim.group.fixed or dim.group.is_output)
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
        # A model that is latency-bound as a whole is told so once, by latency-bound-layers.
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
