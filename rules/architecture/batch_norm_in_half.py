"""Batch norms that a cast of the whole model turns into 16 bits, in training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix, Related
from tclint.core.rule import Example, Rule
from tclint.source.names.queries import is_test_path
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Name
from tclint.source.training.batch_norms import keeps_norms, norm_of, replaces_norms
from tclint.source.training.training_casts import trained_casts

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


class BatchNormInHalf(SourceRule):
    """Batch norms keep their running statistics in 16 bits while the model trains.

    What it does
    Finds `.half()`, `.bfloat16()` and `.to(torch.float16)` on a model that an optimizer trains and that has
    batch norms: in its classes, in this file or another one of the project, or as a network of
    torchvision or timm that a literal name chooses. Nothing in the file puts the norms back to float32.

    Why it costs
    The cast takes the running mean and variance along. Each step adds a tenth of a difference to them, and
    rounding loses what is below about 2^-11 (float16) or 2^-8 (bfloat16) of the statistic; variances above
    65504 become infinite in float16. cuDNN's batch norm takes float16 activations only with float32
    parameters, so PyTorch does not use it either.

    Example
        model = torchvision.models.resnet50().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    Use instead
        model = torchvision.models.resnet50().cuda().half()
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.float()

    When it does not apply
    Inference, models that are not trained, norms that go back to float32 (by hand, apex's
    keep_batchnorm_fp32), frozen batch norms, frameworks that cast, other norms.

    References
    NVIDIA, Train With Mixed Precision: batch norm in float32.
    PyTorch, aten/src/ATen/native/Normalization.cpp, `_select_batch_norm_backend`.
    """

    code = "ARC019"
    name = "batchnorm-in-half"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch, aten/src/ATen/native/Normalization.cpp: _select_batch_norm_backend",
        "IEEE 754 binary16: 11 significant bits, largest value 65504; bfloat16: 8 significant bits",
    )
    triggers = (".half(", "float16", "torch.half")
    requires = (".backward(", ".step(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        if amp.framework or not amp.steps_optimizer or is_test_path(context.path) or keeps_norms(context):
            return
        for cast, optimizer in trained_casts(context):
            function = context.tables.functions[cast.function]
            norm = norm_of(context, function, Name(cast.name))
            if norm is None or replaces_norms(context, cast.name):
                continue
            bits = 11 if cast.dtype == "float16" else 8
            yield self.finding(
                context.location(cast.written),
                f"`{cast.name}` has batch norms ({norm.name}), whose running statistics go to {cast.dtype} "
                f"with it: updates below about 2^-{bits} of a statistic are lost in training.",
                related=(
                    Related(norm.location, "the batch norm"),
                    context.related(optimizer, "the optimizer of the model"),
                ),
                evidence={"model": cast.name, "norm": norm.name, "dtype": cast.dtype},
                fix=Fix(
                    "Call .float() on every batch norm after the cast; or keep the model in float32 and "
                    "compute under torch.autocast."
                ),
                identity=cast.name,
            )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)).half()
for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.float()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(images).mean().backward()
optimizer.step()
""",
            note="the norms go back to float32",
        ),
        Example(
            source="""\
import torch
import torchvision

teacher = torchvision.models.resnet50().half().eval()
student = torchvision.models.resnet18()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for images in loader:
    (student(images) - teacher(images.half()).float()).square().mean().backward()
    optimizer.step()
""",
            note="the model in float16 is not trained",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, use_norm):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3)
        if use_norm:
            self.norm = nn.BatchNorm2d(64)
        else:
            self.norm = nn.GroupNorm(8, 64)

model = Net(False).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(images).mean().backward()
optimizer.step()
""",
            note="it may have none",
        ),
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.vgg16().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(images).mean().backward()
optimizer.step()
""",
            note="no batch norms",
        ),
        Example(
            source="""\
import torch
import torchvision
from apex.fp16_utils import network_to_half

model = torchvision.models.resnet50().half()
model = network_to_half(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(images).mean().backward()
optimizer.step()
""",
            note="apex converts the model and leaves out the norms",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50().cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in loader:
    criterion(model(images.half()), labels).backward()
    optimizer.step()
""",
            note="a network of torchvision",
        ),
        Example(
            source="""\
import torch
from torch import nn

def conv(channels, width):
    return nn.Sequential(nn.Conv2d(channels, width, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv(3, 64), conv(64, 64))

    def forward(self, x):
        return self.body(x)

def main(args):
    model = Net().to(args.device)
    if args.bf16:
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in load(args):
        model(batch).mean().backward()
        optimizer.step()
""",
            note="norms in a function that the class calls",
        ),
        Example(
            source="""\
import timm
import torch

class Trainer:
    def __init__(self):
        self.model = timm.create_model("efficientnet_b0", pretrained=True)
        self.model.half()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, batch):
        self.model(batch).mean().backward()
        self.optimizer.step()
""",
            note="a network of timm, cast in the constructor",
        ),
    )


RULES: tuple[type[Rule], ...] = (BatchNormInHalf,)
