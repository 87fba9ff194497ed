"""Convolutions over groups of channels whose numbers stand in the source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.analysis.widths.alignment import efficient_multiple
from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule
from tclint.source.project.scripts import TRAINS
from tclint.source.questions.flow import Flow
from tclint.source.run.values import Thing, constant_of
from tclint.source.syntax.tables import render

_GROUP_WIDTHS = (1, 4, 8, 16, 32, 64, 128, 256)
"""cuDNN Developer Guide 8.3, grouped convolutions: C/g = K/g in this set (8.2: 4, 8, 16, 32)."""

_SMALLEST = 32
"""Channels; a layer with fewer takes next to no time whatever its groups are."""

_CONVOLUTION = re.compile(r"torch\.nn\.Conv(?:Transpose)?[123]d")


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
    program = TRAINS
    requires = ("Conv",)
    # Groups given to a convolution as a number above 1 or by a constant.
    pattern = re.compile(
        rb"(?<!\w)Conv(?:Transpose)?[123]d\("
        rb"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?\bgroups\s*=\s*(?:[2-9]|[0-9]{2}|[A-Z][A-Z_0-9]+\b)"
    )

    def applies(self, settings: Settings) -> bool:
        return efficient_multiple(settings.precision) is not None

    def check(self, context: SourceContext) -> Iterator[Finding]:
        flow, seen = context.flow, Counter[str]()
        for modules in flow.made.values():
            shape = next((shape for module in modules if (shape := _shape(flow, module)) is not None), None)
            made = modules[0].made
            if shape is None or made is None or made.call is None or not context.concerns(made):
                continue
            groups, inputs, outputs = shape
            identity = f"{made.place.function.qualified_name}:{render(made.call)}"
            seen[identity] += 1
            yield self.finding(
                context.at(made),
                f"{groups} groups of {inputs} -> {outputs} channels: cuDNN's Tensor Core kernels want "
                f"equal numbers out of {', '.join(map(str, _GROUP_WIDTHS[1:]))}.",
                evidence={"groups": groups, "channels_per_group": [inputs, outputs]},
                fix=Fix(
                    "Choose channels and groups so that each group has 8, 16, 32 or 64 channels in and out."
                ),
                identity=identity if seen[identity] == 1 else f"{identity}:{seen[identity]}",
            )


def _shape(flow: Flow, module: Thing) -> tuple[int, int, int] | None:
    """(groups, input and output channels per group) of a layer without such a kernel, if all are certain."""
    if not _CONVOLUTION.fullmatch(flow.layer(module)):
        return None
    sizes = [constant_of(flow.argument(module, name)) for name in ("groups", "in_channels", "out_channels")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    groups, channels, made = (int(str(size)) for size in sizes)
    if groups == 1 or min(channels, made) < _SMALLEST:
        return None
    if channels % groups or made % groups or channels == groups:
        return None
    inputs, outputs = channels // groups, made // groups
    return None if inputs == outputs and inputs in _GROUP_WIDTHS else (groups, inputs, outputs)
