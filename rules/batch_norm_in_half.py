"""Batch norms that a cast of the whole model turns into 16 bits, in training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tclint.finding import Finding, Fix, Location, Related
from tclint.rule import Example, Rule, SourceRule
from tclint.source.queries import is_test_path, keyword, words
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Discard,
    Expression,
    Function,
    Name,
    Return,
    dotted,
    method_of,
)
from tclint.source.training_casts import MASTER_WEIGHTS, trained_casts

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_NORMS = words(
    "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d"
)
_WRAPPERS = words("DataParallel DistributedDataParallel convert_sync_batchnorm DDP DP compile")
_SAME = words("cuda to cpu train eval half bfloat16 requires_grad_ apply")
_LIBRARY = re.compile(
    r"resnet\d+|resnext\d+_|wide_resnet\d|densenet\d|mobilenet_?v[23]|efficientnet_|regnet_?[xy]|shufflenet_v2"
    r"|mnasnet\d|inception_v3|googlenet|vgg\d+_bn|seresnet\d|ghostnet"
)
"""Beginnings of names of torchvision's and timm's models that hold batch norms by default."""
_KEPT = re.compile(
    r"keep_b(atch)?_?n|b(atch)?_?n(orm)?_?(convert|to)_?(float|fp32)|network_to_half|convert_network|fp16_?util"
    r"|frozenb(atch)?_?n|^_?batchnorm$"
)
"""Identifiers, in lower case, of programs that treat their batch norms apart."""
_MAYBE = words("if else except case loop_else")
_HOLDING = (b"BatchNorm", b"import")
_DEPTH = 12
"""Names, wrappers, classes and functions followed from a model to its batch norm."""


class _Norm(NamedTuple):
    """A batch norm, or the library model that holds some."""

    name: str
    location: Location


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
        if amp.framework or not amp.steps_optimizer or is_test_path(context.path) or _keeps_norms(context):
            return
        for cast, optimizer in trained_casts(context):
            function = context.tables.functions[cast.function]
            norm = _norm_of(context, function, Name(cast.name), _DEPTH)
            if norm is None or _replaces_norms(context, cast.name):
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


def _keeps_norms(context: SourceContext) -> bool:
    """Whether the file may put some parts back to float32, or keeps masters of its parameters."""
    lowered = [name.lower() for name in context.tables.identifiers]
    if any(_KEPT.search(name) or MASTER_WEIGHTS.search(name) for name in lowered):
        return True
    for function in context.tables.functions:
        discarded = {event.site for event in function.events if isinstance(event, Discard)}
        for event in function.events:
            if isinstance(event, Return) and function.kind == "lambda" and isinstance(event.value, Call):
                discarded.add(event.value.site)
            if not isinstance(event, CallEvent):
                continue
            if dotted(event.call.function) == "isinstance" and any(
                "Norm" in str(argument.value) for argument in event.call.arguments
            ):
                return True
        for event in function.events:
            # A tensor's .float() thrown away does nothing, so this is a module's.
            if (
                isinstance(event, CallEvent)
                and event.call.site in discarded
                and context.casts.dtype_of(function, event.call) == "float32"
            ):
                return True
    return False


def _replaces_norms(context: SourceContext, model: str) -> bool:
    """`model.bn1 = nn.Identity()`, or `setattr`, which may do the same."""
    if "setattr" in context.tables.identifiers:
        return True
    return any(
        target.startswith(f"{model}.") and re.search(r"bn|norm", target.rpartition(".")[2].lower())
        for function in context.tables.functions
        for event in function.events
        if isinstance(event, Assignment)
        for target in event.targets
    )


def _norm_of(context: SourceContext, scope: Function, value: Expression, depth: int) -> _Norm | None:
    """A batch norm that a model has, whichever way it is made; None where it may have none."""
    if depth <= 0:
        return None
    if isinstance(value, Name):
        name = value.dotted
        found = []
        for function, made in context.origins_of(scope, name):
            if _root(made) == name and function is scope:
                continue  # model = model.half()
            found.append(_norm_of(context, function, made, depth - 1))
        return found[0] if found and None not in found else None
    if not isinstance(value, Call):
        return None
    receiver, method = method_of(value)
    if method in _WRAPPERS:
        inner = keyword(value, "module", 0) or keyword(value, "model")
        return _norm_of(context, scope, inner, depth - 1) if inner is not None else None
    direct = _norm_made_by(context, scope, value, depth)
    if direct is None and receiver is not None and method in _SAME:
        return _norm_of(context, scope, receiver, depth - 1)
    return direct


def _norm_made_by(context: SourceContext, scope: Function, call: Call, depth: int) -> _Norm | None:
    """A batch norm that one call is sure to make."""
    if depth <= 0:
        return None
    for qualified in context.resolver.called(scope, call):
        head, _, last = qualified.rpartition(".")
        if qualified.startswith("torch.nn."):
            if last in _NORMS:
                return _Norm(last, context.location(call.site))
            if last in ("Sequential", "ModuleList"):
                return _among(context, scope, call, depth)
            return None
        name = ""
        if head.startswith("torchvision.models"):
            name = last
        elif qualified in ("timm.create_model", "timm.models.create_model"):
            given = keyword(call, "model_name", 0)
            possible = context.resolver.evaluate(scope, given) if given is not None else None
            name = str(possible.values[0]) if possible is not None and possible.certain else ""
        if name:
            fits = _LIBRARY.match(name) and keyword(call, "norm_layer") is None
            return _Norm(name, context.location(call.site)) if fits else None
        if not qualified.startswith(("torch.", "torchvision.", "timm.")):
            definition = context.project.definition(qualified, _HOLDING)
            return _norm_in(*definition, depth - 1) if definition is not None else None
    for local in context.resolver.local_functions(scope, call.function):
        found = _norm_in(context, local, depth - 1)
        if found is not None:
            return found
    return None


def _among(context: SourceContext, scope: Function, call: Call, depth: int) -> _Norm | None:
    for argument in call.arguments:
        if isinstance(argument.value, Call):
            found = _norm_made_by(context, scope, argument.value, depth - 1)
            if found is not None:
                return found
    return None


def _norm_in(context: SourceContext, function: Function, depth: int) -> _Norm | None:
    """A batch norm that a class's constructor or a function makes on every path."""
    if depth <= 0:
        return None
    if function.kind == "class":
        members = {member.name: member for member in context.values.members(function)}
        if members.keys() & {"half", "to", "_apply", "bfloat16"}:
            return None
        if "__init__" in members:
            return _norm_in(context, members["__init__"], depth)
        outer = context.tables.functions[function.parent]
        for base in function.bases:
            found = _norm_made_by(context, outer, Call(base, (), function.site), depth - 1)
            if found is not None:
                return found
        return None
    if function.kind != "function":
        return None
    if function.name != "__init__" and not any(
        isinstance(event, Return) and not event.is_yield for event in function.events
    ):
        return None
    for event in function.events:
        if not isinstance(event, CallEvent):
            continue
        around = {function.blocks[block].kind for block in function.enclosing(event.block)}
        if around & _MAYBE:
            continue
        found = _norm_made_by(context, function, event.call, depth - 1)
        if found is not None and not _is_thrown_away(function, event.call):
            return found
    return None


def _is_thrown_away(function: Function, call: Call) -> bool:
    return any(isinstance(event, Discard) and event.site == call.site for event in function.events)


def _root(value: Expression) -> str:
    """`model` of `model.to(device).half()`, and of `DDP(model)`."""
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if method in _WRAPPERS and value.arguments:
            value = value.arguments[0].value
        elif receiver is None:
            return ""
        else:
            value = receiver
    return dotted(value)
