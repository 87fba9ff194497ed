"""A rule on layout conversions whose result is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.layers.layouts import conversions
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.syntax.outlines import Outline


class ChannelsLastDiscarded(SourceRule):
    """A tensor converted to channels_last whose result is thrown away.

    What it does
    Finds `x.to(memory_format=...)` and `x.contiguous(memory_format=...)` on tensors as statements by
    themselves.

    Why it costs
    The line does nothing: both return a new tensor and leave `x` as it is. Only `nn.Module.to` converts in
    place. The network still gets NCHW, and the user believes otherwise.

    Example
        images.to(memory_format=torch.channels_last)

    Use instead
        images = images.to(memory_format=torch.channels_last)

    When it does not apply
    Modules, which are converted in place.

    References
    PyTorch, Channels Last Memory Format in PyTorch, "Converting existing models".
    PyTorch, torch.Tensor.to. Behaviour measured on PyTorch 2.13.
    """

    code = "FMT002"
    name = "channels-last-discarded"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = ("PyTorch tutorials, Channels Last Memory Format in PyTorch", "PyTorch docs, torch.Tensor.to")
    triggers = ("memory_format",)

    def outline(self, outline: Outline) -> bool:
        return outline.discards("memory_format")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for found in conversions(context):
            if not program.is_discarded(found.event.call):
                continue
            if found.method == "to" and context.values.kind_of(found.function, found.receiver) != "tensor":
                continue
            if program.in_with(found.function, found.event.block, "raises", "assertRaises"):
                continue
            text = render(found.receiver)
            yield self.finding(
                context.location(found.event.call.site),
                f"`{context.excerpt(found.event.call.site)}` returns a converted tensor that is thrown away: "
                f"`{text}` keeps its layout.",
                evidence={"receiver": text, "kind": "tensor", "method": found.method},
                fix=Fix(f"Assign the result: `{text} = {context.excerpt(found.event.call.site)}`."),
                identity=f"{found.function.qualified_name}:{text}",
            )

    valid = (
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50()
model.to(memory_format=torch.channels_last)
""",
            note="a module is converted in place",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 64, 3)
        self.to(memory_format=torch.channels_last)

Net().cuda().to(memory_format=torch.channels_last)
""",
            note="modules, whatever their names",
        ),
        Example(
            source="""\
import torch

def step(model, images):
    images = images.to(memory_format=torch.channels_last)
    return model(images.contiguous(memory_format=torch.channels_last))
""",
            note="both results are used",
        ),
        Example(
            source="""\
import torch

def convert(thing):
    thing.to(memory_format=torch.channels_last)
    return thing
""",
            note="a module or a tensor, who knows",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

for images, labels in loader:
    images.to(memory_format=torch.channels_last)
    loss = criterion(model(images), labels)
""",
            note="a batch of a loader",
        ),
        Example(
            source="""\
import torch

x = torch.randn(8, 3, 224, 224, device="cuda")
x.to(memory_format=torch.channels_last)
y = model(x)
""",
            note="a tensor made here",
        ),
        Example(
            source="""\
import torch

def forward(self, features):
    features.contiguous(memory_format=torch.channels_last)
    return self.body(features)
""",
            note="only tensors have contiguous",
        ),
    )


RULES: tuple[type[Rule], ...] = (ChannelsLastDiscarded,)
