"""Images cut into patches by a convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import prod

from tclint.plugin import Change, DimsUnresolved, Finding, Fix, Graph, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    by_line,
    costliest,
    cuts_patches,
    gain_phrase,
    indices_of,
    rounded,
    share_phrase,
)

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
        found = [op for op in context.graph.convolutions if self._embeds_patches(op)]
        for ops in by_line(found).values():
            if context.worth_pricing(indices_of(ops)):
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
        shares = context.share_percent(concerned)
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


def with_linear_patches(graph: Graph, ops: Iterable[Op]) -> Graph | None:
    """Convolutions that cut an image into patches, and are flattened, as a copy and a linear layer.

    The copy of the patches takes the convolution's place, and the linear layer that of the view after it.
    None if something else reads a convolution.
    """
    readers = graph.consumers()
    changed: dict[int, Op] = {}
    for op in (graph.ops[op.index] for op in ops):
        source, weight, following = op.input("input"), op.input("weight"), readers.get(op.index, [])
        if source is None or weight is None or len(following) != 1 or following[0].kind != "view":
            return None
        batch, width, *grid = op.outputs[0].shape
        count, taps = prod(grid), prod(weight.shape[1:])
        if following[0].outputs[0].shape != (batch, width, count) or not source.numel:
            return None
        shape, result = (batch, count, taps), (batch, count, width)
        patches = source.reshaped(shape)
        flat = weight.reshaped((width, taps))
        bias = op.input("bias")
        changed[op.index] = replace(
            op,
            name="clone",
            kind="copy",
            inputs=(source,),
            input_names=("self",),
            outputs=(patches,),
            attributes={},
        )
        output = following[0].outputs[0].reshaped(result)
        changed[following[0].index] = replace(
            op,
            index=following[0].index,
            name="linear",
            kind="linear",
            inputs=(replace(patches, producer=op.index), flat, *((bias,) if bias is not None else ())),
            input_names=("input", "weight", "bias")[: 2 + (bias is not None)],
            outputs=(output,),
            attributes={},
        )
    return graph.with_ops(changed)
