"""Rules on memory_format as programs write it: results thrown away, one side converted, wrong ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import has_star, is_test_path, keyword, positional, root_name
from tclint.source.tables import (
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    dotted,
    method_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.program import Training

_LAST = "torch.channels_last"
_LAST_3D = "torch.channels_last_3d"
_RANK = {_LAST: 4, _LAST_3D: 5}
_KEEP_SIZES = ("cuda", "to", "half", "float", "contiguous", "clone", "requires_grad_")
_SIZED = ("rand", "randn", "zeros", "ones", "empty")
"""Functions of torch that take their result's sizes as arguments."""


class Conversion(NamedTuple):
    """`x.to(memory_format=...)` or `x.contiguous(memory_format=...)`."""

    function: Function
    event: CallEvent
    receiver: Expression
    method: str
    layout: str | None
    """_LAST or _LAST_3D; None when decided at run time."""


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

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for found in _conversions(context):
            if not program.is_discarded(found.event.call):
                continue
            if found.method == "to" and program.kind_of(found.function, found.receiver) != "tensor":
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


class ModelChannelsLastInputNot(SourceRule):
    """A model in channels_last that gets inputs in NCHW.

    What it does
    Finds training loops whose model is converted with `model.to(memory_format=torch.channels_last)` while
    the batches, which the same loop moves to the GPU, never are.

    Why it costs
    The first convolution has to permute its input in every step; from there on the layout of the weights
    decides, so it is one copy of the batch per step.

    Example
        model = model.to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    Use instead
            images = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)

    When it does not apply
    Batches converted in a collate function, a prefetcher or another file; conversions under a flag.

    References
    PyTorch, Channels Last Memory Format in PyTorch, "Converting existing models". Propagation of the layout
    measured on PyTorch 2.13.
    """

    code = "FMT003"
    name = "model-cl-input-not"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch tutorials, Channels Last Memory Format in PyTorch: Converting existing models",)
    triggers = ("channels_last",)
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        found = list(_conversions(context))
        if any(
            item.layout is None or program.kind_of(item.function, item.receiver) != "module" for item in found
        ):
            return
        if len(found) != 1 or program.speaks_of("prefetch", "collate", "dali"):
            return
        if _mentions(context) != 1:
            return
        model = found[0]
        if not program.unconditional(model.function, model.event.block):
            return
        for training in program.trainings:
            copy = _image_copy(context, training)
            if copy is None or not _feeds(context, training, model):
                continue
            if context.neighbours.mention(("channels_last", "prefetch")):
                return
            yield self.finding(
                context.location(copy.site),
                f"`{context.excerpt(copy.site)}` stays NCHW while the model has been channels_last since "
                f"line {context.location(model.event.call.site).line}: every batch is permuted.",
                related=(context.related(model.event.call.site, "the model is converted here"),),
                evidence={
                    "model": render(model.receiver),
                    "input": root_name(method_of(copy)[0] or Literal(None)),
                },
                fix=Fix("Convert the batch as well: `.to(device, memory_format=torch.channels_last)`."),
                identity=f"{training.function.qualified_name}:input",
            )
            return

    valid = (
        Example(
            source="""\
import torch

model = build().cuda().to(memory_format=torch.channels_last)
for images, labels in loader:
    images = images.to("cuda", memory_format=torch.channels_last)
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="both converted",
        ),
        Example(
            source="""\
import torch

model = torch.nn.Conv2d(3, 8, 3).cuda()
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
for images, labels in loader:
    images = images.cuda()
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="under a flag",
        ),
        Example(
            source="""\
import torch

model = torch.nn.Conv2d(3, 8, 3).cuda()
model.to(memory_format=torch.channels_last)
loader = Prefetcher(dataset, collate_fn=to_channels_last)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="the collate function may convert",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50().cuda()
model = model.to(memory_format=torch.channels_last)
for images, labels in loader:
    images = images.cuda(non_blocking=True)
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="the batch stays NCHW",
        ),
        Example(
            source="""\
import torch
import torchvision

def main(device="cuda"):
    model = torchvision.models.resnet50()
    model = model.to(device, memory_format=torch.channels_last)
    for epoch in range(90):
        for images, target in train_loader:
            output = model(images.to(device))
            loss = criterion(output, target.to(device))
            loss.backward()
            optimizer.step()
""",
            note="copied in the call",
        ),
        Example(
            source="""\
import torch

class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.model.to(memory_format=torch.channels_last)

    def train(self):
        for inputs, targets in self.loader:
            inputs = inputs.cuda()
            loss = self.criterion(self.model(inputs), targets.cuda())
            loss.backward()
            self.optimizer.step()
""",
            note="in a class",
        ),
    )


class InputChannelsLastModelNot(SourceRule):
    """Inputs in channels_last for a model that is not.

    What it does
    Finds training loops that convert their batches to channels_last, in programs that make the model in the
    same file and never convert it.

    Why it costs
    Convolutions take channels_last when one of their operands is, so the weights of every layer are permuted
    in every step, forward and backward.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            images = images.to("cuda", memory_format=torch.channels_last)

    Use instead
        model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)

    When it does not apply
    Models that another file makes or converts.

    References
    PyTorch, Channels Last Memory Format in PyTorch, "Converting existing models".
    """

    code = "FMT004"
    name = "input-cl-model-not"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch tutorials, Channels Last Memory Format in PyTorch: Converting existing models",)
    triggers = ("channels_last",)
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        found = list(_conversions(context))
        if not found or _mentions(context) != len(found):
            return
        if any(
            item.layout is None or program.kind_of(item.function, item.receiver) != "tensor" for item in found
        ):
            return
        for training in program.trainings:
            inside = [
                item
                for item in found
                if item.function.index == training.function.index
                and training.block in item.function.enclosing(item.event.block)
                and not program.apart(item.function, item.event.block, training.backward.block)
            ]
            if not inside:
                continue
            model = _model_made_here(context, training)
            if not model or context.neighbours.mention(("channels_last",)):
                continue
            item = inside[0]
            yield self.finding(
                context.location(item.event.call.site),
                f"`{context.excerpt(item.event.call.site)}` feeds `{model}`, which is never converted: its "
                "weights are permuted in every step.",
                related=(context.related(training.backward.call.site, "in this training loop"),),
                evidence={"model": model, "input": render(item.receiver)},
                fix=Fix(
                    f"Convert the model once: `{model} = {model}.to(memory_format=torch.channels_last)`."
                ),
                identity=f"{training.function.qualified_name}:model",
            )
            return

    valid = (
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
for images, labels in loader:
    images = images.to("cuda", memory_format=torch.channels_last)
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="both converted",
        ),
        Example(
            source="""\
import torch

def train(model, loader, optimizer):
    for images, labels in loader:
        images = images.to("cuda", memory_format=torch.channels_last)
        loss = criterion(model(images), labels.cuda())
        loss.backward()
        optimizer.step()
""",
            note="the caller makes the model",
        ),
        Example(
            source="""\
import torch
from models import build_model

model = build_model(layout="channels_last")
for images, labels in loader:
    images = images.to("cuda", memory_format=torch.channels_last)
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="another file makes it",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torchvision

model = torchvision.models.resnet50().cuda()
for images, labels in loader:
    images = images.to("cuda", memory_format=torch.channels_last)
    loss = criterion(model(images), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="only the batch",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3)

def main():
    net = Net().to("cuda")
    for images, labels in train_loader:
        images = images.cuda().contiguous(memory_format=torch.channels_last)
        loss = nn.functional.cross_entropy(net(images), labels.cuda())
        loss.backward()
        optimizer.step()
""",
            note="a class of the file",
        ),
        Example(
            source="""\
import timm
import torch

model = timm.create_model("resnet50")
model.cuda()
model.train()
for images, labels in loader:
    inputs = images.cuda().to(memory_format=torch.channels_last)
    loss = criterion(model(inputs), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="a model of a library",
        ),
    )


