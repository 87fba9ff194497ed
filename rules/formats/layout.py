"""Memory format."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Change, Finding, Fix, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    CHANNELS_LAST,
    annotate_if_compile_fixes,
    apply_layout,
    by_line,
    gain_phrase,
    indices_of,
    layers_take,
    rounded,
    sentence,
    share_finding,
)

from .layout_breaks import breaks_in, kept_format, layout_breaks

_CONTIGUOUS = Change(settings={"layout": "contiguous"})
_RANKS = {4: "channels_last", 5: "channels_last_3d"}


class ChannelsLastMissing(GraphRule):
    """A convolutional model runs in NCHW, although Tensor Core convolutions want NHWC.

    What it does
    Prices the whole step with model and images in channels_last against the step as traced, and reports
    it once per model where 2-D or 3-D convolutions run in the default format and the change pays off.

    Why it costs
    cuDNN's Tensor Core kernels read channels innermost. In NCHW each convolution either runs a slower
    kernel or transposes its tensors before and after.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            with torch.autocast("cuda"):
                loss = criterion(model(images.cuda()), labels.cuda())

    Use instead
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.cuda().to(memory_format=torch.channels_last)
            with torch.autocast("cuda"):
                loss = criterion(model(images), labels.cuda())

    When it does not apply
    fp32 without TF32, which does not use Tensor Cores. Models without 2-D or 3-D convolutions. Models
    whose operators lack channels_last kernels (they convert back and forth): the predicted gain decides,
    and NHWC does lose on some. The training script may already set the format: trace the model as the
    script runs it, or suppress the rule where it is built.
    """

    code = "FMT001"
    name = "channels-last-missing"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch Channels Last Memory Format tutorial: 22 % for ResNet-50, 8 to 35 % for a list of models",
        "NVIDIA Convolutional Layers User's Guide, Tensor Layouts In Memory: NCHW vs NHWC: NHWC is "
        "recommended",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from annotate_if_compile_fixes(context, self._check, "lays out convolutions in NHWC")

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.precision in ("fp32", "fp64", "tf32-matmul"):
            return
        in_order = _convolutions(context, channels_last=False)
        if not in_order:
            return
        concerned = indices_of(in_order)
        effect = context.effect(concerned, CHANNELS_LAST)
        shares = context.share_percent(concerned)
        broken = breaks_in(apply_layout(context.graph, "channels_last"))
        names = list(dict.fromkeys(op.name for op in broken))
        breaks = f", although {_listed(names)} would turn images back to NCHW" if names else ""
        formats = sorted({_RANKS[len(op.inputs[0].shape)] for op in in_order})
        yield self.finding(
            context.root_location(),
            f"{sentence(layers_take(in_order, 'convolution', shares))} in the default memory format (NCHW); "
            f"{' and '.join(formats)} {gain_phrase(effect)}{breaks}.",
            effect=effect,
            evidence={
                "convolutions": len(in_order),
                "share_percent": rounded(shares),
                "breaks_the_format": names,
            },
            fix=Fix(
                f"model = model.to(memory_format=torch.{formats[0]}) after building, and assign every batch: "
                f"images = images.to(memory_format=torch.{formats[0]})."
            ),
            identity="layout",
            change=CHANNELS_LAST,
        )


class ChannelsLastLoses(GraphRule):
    """A convolutional model runs in NHWC, although it is faster in the default memory format.

    What it does
    Prices the whole step with model and images in the default format (NCHW) against the step as traced, and
    reports it once per model where convolutions run in channels_last and going back pays off.

    Why it costs
    cuDNN has NHWC kernels for the gradients of grouped convolutions in few widths only; others run on CUDA
    cores. Operators without an NHWC kernel convert their images there and back.

    Example
        model = resnext101_64x8d().cuda().to(memory_format=torch.channels_last)

    Use instead
        model = resnext101_64x8d().cuda()

    When it does not apply
    Most networks are faster in channels_last, as channels-last-missing says: the predicted gain decides. The
    script may choose another format than the trace shows.
    """

    code = "FMT008"
    name = "channels-last-loses"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, grouped convolutions: channels per group of the NHWC kernels",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        last = _convolutions(context, channels_last=True)
        if not last:
            return
        concerned = indices_of(last)
        effect, shares = context.effect(concerned, _CONTIGUOUS), context.share_percent(concerned)
        yield self.finding(
            context.root_location(),
            f"{sentence(layers_take(last, 'convolution', shares))} in channels_last; the default format "
            f"(NCHW) {gain_phrase(effect)}.",
            effect=effect,
            evidence={"convolutions": len(last), "share_percent": rounded(shares)},
            fix=Fix(
                "Leave model and images in the default format, without memory_format=torch.channels_last."
            ),
            identity="layout",
            change=_CONTIGUOUS,
        )


def _convolutions(context: GraphContext, *, channels_last: bool) -> list[Op]:
    """The convolutions on images that run in that format, as traced or according to the settings."""
    graph = apply_layout(context.graph, context.settings.layout)
    return [
        op
        for op in graph.convolutions
        if len(op.inputs[0].shape) in _RANKS and _runs_channels_last(op) == channels_last
    ]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _runs_channels_last(op: Op) -> bool:
    # torch picks NHWC kernels when the images or the weight are channels_last.
    return any(
        spec is not None and spec.memory_format.startswith("channels_last")
        for spec in (op.inputs[0], op.input("weight"))
    )


def _lines(context: GraphContext, ops: list[Op]) -> Iterator[list[Op]]:
    for at_line in by_line(ops).values():
        if context.worth_pricing(indices_of(at_line)):
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
