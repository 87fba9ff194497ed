"""Convolutions over groups of channels whose numbers stand in the source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.analysis.widths.alignment import efficient_multiple
from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule
from tclint.source.names.queries import has_star, is_test_path, keyword
from tclint.source.syntax.tables import Call, Expression, Function, Literal, render

_GROUP_WIDTHS = (1, 4, 8, 16, 32, 64, 128, 256)
"""cuDNN Developer Guide 8.3, grouped convolutions: C/g = K/g in this set (8.2: 4, 8, 16, 32)."""

_SMALLEST = 32
"""Channels; a layer with fewer takes next to no time whatever its groups are."""

_CONVOLUTION = re.compile(r"torch\.nn\.(?:modules\.conv\.)?Conv(?:Transpose)?[123]d")


class GroupedConvShapeInSource(SourceRule):
    """A grouped convolution's groups have a width that cuDNN has no Tensor Core kernel for.

    What it does
    Finds grouped convolutions of torch.nn (depthwise ones excluded) whose channels and groups are numbers
    in the source: input and output channels per group should be equal and one of 4, 8, 16, 32, 64, 128,
    256. What share of the step such a layer takes is known only for a traced model.

    Why it costs
    cuDNN's grouped Tensor Core kernels exist for those widths. Others run as many small products, or on
    CUDA cores.

    Example
        nn.Conv2d(240, 240, 3, groups=10)     # 24 channels per group

    Use instead
        nn.Conv2d(256, 256, 3, groups=8)      # 32 channels per group

    When it does not apply
    Depthwise convolutions (one channel per group) have kernels of their own. There are no such kernels
    for int8, and cuDNN 8.2 has them for 4, 8, 16 and 32 only. Numbers chosen at run time, and layers with
    fewer than 32 channels.
    """

    code = "ARC003"
    name = "grouped-conv-shape"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA cuDNN 8 Developer Guide, grouped convolutions: channels per group of the Tensor Core kernels",
    )
    triggers = ("groups=", "groups =")
    requires = ("Conv",)
    # Groups given to a convolution as a number above 1 or by a constant.
    pattern = re.compile(
        rb"(?<!\w)Conv(?:Transpose)?[123]d\("
        rb"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?\bgroups\s*=\s*(?:[2-9]|[0-9]{2}|[A-Z][A-Z_0-9]+\b)"
    )

    def applies(self, settings: Settings) -> bool:
        return efficient_multiple(settings.precision) is not None

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        seen: Counter[str] = Counter()
        for function, event in context.tables.calls:
            if has_star(event.call):
                continue
            called = context.resolver.called(function, event.call)
            if len(called) != 1 or not _CONVOLUTION.fullmatch(called[0]):
                continue
            shape = _shape(context, function, event.call)
            if shape is None:
                continue
            groups, inputs, outputs = shape
            identity = f"{function.qualified_name}:{render(event.call)}"
            seen[identity] += 1
            yield self.finding(
                context.location(event.call.node_id),
                f"{groups} groups of {inputs} -> {outputs} channels: cuDNN's Tensor Core kernels want "
                f"equal numbers out of {', '.join(map(str, _GROUP_WIDTHS[1:]))}.",
                evidence={"groups": groups, "channels_per_group": [inputs, outputs]},
                fix=Fix(
                    "Choose channels and groups so that each group has 8, 16, 32 or 64 channels in and out."
                ),
                identity=identity if seen[identity] == 1 else f"{identity}:{seen[identity]}",
            )


def _shape(context: SourceContext, function: Function, call: Call) -> tuple[int, int, int] | None:
    """(groups, input and output channels per group) of a layer without such a kernel, if all are certain."""
    groups = _number(context, function, keyword(call, "groups", 6))
    channels = _number(context, function, keyword(call, "in_channels", 0))
    made = _number(context, function, keyword(call, "out_channels", 1))
    if not groups or not channels or not made or groups == 1 or min(channels, made) < _SMALLEST:
        return None
    if channels % groups or made % groups or channels == groups:
        return None
    inputs, outputs = channels // groups, made // groups
    return None if inputs == outputs and inputs in _GROUP_WIDTHS else (groups, inputs, outputs)


def _number(context: SourceContext, function: Function, value: Expression | None) -> int | None:
    if value is None or (isinstance(value, Literal) and not isinstance(value.value, int)):
        return None
    possible = context.resolver.evaluate(function, value)
    number = possible.only
    return number if isinstance(number, int) and not isinstance(number, bool) else None