class ChannelsLastWrongRank(SourceRule):
    """channels_last for something that does not have four dimensions.

    What it does
    Finds `memory_format=torch.channels_last` (four dimensions) and `torch.channels_last_3d` (five) on
    tensors whose rank is known to be another, and on modules whose convolutions have another.

    Why it costs
    Tensors and modules with Conv3d raise "required rank 4 tensor to use channels_last format". A module that
    only has Conv1d is silently left as it is.

    Example
        model = nn.Conv3d(1, 32, 3).to(memory_format=torch.channels_last)

    Use instead
        model = nn.Conv3d(1, 32, 3).to(memory_format=torch.channels_last_3d)

    When it does not apply
    Shapes that are known only at run time.

    References
    PyTorch, Channels Last Memory Format in PyTorch. Behaviour measured on PyTorch 2.13.
    """

    code = "FMT005"
    name = "cl-wrong-rank"
    since = "0.1.0"
    level = "error"
    confidence = "high"
    sources = ("PyTorch tutorials, Channels Last Memory Format in PyTorch",)
    triggers = ("channels_last",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for found in _conversions(context):
            if found.layout is None or program.in_with(
                found.function, found.event.block, "raises", "assertRaises"
            ):
                continue
            wanted = _RANK[found.layout]
            rank = _rank(context, found.function, found.receiver)
            layers = _conv_ranks(context, found.function, found.receiver) if rank is None else {}
            wrong = {name for name, value in layers.items() if value != wanted and value > 3}
            silent = bool(layers) and set(layers.values()) == {3}
            if (rank is None or rank == wanted) and not wrong and not silent:
                continue
            what = f"`{render(found.receiver)}`"
            last = found.layout.rpartition(".")[2]
            if rank is not None:
                message = f"{what} has {rank} dimensions; {last} needs {wanted} and raises."
            elif wrong:
                message = (
                    f"{what} has {', '.join(sorted(wrong))}, whose weights {last} cannot hold: it raises."
                )
            else:
                message = f"{what} has only {', '.join(sorted(layers))}: {last} changes nothing."
            other = _LAST_3D if wanted == 4 else _LAST
            fits = rank == _RANK[other] or bool(wrong)
            yield self.finding(
                context.location(found.event.call.site),
                message,
                level="warning" if rank is None and not wrong else None,
                evidence={"memory_format": last, "rank": rank, "layers": sorted(layers)},
                fix=Fix(f"Use {other}." if fits else "Remove the conversion."),
                identity=f"{found.function.qualified_name}:{what}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
""",
            note="four dimensions",
        ),
        Example(
            source="""\
import torch
from torch import nn

model = nn.Conv3d(3, 8, 3).to(memory_format=torch.channels_last_3d)
x = torch.randn(1, 3, 8, 8, 8).to(memory_format=torch.channels_last_3d)
""",
            note="five dimensions",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = nn.Conv1d(1, 8, 3)
        self.image = nn.Conv2d(3, 8, 3)

net = Net().to(memory_format=torch.channels_last)
x = torch.randn(*shape).contiguous(memory_format=torch.channels_last)
""",
            note="the 2-D convolutions are converted; a shape known only at run time",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch import nn

model = nn.Conv3d(1, 32, 3).to(memory_format=torch.channels_last)
""",
            note="raises",
        ),
        Example(
            source="""\
import torch

def step(model):
    x = torch.randn(8, 3, 16, 64, 64, device="cuda")
    return model(x.contiguous(memory_format=torch.channels_last))
""",
            note="a tensor of five dimensions",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Audio(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 64, 9)

model = Audio().cuda()
model = model.to(memory_format=torch.channels_last)
""",
            note="silently nothing",
        ),
        Example(
            source="""\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, 3)

class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(64)
        self.head = nn.Linear(64, 10)

model = Video()
model.to(memory_format=torch.channels_last)
""",
            note="through a class that it uses",
        ),
    )


