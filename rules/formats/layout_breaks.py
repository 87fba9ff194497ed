"""Operators that leave channels_last inside a network that runs in it."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.findings import share_finding
from tclint.analysis.layers import by_line, gain_phrase, indices_of, worth_pricing
from tclint.analysis.what_if.layouts import kept_format, layout_breaks
from tclint.plugin import Finding, GraphContext, GraphRule, Op


def _lines(context: GraphContext, ops: list[Op]) -> Iterator[list[Op]]:
    for at_line in by_line(ops).values():
        if worth_pricing(context, indices_of(at_line)):
            yield at_line


class LayoutBreakingOp(GraphRule):
    """An operator in a channels_last network writes its result in NCHW.

    What it does
    In a model that runs in channels_last (as traced, or as --layout or the training script says), finds
    operators that read an NHWC image and write an NCHW one - contiguous(), reshapes that have to copy,
    pixel shuffle, channel shuffle - other than norms, and prices the step with the format kept there.

    Why it costs
    The next convolution has to transpose the images back. Both copies read and write the whole tensor, in
    forward and in backward.

    Example
        x = x.contiguous()
        x = self.conv(x)

    Use instead
        x = self.conv(x)          # or x.contiguous(memory_format=torch.channels_last)

    When it does not apply
    Where the image ends: flattening for a classifier or tokens for a transformer is not reported unless a
    convolution reads the result.
    """

    code = "FMT006"
    name = "layout-breaking-op"
    level = "info"
    confidence = "medium"
    sources = ("PyTorch Channels Last Memory Format tutorial: operators without channels_last support",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        breaking = [op for op in layout_breaks(context) if op.kind != "norm"]
        for ops in _lines(context, breaking):
            names = ", ".join(dict.fromkeys(op.name for op in ops))
            change = kept_format(ops)
            effect = context.effect(indices_of(ops), change)
            verb = "turns" if len(ops) == 1 else "turn"
            yield share_finding(
                self,
                context,
                ops,
                "operator",
                f" and {verb} channels_last images back to NCHW ({names}), which later convolutions turn "
                f"again; keeping the format {gain_phrase(effect)}",
                effect=effect,
                advice="Keep the format: leave out contiguous(), or say memory_format=torch.channels_last; "
                "permute to NHWC before reshaping.",
                evidence={"operators": names},
                change=change,
                others="another operator that leaves channels_last",
            )


class NormWithoutNhwcKernel(GraphRule):
    """A group or instance norm in a channels_last network runs in NCHW.

    What it does
    In a model that runs in channels_last, finds group norms and instance norms, whose CUDA kernels write
    NCHW whatever they read, and prices the step with equally fast kernels that write NHWC.

    Why it costs
    PyTorch has channels_last kernels for batch norm, not for these: the norm reads the images transposed
    and the next convolution turns them back.

    Example
        nn.Conv2d(64, 64, 3), nn.GroupNorm(32, 64)

    Use instead
        nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)      # where the batch is large enough

    When it does not apply
    Small batches, segmentation and diffusion models need these norms; NVIDIA's apex has a group norm for
    NHWC, and torch.compile generates one. Which change pays off is not predicted.
    """

    code = "ARC010"
    name = "norm-without-nhwc-kernel"
    level = "info"
    confidence = "medium"
    sources = ("PyTorch Channels Last Memory Format tutorial: operators with channels_last kernels",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.compiled:
            return
        norms = [op for op in layout_breaks(context) if op.kind == "norm"]
        for ops in _lines(context, norms):
            names = ", ".join(dict.fromkeys(op.name for op in ops))
            change = kept_format(ops)
            effect = context.effect(indices_of(ops), change)
            yield share_finding(
                self,
                context,
                ops,
                names,
                f"{' and writes' if len(ops) == 1 else ', which write'} NCHW into a channels_last network, "
                f"for want of an NHWC kernel; one as fast as theirs {gain_phrase(effect)}",
                effect=effect,
                advice="Use batch norm where the batch allows it, a group norm with an NHWC kernel (apex), "
                "or torch.compile.",
                evidence={"norms": names},
                change=change,
                others="another norm without an NHWC kernel",
            )
