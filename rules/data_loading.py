"""Rules on how batches reach the GPU: loader workers, pinned memory, copies, batch sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import has_star, is_test_path, keyword, positional, root_name, words
from tclint.source.tables import (
    Call,
    CallEvent,
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
    from tclint.source.program import Called

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_FILE_DATASETS = words(
    "ImageFolder DatasetFolder ImageNet CocoDetection CIFAR10 CIFAR100 Places365 STL10 CelebA LSUN "
    "Cityscapes VOCSegmentation VOCDetection Kinetics Food101"
)
_OPENS = ("open", "imread", "load", "read_image", "decode_image", "loadmat", "read", "imdecode", "read_video")
_EVALUATION = words("val valid validation test eval evaluation dev query gallery infer inference predict")
_TOKENS = words("tokenizer tokens vocab ids seq llm gpt bert lm")


class NumWorkersZero(SourceRule):
    """A training loader that reads files in the main process.

    What it does
    Finds `DataLoader(...)` without `num_workers`, or with 0, in a file that trains on CUDA, where the
    dataset decodes files: a torchvision dataset of images, or a Dataset class of the file that opens files.

    Why it costs
    With `num_workers=0`, the default, the training loop itself reads and decodes every batch, and the GPU
    waits meanwhile. With workers, batches are prepared while the previous one trains.

    Example
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True)

    Use instead
        loader = DataLoader(ImageFolder(root, transform), batch_size=64, shuffle=True, num_workers=8)

    When it does not apply
    Data that lies in memory or on the GPU (TensorDataset), IterableDataset, options that come through
    `**kwargs`, evaluation loaders, tests.

    References
    PyTorch, Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
    """

    code = "RUN006"
    name = "num-workers-zero"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch recipes, Performance Tuning Guide: Enable asynchronous data loading and augmentation",
    )
    triggers = ("DataLoader",)
    requires = ("cuda", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings or not program.on_cuda:
            return
        for loader in program.calls(*_LOADERS):
            if has_star(loader.call) or _evaluates(context, loader):
                continue
            workers = keyword(loader.call, "num_workers", 5)
            if workers is not None and workers != Literal(0):
                continue
            source = _reads_files(context, loader)
            if not source:
                continue
            shown = "has no num_workers" if workers is None else "has num_workers=0"
            yield self.finding(
                context.location(loader.call.site),
                f"This DataLoader {shown}: `{source}` decodes every batch in the training process while the "
                "GPU waits.",
                evidence={"num_workers": 0, "dataset": source, "function": loader.function.qualified_name},
                fix=Fix("Pass num_workers, about as many as CPU cores per GPU."),
                identity=f"{loader.function.qualified_name}:{source}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

loader = DataLoader(ImageFolder("data"), batch_size=64, num_workers=8)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="with workers",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(x.cuda(), y.cuda()), batch_size=64)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="the data lies on the GPU",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

loader = DataLoader(ImageFolder("data"), batch_size=64, **options)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="options may bring it",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

loader = DataLoader(ImageFolder("data"), batch_size=64, shuffle=True)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="the default is 0",
        ),
        Example(
            source="""\
import torch
import torchvision

train_set = torchvision.datasets.CIFAR10("data", train=True)
train_loader = torch.utils.data.DataLoader(train_set, batch_size=128, shuffle=True, num_workers=0)
for images, labels in train_loader:
    loss = criterion(model(images.to("cuda")), labels.to("cuda"))
    loss.backward()
    optimizer.step()
""",
            note="0 workers through a variable",
        ),
        Example(
            source="""\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index]))

def main():
    dataset = Photos("photos")
    loader = DataLoader(dataset, batch_size=32)
    for images in loader:
        loss = model(images.cuda()).mean()
        loss.backward()
        optimizer.step()
