"""Convolutions that sum over groups of channels."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.layers import (
    by_line,
    convolutions,
    costliest,
    groups_of,
    indices_of,
    layers_take,
    rounded,
    sentence,
    share_percent,
    worth_saying_unpriced,
)
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.plugin import Effect, Finding, Fix, GraphContext, GraphRule, Op

_GROUP_WIDTHS = (1, 4, 8, 16, 32, 64, 128, 256)
"""cuDNN Developer Guide 8.3, grouped convolutions: C/g = K/g in this set (8.2: 4, 8, 16, 32)."""


class GroupedConvShape(GraphRule):
    """A grouped convolution's groups have a width that cuDNN has no Tensor Core kernel for.

    What it does
    Looks at every grouped convolution that is not depthwise: input and output channels per group should
    be equal and one of 4, 8, 16, 32, 64, 128, 256. Reports layers outside that set that take five times
    --min-gain (5 % of the step).

    Why it costs
    cuDNN's grouped Tensor Core kernels exist for those widths. Others run as many small products, or on
    CUDA cores.

    Example
        nn.Conv2d(240, 240, 3, groups=10)     # 24 channels per group

    Use instead
        nn.Conv2d(256, 256, 3, groups=8)      # 32 channels per group

    When it does not apply
    Depthwise convolutions (one channel per group) have kernels of their own. There are no such kernels
    for int8, and cuDNN 8.2 has them for 4, 8, 16 and 32 only.
    """

    code = "ARC003"
    name = "grouped-conv-shape"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, grouped convolutions: channels per group of the Tensor Core kernels",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        outside = [op for op in convolutions(context.graph) if not _has_grouped_kernel(op)]
        for ops in by_line(outside).values():
            concerned = indices_of(ops)
            if not worth_saying_unpriced(context, concerned):
                continue
            shares = share_percent(context, concerned)
            widths = sorted({_group_width(op) for op in ops})
            first = costliest(context, ops)
            yield self.finding(
                context.location(first),
                f"{sentence(layers_take(ops, 'grouped convolution', shares))}, with "
                f"{', '.join(f'{c} -> {k}' for c, k in widths[:4])} channels per group; cuDNN's Tensor Core "
                f"kernels want equal numbers out of {', '.join(map(str, _GROUP_WIDTHS[1:]))}.",
                effect=Effect(unknown="grouped convolutions outside cuDNN's widths have not been measured"),
                evidence={
                    "channels_per_group": [list(width) for width in widths],
                    "share_percent": rounded(shares),
                },
                fix=Fix(
                    "Choose channels and groups so that each group has 8, 16, 32 or 64 channels in and out."
                ),
                related=context.related(first),
            )


def _group_width(op: Op) -> tuple[int, int]:
    """Input and output channels per group."""
    groups = groups_of(op)
    source = op.input("input")
    assert source is not None
    return source.shape[1] // groups, op.outputs[0].shape[1] // groups


def _has_grouped_kernel(op: Op) -> bool:
    source, weight = op.input("input"), op.input("weight")
    if groups_of(op) == 1 or source is None or weight is None or len(source.shape) != len(weight.shape):
        return True
    inputs, outputs = _group_width(op)
    return inputs == 1 or (inputs == outputs and inputs in _GROUP_WIDTHS)
