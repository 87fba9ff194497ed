"""Images cut into patches by a convolution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.analysis.change import Change
from tclint.analysis.layers import (
    by_line,
    convolutions,
    costliest,
    cuts_patches,
    gain_phrase,
    indices_of,
    rounded,
    share_percent,
    share_phrase,
    worth_pricing,
)
from tclint.analysis.what_if.layer_edits import with_linear_patches
from tclint.plugin import DimsUnresolved, Finding, Fix, GraphContext, GraphRule, Op

_IMAGE_CHANNELS = 3


class PatchEmbeddingConv(GraphRule):
    """A convolution whose stride is its kernel embeds the patches of an image.

    What it does
    Finds convolutions on images of up to three channels whose windows do not overlap and whose output is
    flattened into tokens, and prices the same layer as a linear one over the patches, including the copy
    that cuts them out.

    Why it costs
    The layer is one matrix product over the pixels of each patch, but cuDNN does not run it as one: it
    converts the image to NHWC with padded channels, runs a kernel that loads every pixel of every window
    separately, and converts the result back. On an H100 the 16x16 patches of 128 images took 1,233 us in
    a published trace, 335 us of it for conversions; a linear layer with the same product took 47 us.

    Example
        self.embed = nn.Conv2d(3, 768, kernel_size=16, stride=16)
        tokens = self.embed(x).flatten(2).transpose(1, 2)

    Use instead
        self.embed = nn.Linear(3 * 16 * 16, 768)
        patches = x.unfold(2, 16, 16).unfold(3, 16, 16)           # [B, 3, H/16, W/16, 16, 16]
        tokens = self.embed(patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))

    When it does not apply
    Where the embedding is a small part of the step, as in training of large models. Checkpoints hold the
    same numbers and only have to be flattened: conv.weight.flatten(1). Without Tensor Cores, and where
    the kernel's windows overlap, nothing is gained.
    """

    code = "ARC023"
    name = "patch-embedding-conv"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Convolutional Layers User's Guide, Tensor Layouts In Memory: NCHW vs NHWC: conversions "
        "between the two",
        "TraceLens profiler trace of TimeSformer on H100: names and times of the patch embedding's "
        "kernels (bfloat16, 128 images)",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        found = [op for op in convolutions(context.graph) if self._embeds_patches(op)]
        for ops in by_line(found).values():
            if worth_pricing(context, indices_of(ops)):
                yield from self._priced(context, ops)

    def _embeds_patches(self, op: Op) -> bool:
        source = op.input("input")
        return source is not None and source.shape[1] <= _IMAGE_CHANNELS and cuts_patches(op)

    def _priced(self, context: GraphContext, ops: list[Op]) -> Iterator[Finding]:
        concerned, change = indices_of(ops), Change(edit=partial(with_linear_patches, ops=ops))
        try:
            effect = context.effect(concerned, change)
        except DimsUnresolved:
            return
        weight = ops[0].inputs[ops[0].input_names.index("weight")]
        channels, *kernel = weight.shape[1:]
        size = "x".join(map(str, kernel))
        width = channels * kernel[0] * kernel[1]
        shares = share_percent(context, concerned)
        yield self.finding(
            context.location(costliest(context, ops)),
            f"This convolution cuts images into patches of {size} and takes {share_phrase(shares)}; as a "
            f"linear layer over the unfolded patches it {gain_phrase(effect)}.",
            effect=effect,
            evidence={"patch": size, "channels": channels, "share_percent": rounded(shares)},
            fix=Fix(
                f"Unfold the image into patches and give them to nn.Linear({width}, {weight.shape[0]}); "
                "its weight is the convolution's, flattened from dim 1 on."
            ),
            change=change,
        )