""",
            note="a dataset of the file that opens images",
        ),
    )


class PinMemoryMissing(SourceRule):
    """Batches copied to the GPU from memory that is not pinned.

    What it does
    Finds a `DataLoader` without `pin_memory` whose batches the training loop of the same function copies to
    the GPU.

    Why it costs
    The GPU can only copy from page-locked memory. From other memory the driver first copies through a
    buffer of its own, at about half the rate, and `non_blocking=True` has no effect.

    Example
        loader = DataLoader(dataset, batch_size=64, num_workers=8)
        for images, labels in loader:
            images = images.cuda()

    Use instead
        loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True)
        for images, labels in loader:
            images = images.cuda(non_blocking=True)

    When it does not apply
    Programs on the CPU, data that lies on the GPU already, loaders of a framework, options through
    `**kwargs`, and `pin_memory=False` written on purpose.

    References
    PyTorch, Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
    PyTorch, CUDA semantics, "Use pinned memory buffers".
    """

    code = "RUN007"
    name = "pin-memory-missing"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch recipes, Performance Tuning Guide: Enable asynchronous data loading and augmentation",
        "PyTorch docs, CUDA semantics: Use pinned memory buffers",
    )
    triggers = ("DataLoader",)
    requires = ("cuda", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda or context.amp.framework:
            return
        for loader in program.calls(*_LOADERS):
            if has_star(loader.call) or keyword(loader.call, "pin_memory", 7) is not None:
                continue
            if _in_memory(context, loader):
                continue
            copy = _copy_in_training(context, loader)
            if copy is None:
                continue
            yield self.finding(
                context.location(loader.call.site),
                f"This DataLoader has no pin_memory: `{context.excerpt(copy.site)}` on line "
                f"{context.location(copy.site).line} copies through a staging buffer.",
                related=(context.related(copy.site, "its batches are copied to the GPU here"),),
                evidence={"pin_memory": False, "function": loader.function.qualified_name},
                fix=Fix("Pass pin_memory=True, and non_blocking=True to the copies."),
                identity=f"{loader.function.qualified_name}:{render(loader.call.function)}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=True)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="pinned",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

device = "cpu"  # not "cuda"
loader = DataLoader(dataset, batch_size=64)
for images, labels in loader:
    loss = criterion(model(images.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
""",
            note="on the CPU",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(x.cuda(), y.cuda()), batch_size=64)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="tensors on the GPU cannot be pinned",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=False)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="somebody's choice",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, shuffle=True)
for images, labels in loader:
    images, labels = images.cuda(), labels.cuda()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="copied from pageable memory",
        ),
        Example(
            source="""\
import torch
import torch.utils.data as data

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_loader = data.DataLoader(dataset, 64, True, num_workers=4)
for epoch in range(10):
    for step, (images, labels) in enumerate(train_loader):
        images = images.to(device)
        loss = criterion(model(images), labels.to(device))
        loss.backward()
        optimizer.step()
""",
            note="a device chosen at run time",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, dataset):
        self.loader = DataLoader(dataset, batch_size=8)

    def train(self):
        for batch in self.loader:
            loss = self.model(batch["image"].cuda(non_blocking=True)).mean()
            loss.backward()
            self.optimizer.step()
