"""Rearranging and interpolating large images."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tclint.plugin import Effect, Finding, GraphContext, GraphRule
from tclint.plugin.graph import by_line, indices_of, share_finding

_HIGH_RESOLUTION = 256 * 256
"""Positions from which on an image is large: the edge of a quarter of a megapixel."""


class UpsampleHires(GraphRule):
    """Pixel shuffles or interpolations of large images take a noticeable part of the step.

    What it does
    Finds pixel shuffle, its inverse and interpolation on images of at least 256 x 256 positions, and
    reports each kind's share of the step where it is large enough.

    Why it costs
    They compute next to nothing: every value is read and written, at the largest resolution the model
    has, and again in backward.

    Example
        x = F.interpolate(x, scale_factor=2)      # 64 channels, to 512 x 512
        x = self.conv(x)                          # 64 -> 3

    Use instead
        x = self.conv(x)                          # 64 -> 12, at 256 x 256
        x = F.pixel_shuffle(x, 2)                 # moves 12 channels instead of 64

    When it does not apply
    Where the upsampled tensor is already narrow (a pixel shuffle as the last layer is how it should be
    done, and is small). What a rearranged model gains is not predicted.
    """

    code = "ARC009"
    name = "upsample-hires"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: memory-limited layers gain "
        "nothing from Tensor Cores",
        "Real-Time Single Image and Video Super-Resolution (arXiv 1609.05158): upsample last, by pixel "
        "shuffle",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        large = [
            op
            for op in context.graph.ops
            if op.name.startswith(("upsample", "_upsample", "pixel_"))
            and max(prod(spec.shape[2:]) for spec in (op.inputs[0], op.outputs[0])) >= _HIGH_RESOLUTION
        ]
        for ops in by_line(large).values():
            if not context.worth_pricing(indices_of(ops)):
                continue
            spec = max((op.outputs[0] for op in ops), key=lambda output: output.numel)
            size = "x".join(str(side) for side in spec.shape[2:])
            yield share_finding(
                self,
                context,
                ops,
                ops[0].name,
                f", moving {spec.shape[1]} channels of up to {size}",
                effect=Effect(unknown="what a rearranged model costs is not predicted"),
                advice="Reduce the channels before upsampling, and upsample as late as the model allows.",
                evidence={"channels": spec.shape[1], "size": size},
            )