class ContiguousInsteadOfTo(SourceRule):
    """contiguous() for a layout that the tensor seems to have already.

    What it does
    Finds `x.contiguous(memory_format=torch.channels_last)` on tensors whose channels, or height and width,
    are known to be 1.

    Why it costs
    For such sizes NCHW and NHWC name the same order of memory, so `contiguous` returns the tensor with its
    NCHW strides, and the next convolution takes the NCHW kernel. `to` rewrites the strides.

    Example
        x = torch.randn(64, 1, 28, 28).contiguous(memory_format=torch.channels_last)

    Use instead
        x = torch.randn(64, 1, 28, 28).to(memory_format=torch.channels_last)

    When it does not apply
    Any other size: both do the same.

    References
    PyTorch, Channels Last Memory Format in PyTorch, note on tensors with C == 1 or H == W == 1. Strides
    measured on PyTorch 2.13.
    """

    code = "FMT007"
    name = "contiguous-vs-to"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("PyTorch tutorials, Channels Last Memory Format in PyTorch: Converting existing models",)
    triggers = ("contiguous(memory_format",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for found in _conversions(context):
            if found.method != "contiguous" or found.layout != _LAST:
                continue
            sizes = _sizes(context, found.function, found.receiver)
            if sizes is None or len(sizes) != 4 or not (sizes[1] == 1 or (sizes[2] == 1 and sizes[3] == 1)):
                continue
            known = ", ".join("?" if size is None else str(size) for size in sizes)
            yield self.finding(
                context.location(found.event.call.site),
                f"contiguous leaves a tensor of size ({known}) with its NCHW strides.",
                evidence={"sizes": list(sizes)},
                fix=Fix("Write `.to(memory_format=torch.channels_last)`, which rewrites the strides."),
                identity=f"{found.function.qualified_name}:{render(found.receiver)}",
            )

    valid = (
        Example(
            source="""\
import torch

x = torch.randn(64, 1, 28, 28).to(memory_format=torch.channels_last)
y = torch.randn(64, 3, 28, 28).contiguous(memory_format=torch.channels_last)
""",
            note="to; and three channels",
        ),
        Example(
            source="""\
import torch

def convert(x):
    return x.contiguous(memory_format=torch.channels_last)
""",
            note="sizes unknown",
        ),
        Example(
            source="""\
import torch

x = torch.randn(64, 1, 28, 28).contiguous()
# not contiguous(memory_format=...)
""",
            note="another format",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

x = torch.randn(64, 1, 28, 28).contiguous(memory_format=torch.channels_last)
""",
            note="one channel",
        ),
        Example(
            source="""\
import torch

pooled = torch.zeros(32, 512, 1, 1)
pooled = pooled.contiguous(memory_format=torch.channels_last)
""",
            note="one pixel",
        ),
        Example(
            source="""\
import torch

BATCH = 16

def sample():
    noise = torch.rand((BATCH, 1, 32, 32), device="cuda")
    return noise.contiguous(memory_format=torch.channels_last)
""",
            note="a shape as a tuple",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    ChannelsLastDiscarded,
    ModelChannelsLastInputNot,
    InputChannelsLastModelNot,
    ChannelsLastWrongRank,
    ContiguousInsteadOfTo,
)


def _conversions(context: SourceContext) -> Iterator[Conversion]:
    for function, event, _ in context.program.methods("to", "contiguous"):
        given = keyword(event.call, "memory_format")
        receiver, method = method_of(event.call)
        if given is None or receiver is None:
            continue
        possible = context.resolver.evaluate(function, given)
        layouts = {getattr(value, "qualified", None) for value in possible.values}
        if layouts & {"torch.contiguous_format", "torch.preserve_format"} and len(layouts) == 1:
            continue
        layout = layouts.pop() if possible.complete and len(layouts) == 1 else None
        yield Conversion(function, event, receiver, method, layout if layout in _RANK else None)


def _mentions(context: SourceContext) -> int:
    """How often the file's code says channels_last."""
    code = (line.split("#", 1)[0] for line in context.lines())
    return sum(line.count("channels_last") for line in code)


def _image_copy(context: SourceContext, training: Training) -> Call | None:
    """The copy to the GPU of the loop's first batch variable."""
    function = training.function
    first: Call | None = None
    names = context.program.loop_names(function, training.block)
    for event in function.events:
        if not isinstance(event, CallEvent) or training.block not in function.enclosing(event.block):
            continue
        receiver, method = method_of(event.call)
        if receiver is None or root_name(receiver) not in names or method not in ("cuda", "to"):
            continue
        text = root_name(receiver).lower()
        if any(word in text for word in ("label", "target", "mask")) or text in ("y", "t"):
            continue
        if not (
            has_star(event.call) or context.program.apart(function, event.block, training.backward.block)
        ):
            first = first or event.call
    return first


def _feeds(context: SourceContext, training: Training, model: Conversion) -> bool:
    """The converted model is called in the loop."""
    function = training.function
    name = dotted(_base(context, model.function, model.receiver))
    assigned = {
        target
        for event in model.function.events
        if isinstance(getattr(event, "value", None), Call)
        for target in getattr(event, "targets", ())
        if getattr(event, "value").site == model.event.call.site  # noqa: B009
    }
    wanted = {name, *assigned} - {""}
    return any(
        isinstance(event, CallEvent)
        and dotted(event.call.function) in wanted
        and training.block in function.enclosing(event.block)
        for event in function.events
    )


def _base(context: SourceContext, function: Function, expression: Expression) -> Expression:
    """`Net()` of `Net().cuda().to(...)`, `x` of `x.cuda()`."""
    while isinstance(expression, Call):
        receiver, _ = method_of(expression)
        if receiver is None or context.resolver.called(function, expression):
            return expression
        expression = receiver
    return expression


def _model_made_here(context: SourceContext, training: Training) -> str:
    """The name of a model that the loop calls and the file makes."""
    program = context.program
    function = training.function
    for event in function.events:
        if not isinstance(event, CallEvent) or training.block not in function.enclosing(event.block):
            continue
        name = dotted(event.call.function)
        if not name or program.resolver.qualified(function, name):
            continue
        for scope, item in program.resolver.definitions(function, name)[0]:
            if isinstance(item.value, Call) and _makes_convolutions(context, scope, item.value):
                return name
    return ""


def _makes_convolutions(context: SourceContext, scope: Function, call: Call) -> bool:
    base: Expression = call
    while isinstance(base, Call):
        for name in context.resolver.called(scope, base):
            if name.startswith(("torchvision.models.", "torch.nn.Conv2d")) or name == "timm.create_model":
                return True
        for maker in context.resolver.local_functions(scope, base.function):
            if maker.kind == "class":
                return any(layer.qualified == "torch.nn.Conv2d" for layer in context.program.layers(maker))
        receiver, method = method_of(base)
        if receiver is None or method not in ("cuda", "to", "train", "half", "float"):
            return False
        base = receiver
    return False


def _sizes(
    context: SourceContext, function: Function, expression: Expression, depth: int = 4
) -> tuple[int | None, ...] | None:
    """The sizes of a tensor made by a function of torch; None where its rank is unknown."""
    if depth <= 0:
        return None
    if isinstance(expression, Name):
        found, complete = context.resolver.definitions(function, expression.dotted)
        made = [
            (scope, item)
            for scope, item in found
            if dotted(_base(context, scope, item.value)) != expression.dotted
        ]
        if not complete or len(made) != 1 or made[0][1].operator or made[0][1].unpacked:
            return None
        return _sizes(context, made[0][0], made[0][1].value, depth - 1)
    if not isinstance(expression, Call):
        return None
    receiver, method = method_of(expression)
    if receiver is not None and not context.resolver.called(function, expression):
        return _sizes(context, function, receiver, depth - 1) if method in _KEEP_SIZES else None
    if not any(
        name in {f"torch.{maker}" for maker in _SIZED}
        for name in context.resolver.called(function, expression)
    ):
        return None
    given = tuple(argument.value for argument in positional(expression))
    if any(argument.star == "*" for argument in expression.arguments) or not given:
        return None
    if len(given) == 1:
        if not isinstance(given[0], Collection) or given[0].kind not in ("tuple", "list"):
            return None
        given = given[0].items
        if any(getattr(item, "kind", "") == "star" for item in given):
            return None
    sizes = []
    for item in given:
        possible = context.resolver.evaluate(function, item)
        value = possible.values[0] if possible.certain else None
        sizes.append(value if isinstance(value, int) else None)
    return tuple(sizes)


def _rank(context: SourceContext, function: Function, expression: Expression) -> int | None:
    sizes = _sizes(context, function, expression)
    return len(sizes) if sizes is not None else None


def _conv_ranks(context: SourceContext, function: Function, expression: Expression) -> dict[str, int]:
    """Convolution layers of a module and the rank of their weights; empty where some part is unknown."""
    program = context.program
    base = _base(context, function, expression)
    made = [(function, base)]
    if isinstance(base, Name):
        made = [
            (scope, _base(context, scope, item.value))
            for scope, item in context.resolver.definitions(function, base.dotted)[0]
            if dotted(_base(context, scope, item.value)) != base.dotted
        ]
    if len(made) != 1 or not isinstance(made[0][1], Call):
        return {}
    scope, call = made[0][0], made[0][1]
    names = list(context.resolver.called(scope, call))
    if "torch.nn.Sequential" in names:
        for argument in call.arguments:
            if isinstance(argument.value, Call):
                names.extend(context.resolver.called(scope, argument.value))
    for maker in context.resolver.local_functions(scope, call.function):
        if maker.kind == "class":
            if _foreign(context, maker):
                return {}
            names.extend(layer.qualified for layer in program.layers(maker))
    layers: dict[str, int] = {}
    for name in names:
        last = name.rpartition(".")[2]
        if name.startswith("torch.nn.") and last[:-2] in ("Conv", "ConvTranspose") and last[-1] == "d":
            layers[last] = int(last[-2]) + 2
    return layers


def _foreign(context: SourceContext, owner: Function) -> bool:
    """The class makes parts that are not seen: its Conv1d may not be all that it has."""
    layers = {layer.qualified for layer in context.program.layers(owner)}
    if any("Conv3d" in name for name in layers) and not any("Conv2d" in name for name in layers):
        return False  # what is seen raises already
    for member in context.program.members(owner):
        for event in member.events:
            if not isinstance(event, CallEvent):
                continue
            last = method_of(event.call)[1]
            known = context.resolver.called(member, event.call)
            if last[:1].isupper() and not any(name.startswith("torch.") for name in known):
                local = context.resolver.local_functions(member, event.call.function)
                if not local or any(_foreign(context, maker) for maker in local if maker is not owner):
                    return True
    return False