""",
            note="non_blocking has no effect without pinned memory",
        ),
    )


class BlockingCopy(SourceRule):
    """A blocking copy from a pinned batch.

    What it does
    Finds `.cuda()` and `.to(device)` without `non_blocking=True` on batches of a loader that pins its memory,
    in a training loop of the same file.

    Why it costs
    The copy could run while the CPU goes on to launch kernels; without `non_blocking` the CPU waits until it
    is done.

    Example
        loader = DataLoader(dataset, pin_memory=True, ...)
        for images, labels in loader:
            images = images.cuda()

    Use instead
            images = images.cuda(non_blocking=True)

    When it does not apply
    Loaders that do not pin, or pin depending on an option; copies to the CPU.

    References
    PyTorch, CUDA semantics, "Use pinned memory buffers".
    PyTorch, Performance Tuning Guide, "Enable asynchronous data loading and augmentation".
    """

    code = "RUN008"
    name = "blocking-h2d"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch docs, CUDA semantics: Use pinned memory buffers",
        "PyTorch recipes, Performance Tuning Guide: Enable asynchronous data loading and augmentation",
    )
    triggers = ("pin_memory",)
    requires = ("cuda", ".backward(", "DataLoader")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.on_cuda:
            return
        for loader in program.calls(*_LOADERS):
            pinned = keyword(loader.call, "pin_memory", 7)
            if pinned != Literal(True) or has_star(loader.call):
                continue
            copies = [copy for copy in _copies_in_training(context, loader) if not _non_blocking(copy)]
            if not copies:
                continue
            yield self.finding(
                context.location(copies[0].site),
                f"`{context.excerpt(copies[0].site)}` waits for the copy, although the loader on line "
                f"{context.location(loader.call.site).line} pins its batches.",
                related=(
                    context.related(loader.call.site, "pin_memory=True"),
                    *(context.related(copy.site, "this copy waits as well") for copy in copies[1:]),
                ),
                evidence={"pin_memory": True, "copies": len(copies)},
                fix=Fix("Pass non_blocking=True to the copies."),
                identity=f"{loader.function.qualified_name}:copy",
            )

    valid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=True)
for images, labels in loader:
    images = images.cuda(non_blocking=True)
    loss = criterion(model(images), labels.to("cuda", non_blocking=True))
    loss.backward()
    optimizer.step()
""",
            note="asynchronous",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=args.pin)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="pinned or not, depending on an option",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=True)  # for cuda
for images, labels in loader:
    loss = criterion(model(images.to(torch.float32)), labels.to("cpu"))
    loss.backward()
    optimizer.step()
""",
            note="a cast and a copy to the CPU",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=True)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="two blocking copies",
        ),
        Example(
            source="""\
import torch

def main(device=torch.device("cuda")):
    train_loader = torch.utils.data.DataLoader(dataset, 64, pin_memory=True, num_workers=4)
    for epoch in range(90):
        for i, (images, target) in enumerate(train_loader):
            images = images.to(device, non_blocking=True)
            target = target.to(device)
            loss = criterion(model(images), target)
            loss.backward()
            optimizer.step()
""",
            note="one of two",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, pin_memory=True)
for batch in loader:
    image = batch["image"]
    loss = model(image.cuda()).mean()
    loss.backward()
    optimizer.step()
""",
            note="an item of the batch",
        ),
    )


class BatchMultipleOf8(SourceRule):
    """A training batch size that is not a multiple of 8 under mixed precision.

    What it does
    Finds `DataLoader(..., batch_size=n)` for training in a file that uses autocast, a loss scaler or 16-bit
    weights, where n is known, larger than 8 and not a multiple of 8.

    Why it costs
    In linear layers the batch is a dimension of the matrix products of forward, activation gradient and
    weight gradient. 16-bit Tensor Core kernels are most efficient when every dimension is a multiple of 8
    (of 64 on A100), and need it before cuBLAS 11.

    Example
        loader = DataLoader(dataset, batch_size=100, shuffle=True)

    Use instead
        loader = DataLoader(dataset, batch_size=96, shuffle=True)   # or 104, or 128

    When it does not apply
    Language models, where batch times sequence length counts; evaluation loaders; batch samplers; batches of
    8 and fewer, which memory dictates; batch sizes that are known only at run time.

    References
    NVIDIA, Train With Mixed Precision, "Satisfying Tensor Core Shape Constraints".
    NVIDIA, Linear/Fully-Connected Layers User's Guide, "Batch Size".
    """

    code = "RUN009"
    name = "batch-multiple-of-8"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA, Train With Mixed Precision: Satisfying Tensor Core Shape Constraints",
        "NVIDIA, Linear/Fully-Connected Layers User's Guide: Batch Size",
        "NVIDIA, Convolutional Layers User's Guide: Batch Size, Height And Width",
    )
    triggers = ("batch_size", "DataLoader")
    requires = ("DataLoader",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not _mixed_precision(context) or program.words & _TOKENS:
            return
        if not (program.trainings or "backward" in context.tables.identifiers):
            return
        for loader in program.calls(*_LOADERS):
            if _evaluates(context, loader) or not _trains(context, loader):
                continue
            if keyword(loader.call, "batch_sampler") is not None or has_star(loader.call):
                continue
            given = keyword(loader.call, "batch_size", 1)
            if given is None:
                continue
            possible = program.resolver.evaluate(loader.function, given)
            if not possible.values and isinstance(given, Name) and "." in given.dotted:
                # `args` often comes as a parameter; the parser is in the file all the same.
                possible = program.resolver.argparse_default(given.dotted.rpartition(".")[2])
            sizes = possible.values
            if len(sizes) != 1 or not isinstance(sizes[0], int) or isinstance(sizes[0], bool):
                continue
            size = sizes[0]
            if size <= 8 or size % 8 == 0:
                continue
            default = "" if possible.certain else " by default"
            below, above = size - size % 8, size - size % 8 + 8
            yield self.finding(
                context.location(loader.call.site),
                f"This loader's batch size is {size}{default}, not a multiple of 8, under mixed precision.",
                evidence={"batch_size": size, "multiple": 8, "remainder": size % 8},
                fix=Fix(f"Use {below} or {above}; multiples of 64 are best on A100 and newer."),
                identity=f"{loader.function.qualified_name}:{size}",
            )

    valid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=128, shuffle=True)
