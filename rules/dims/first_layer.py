"""The first convolution of a network on images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tclint.plugin import Change, Finding, Fix, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    CHANNELS_LAST,
    best_option,
    by_line,
    costliest,
    cuts_patches,
    efficient_multiple,
    gain_phrase,
    indices_of,
    priced,
    rounded,
    share_phrase,
    with_input_channels,
)


class FirstLayerC3(GraphRule):
    """The first convolution reads images of three channels (or one), where four cost no more.

    What it does
    Finds the convolution that reads the model's input with one to three channels, and prices the same
    layer on images stored with four (or eight) channels, the added ones zero, both in channels_last,
    which the kernels for four channels need.

    Why it costs
    Tensor Core convolutions read channels in groups of 16 bytes. cuDNN has special kernels for C = 4 in
    NHWC; with C = 3 it pads the images in every step, or runs without Tensor Cores. Measured on V100,
    such first layers are slower in fp16 than in fp32.

    Example
        nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3)     # images [N, 3, 224, 224]

    Use instead
        nn.Conv2d(4, 64, kernel_size=7, stride=2, padding=3)     # images padded to [N, 4, 224, 224] NHWC

    When it does not apply
    Where the first layer is a small part of the step, as in most large models. Weights of a pretrained
    first layer need a zero slice for the added channel. Convolutions whose stride equals their kernel
    (patch embeddings) run another kernel, which padding does not help; see ARC023.
    """

    code = "DIM006"
    name = "first-layer-c3"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Convolutional Layers User's Guide, Channels In And Out: C = 4 has kernels of its own, and"
        " padding three channels to four suffices for a first layer of stride 2",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        stems = [op for op in context.graph.convolutions if self._reads_images(op, context)]
        for ops in by_line(stems).values():
            concerned = indices_of(ops)
            if context.worth_pricing(concerned):
                yield from self._finding(context, ops)

    def _reads_images(self, op: Op, context: GraphContext) -> bool:
        source = op.input("input")
        if source is None or len(source.shape) != 4 or source.shape[1] > 3 or op.groups != 1:
            return False
        if "transpose" in op.name or cuts_patches(op):
            return False
        # Normalising the images first (x - mean) / std keeps their channels.
        group = context.dims.group_of_input(op.index, op.input_names.index("input"), 1)
        from_input = group is not None and (group.fixed or "").startswith("model input")
        return from_input or source.input_name is not None

    def _finding(self, context: GraphContext, ops: list[Op]) -> Iterator[Finding]:
        concerned = indices_of(ops)
        source = ops[0].inputs[0]
        best = best_option(context, priced(context, concerned, _options(ops)))
        # There is nothing to advise if the format itself costs more than the channels gain.
        if best is None or context.effect((), replace(best.change, presupposes={})).mean_gain_percent <= 0.0:
            return
        channels, effect = best.what, best.effect
        shares = context.share_percent(concerned)
        yield self.finding(
            context.location(costliest(context, ops)),
            f"The first convolution reads {source.shape[1]} channel{'s' if source.shape[1] > 1 else ''} and "
            f"takes {share_phrase(shares)}; in channels_last, padding the images to {channels} channels "
            f"{gain_phrase(effect)}.",
            effect=effect,
            evidence={
                "channels": source.shape[1],
                "padded_channels": channels,
                "share_percent": rounded(shares),
            },
            fix=Fix(
                f"Pad the images to {channels} channels with zeros where they are loaded, keep them "
                f"channels_last, and give this layer in_channels={channels}."
            ),
            change=best.change,
        )


def _options(ops: list[Op]) -> Iterator[tuple[int, Change]]:
    layout = CHANNELS_LAST.settings
    for channels in (4, 8):
        edit = partial(with_input_channels, ops=ops, channels=channels)
        yield channels, Change(edit=edit, settings=layout, presupposes=layout)
