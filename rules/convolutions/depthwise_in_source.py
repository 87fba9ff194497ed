"""Depthwise convolutions, as the source itself shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword, unpacks_positions
from tclint.source.syntax.tables import Call, Collection, Function, Literal, render

_CONVOLUTIONS = frozenset({"torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"})
_GROUPS = 6
"""Position of `groups` among the arguments, from 0."""
_LARGEST = 7


class DepthwiseConvInSource(SourceRule):
    """Depthwise convolutions are limited by memory and leave Tensor Cores nothing to do.

    What it does
    Finds torch.nn convolutions whose `groups` is written like their input channels and whose kernel is
    known to be at most 7x7, and reports them once per file. Off by default: whether a dense convolution
    would be faster depends on the channels, the image and the GPU, which only a trace shows.

    Why it costs
    A 3x3 depthwise convolution does 18 operations for each value that it reads and writes, and sums over
    no channels, so Tensor Cores have nothing to do: it costs what moving its tensors costs. Early stages
    have the largest tensors. There, a dense convolution does more arithmetic in about the time that
    moving the tensors takes.

    Example
        nn.Conv2d(32, 192, 1), nn.Conv2d(192, 192, 3, groups=192)     # at 112 x 112

    Use instead
        nn.Conv2d(32, 192, 3)                                         # one dense layer for the two

    When it does not apply
    Late stages with small images and many channels, where a dense convolution is limited by arithmetic
    and depthwise ones pay off. Models for phones, which are not built for Tensor Cores. Give tclint the
    model as `file.py:callable` to have both priced.
    """

    code = "ARC002"
    name = "depthwise-conv"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: in memory-limited layers prefer "
        "dense to depthwise convolutions",
    )
    triggers = ("Conv1d(", "Conv2d(", "Conv3d(")
    requires = ("groups",)
    pattern = re.compile(rb"\bgroups\s*=\s*[^1\s]")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        found = [
            event.call
            for function, event in context.tables.calls
            if _is_depthwise(context, function, event.call)
        ]
        if not found:
            return
        others = f", and {len(found) - 1} more in this file" if len(found) > 1 else ""
        yield self.finding(
            context.location(found[0].node_id),
            f"This convolution is depthwise{others}: it does a few operations per value that it moves, so "
            "that memory limits it on every GPU and Tensor Cores have nothing to do.",
            related=tuple(context.related(call.node_id, "depthwise as well") for call in found[1:9]),
            evidence={"convolutions": len(found), "code": context.excerpt(found[0].node_id)},
            fix=Fix(
                "In early stages, whose images are large and channels few, try a dense convolution for it "
                "and the 1x1 one before it; trace the model (tclint FILE.py:CALLABLE) to have both priced."
            ),
            identity="depthwise",
        )


def _is_depthwise(context: SourceContext, function: Function, call: Call) -> bool:
    if unpacks_positions(call) or not _CONVOLUTIONS & set(context.resolver.called(function, call)):
        return False
    inputs, groups = keyword(call, "in_channels", 0), keyword(call, "groups", _GROUPS)
    if inputs is None or groups is None or groups == Literal(1):
        return False
    return render(inputs) == render(groups) and _is_small(context, function, call)


def _is_small(context: SourceContext, function: Function, call: Call) -> bool:
    """Whether memory limits the kernel on every GPU that tclint knows: 7x7 does 24.5 operations per byte of
    fp16 values, a V100 35 outside its Tensor Cores (31.4 TFLOP/s, 0.9 TB/s; the GPU's file)."""
    kernel = keyword(call, "kernel_size", 2)
    parts = kernel.items if isinstance(kernel, Collection) else (kernel,)
    sizes = []
    for part in parts:
        possible = context.resolver.evaluate(function, part) if part is not None else None
        if possible is None or not possible.certain or not isinstance(possible.values[0], int):
            return False
        sizes.append(possible.values[0])
    return max(sizes, default=0) <= _LARGEST