for images, labels in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="a multiple of 8",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

val_loader = DataLoader(dataset, batch_size=100)
train_loader = DataLoader(dataset, batch_sampler=Buckets(dataset, 100))
for images, labels in train_loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="an evaluation loader and a batch sampler",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

tokenizer = build_tokenizer()
loader = DataLoader(dataset, batch_size=12, shuffle=True)
for input_ids in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids).loss
    loss.backward()
    optimizer.step()
""",
            note="a language model: 12 times the sequence length counts",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=100, shuffle=True)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="no 16-bit work",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=total // world_size, shuffle=True)
for images, labels in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="known only at run time",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=100, shuffle=True)
for images, labels in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="100 is 12 times 8 and 4",
        ),
        Example(
            source="""\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=50)
args = parser.parse_args()
scaler = torch.amp.GradScaler("cuda")
train_loader = DataLoader(dataset, batch_size=args.batch_size)
for images, labels in train_loader:
    with torch.autocast("cuda"):
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="an option's default",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

BATCH_SIZE = 4 * 5
train_loader = DataLoader(dataset, BATCH_SIZE, shuffle=True)
for images, labels in train_loader:
    with torch.cuda.amp.autocast():
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
            note="a constant",
        ),
    )


class DropLast(SourceRule):
    """A smaller last batch where every shape is prepared once.

    What it does
    Finds shuffled training loaders without `drop_last` in files that capture CUDA graphs or compile the
    model for static shapes (`torch.compile(mode="reduce-overhead")` or "max-autotune").

    Why it costs
    The last batch of an epoch is usually smaller. It does not fit a captured graph, makes torch.compile
    compile again, and its size is rarely a multiple of 8.

    Example
        loader = DataLoader(dataset, batch_size=64, shuffle=True)

    Use instead
        loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)

    When it does not apply
    Evaluation, where every sample counts; batch samplers; options through `**kwargs`.

    References
    NVIDIA, Matrix Multiplication Background, "Requirements for Tensor Cores".
    PyTorch, Performance Tuning Guide, "Use CUDA Graphs".
    """

    code = "RUN010"
    name = "drop-last"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA, Matrix Multiplication Background User's Guide",
        "PyTorch recipes, Performance Tuning Guide: Use CUDA Graphs",
    )
    triggers = ("reduce-overhead", "max-autotune", "CUDAGraph", "make_graphed_callables")
    requires = ("DataLoader", ".backward(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings:
            return
        static = [
            called.call
            for called in program.calls(
                "torch.compile", "torch.cuda.CUDAGraph", "torch.cuda.make_graphed_callables"
            )
            if called.qualified != "torch.compile"
            or keyword(called.call, "mode") in (Literal("reduce-overhead"), Literal("max-autotune"))
        ]
        if not static:
            return
        for loader in program.calls(*_LOADERS):
            if has_star(loader.call) or _evaluates(context, loader):
                continue
            given = {argument.keyword for argument in loader.call.arguments}
            if given & {"drop_last", "batch_sampler", "sampler"} or keyword(
                loader.call, "shuffle", 2
            ) != Literal(True):
                continue
            yield self.finding(
                context.location(loader.call.site),
                "This loader keeps the smaller last batch, which does not fit the shapes prepared on line "
                f"{context.location(static[0].site).line}.",
                related=(context.related(static[0].site, "shapes are fixed here"),),
                evidence={"drop_last": False},
                fix=Fix("Pass drop_last=True."),
                identity=f"{loader.function.qualified_name}:drop_last",
            )

    valid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

model = torch.compile(model, mode="reduce-overhead")
loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="dropped",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

model = torch.compile(model)  # not max-autotune
loader = DataLoader(dataset, batch_size=64, shuffle=True)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="no fixed shapes",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

model = torch.compile(model, mode="max-autotune")
test_loader = DataLoader(dataset, batch_size=64, shuffle=True)
loader = DataLoader(dataset, 64, True, **options)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="evaluation, and options that may bring it",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

model = torch.compile(model, mode="reduce-overhead")
loader = DataLoader(dataset, batch_size=64, shuffle=True)
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="CUDA graphs per shape",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

train_loader = DataLoader(dataset, 64, True, num_workers=4)
model = torch.compile(model, mode="max-autotune")
for images, labels in train_loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="tuned per shape",
        ),
        Example(
            source="""\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = torch.cuda.make_graphed_callables(model, (sample,))
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""",
            note="a captured graph",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    NumWorkersZero,
    PinMemoryMissing,
    BlockingCopy,
    BatchMultipleOf8,
    DropLast,
)


def _targets(loader: Called) -> list[str]:
    """Names that the loader is assigned to."""
    found: list[str] = []
    for event in loader.function.events:
        value = getattr(event, "value", None)
        if isinstance(value, Call) and value.site == loader.call.site:
            found.extend(getattr(event, "targets", ()))
    return found


def _parts(name: str) -> set[str]:
    return {part for part in name.lower().replace(".", "_").split("_") if part}


def _evaluates(context: SourceContext, loader: Called) -> bool:
    """By its name, its dataset's or its function's: not for training."""
    named = [*_targets(loader), loader.function.name]
    dataset = keyword(loader.call, "dataset", 0)
    if dataset is not None:
        named.append(dotted(dataset) or render(dataset))
        if isinstance(dataset, Call) and keyword(dataset, "train") == Literal(False):
            return True
        for scope, item in (
            context.resolver.definitions(loader.function, dataset.dotted)[0]
            if isinstance(dataset, Name)
            else ()
        ):
            del scope
            if isinstance(item.value, Call) and keyword(item.value, "train") == Literal(False):
                return True
    found = {part for name in named for part in _parts(name)}
    compact = " ".join(named).lower()
    if found & {"train", "training", "trainloader", "trainset"}:
        return False
    return bool(found & _EVALUATION) or any(
        word in compact for word in ("testloader", "valloader", "testset", "valset")
    )


def _trains(context: SourceContext, loader: Called) -> bool:
    """A loader for training: shuffled, named so, or read by a loop that goes backward."""
    shuffle = keyword(loader.call, "shuffle", 2)
    if (shuffle is not None and shuffle != Literal(False)) or keyword(loader.call, "sampler") is not None:
        return True
    if any("train" in name.lower() for name in _targets(loader)):
        return True
    return any(True for _ in _training_loops(context, loader))


def _training_loops(context: SourceContext, loader: Called) -> Iterator[tuple[Function, int]]:
    """Loops over the loader that hold a backward call."""
    program = context.program
    names = set(_targets(loader))
    if not names:
        return
    for training in program.trainings:
        function = training.function
        same = loader.function.index in (function.index, 0)
        for loop, _, header in program.loops_of(function):
            iterated = getattr(header.value, "parts", (None,))[0]
            if iterated is None or loop not in function.enclosing(training.backward.block):
                continue
            read = {dotted(part) for part in _all_names(iterated)}
            if read & {name for name in names if same or name.startswith("self.")}:
                yield function, loop


def _all_names(expression: Expression) -> Iterator[Expression]:
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part
        elif isinstance(part, Call):
            pending.extend(argument.value for argument in part.arguments)


def _copies_in_training(context: SourceContext, loader: Called) -> list[Call]:
    found = []
    for function, loop in _training_loops(context, loader):
        names = context.program.loop_names(function, loop)
        for event in function.events:
            if not isinstance(event, CallEvent) or loop not in function.enclosing(event.block):
                continue
            receiver, method = method_of(event.call)
            if receiver is None or root_name(receiver) not in names:
                continue
            if method == "cuda" or (method == "to" and _to_gpu(context, function, event.call)):
                found.append(event.call)
    return found


def _copy_in_training(context: SourceContext, loader: Called) -> Call | None:
    copies = _copies_in_training(context, loader)
    return copies[0] if copies else None


def _to_gpu(context: SourceContext, function: Function, call: Call) -> bool:
    """`.to(device)` for a device that is or may be a GPU."""
    given = keyword(call, "device", 0)
    if given is None or (isinstance(given, Literal) and not isinstance(given.value, str | int)):
        return False
    possible = context.resolver.evaluate(function, given)
    devices = [value.split(":", 1)[0] for value in possible.values if isinstance(value, str)]
    if devices:
        return "cuda" in devices
    text = render(given).lower()
    return "device" in text or "gpu" in text or text.endswith("rank") or isinstance(given, Literal)


def _non_blocking(call: Call) -> bool:
    given = keyword(call, "non_blocking")
    if given is None and method_of(call)[1] == "cuda" and len(positional(call)) > 1:
        return True
    if given is None and method_of(call)[1] == "to" and len(positional(call)) > 1:
        return True
    return given is not None or has_star(call) or keyword(call, "async") is not None


def _made_by(context: SourceContext, loader: Called) -> list[tuple[Function, Call]]:
    """The calls that make the loader's dataset."""
    dataset = keyword(loader.call, "dataset", 0)
    if isinstance(dataset, Call):
        return [(loader.function, dataset)]
    if isinstance(dataset, Name):
        return [
            (scope, item.value)
            for scope, item in context.resolver.definitions(loader.function, dataset.dotted)[0]
            if isinstance(item.value, Call)
        ]
    return []


def _in_memory(context: SourceContext, loader: Called) -> bool:
    for scope, call in _made_by(context, loader):
        last = method_of(call)[1]
        if last in ("TensorDataset", "IterableDataset") or "cuda" in render(call):
            return True
        for maker in context.resolver.local_functions(scope, call.function):
            for member in context.program.members(maker) if maker.kind == "class" else ():
                for event in member.events:
                    if isinstance(event, CallEvent) and method_of(event.call)[1] == "cuda":
                        return True
    return keyword(loader.call, "generator") is not None and "cuda" in render(loader.call)


def _reads_files(context: SourceContext, loader: Called) -> str:
    for scope, call in _made_by(context, loader):
        for name in context.resolver.called(scope, call):
            if name.startswith("torchvision.datasets.") and name.rpartition(".")[2] in _FILE_DATASETS:
                return name.rpartition(".")[2]
        for maker in context.resolver.local_functions(scope, call.function):
            if maker.kind != "class" or any("Iterable" in render(base) for base in maker.bases):
                continue
            for member in context.program.members(maker):
                if member.name == "__getitem__" and any(
                    isinstance(event, CallEvent) and method_of(event.call)[1] in _OPENS
                    for event in member.events
                ):
                    return maker.name
    return ""


def _mixed_precision(context: SourceContext) -> bool:
    """Some autocast region of the file can be on, or losses are scaled."""
    amp = context.amp
    if amp.scaler_name:
        return True
    return any(
        region.autocast.enabled is not False and region.autocast.dtype in ("float16", "bfloat16", None)
        for function in context.tables.functions
        for region in amp.regions(function)
    )
