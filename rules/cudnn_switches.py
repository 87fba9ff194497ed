"""Rules on cuDNN's switches: benchmark, deterministic, enabled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.program import is_test_path, words

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
    from tclint.source.program import Program, Switch

_BENCHMARK = "torch.backends.cudnn.benchmark"
_DETERMINISTIC = (
    "torch.backends.cudnn.deterministic",
    "torch.use_deterministic_algorithms",
    "torch.set_deterministic",
)
_FIXED_SIZE = (
    "Resize",
    "RandomResizedCrop",
    "CenterCrop",
    "RandomCrop",
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "STL10",
    "SVHN",
    "image_size",
    "img_size",
    "imsize",
    "crop_size",
    "patch_size",
    "load_size",
)
_VARIABLE_SIZE = words(
    "detection bbox bboxes boxes coco speech audio mel wav waveform asr tts vocoder pad_sequence collate "
    "captions ocr multiscale lengths anchor anchors rcnn yolo ragged"
)
_ENTRANCES = words("main main_worker __init__ run train setup worker")
"""Functions that run although nothing in their file calls them."""
_SEEDING = ("seed", "determin", "reprod")


class CudnnBenchmarkMissing(SourceRule):
    """Convolutions on inputs of one size trained without cudnn.benchmark.

    What it does
    Finds training loops on CUDA with convolutional layers and inputs of a fixed size in programs that never
    touch `torch.backends.cudnn.benchmark`.

    Why it costs
    cuDNN has several algorithms per convolution, and its heuristic does not always pick the fastest. With
    `benchmark` it times them once per shape and keeps the best; the first steps take longer.

    Example
        model = torchvision.models.resnet50().cuda()
        for images, labels in loader:
            ...

    Use instead
        torch.backends.cudnn.benchmark = True

    When it does not apply
    Inputs whose sizes change (detection, speech), which would be timed again and again; runs that must be
    reproducible; programs that set it in another file, or that use a training framework.

    References
    PyTorch, Performance Tuning Guide, "Enable cuDNN auto-tuner".
    NVIDIA, Convolutional Layers User's Guide, "Autotuning And cuDNN Heuristics".
    """

    code = "RUN001"
    name = "cudnn-benchmark-missing"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch recipes, Performance Tuning Guide: Enable cuDNN auto-tuner",
        "NVIDIA, Convolutional Layers User's Guide: Autotuning And cuDNN Heuristics",
    )
    triggers = (".backward(",)
    requires = ("cuda", ".step(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if identifiers & {"benchmark", "deterministic", "use_deterministic_algorithms"}:
            return
        if is_test_path(context.path) or context.amp.framework or not program.trainings:
            return
        if not program.on_cuda or program.words & _VARIABLE_SIZE:
            return
        sized = next((word for word in _FIXED_SIZE if word in identifiers), None)
        layers = _convolutions(context)
        if sized is None or not layers:
            return
        if context.neighbours.mention(("cudnn", "use_deterministic_algorithms")):
            return
        training = program.trainings[0]
        yield self.finding(
            context.location(training.backward.call.site),
            f"This loop trains convolutions ({layers}) on inputs of one size (`{sized}`), and nothing sets "
            "torch.backends.cudnn.benchmark.",
            related=(context.related(training.step.call.site, "the optimizer steps here: this file trains"),),
            evidence={
                "function": training.function.qualified_name,
                "convolutions": layers,
                "fixed_size": sized,
            },
            fix=Fix("Set `torch.backends.cudnn.benchmark = True` once before training."),
            identity=training.function.qualified_name,
        )

    valid = (
        Example(
            source="""\
import torch
import torchvision
from torchvision.transforms import RandomResizedCrop

torch.backends.cudnn.benchmark = True
model = torchvision.models.resnet50().cuda()
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="set",
        ),
        Example(
            source="""\
import torch
from torch import nn
from torchvision.transforms import Resize

model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="no convolution",
        ),
        Example(
            source="""\
import torch
import torchvision
from torchvision.transforms import Resize

model = torchvision.models.detection.fasterrcnn_resnet50_fpn().cuda()
for images, boxes in loader:
    loss = sum(model(images, boxes).values())
    loss.backward()
    optimizer.step()
""",
            note="detection: sizes change",
        ),
        Example(
            source="""\
import torch
import torchvision
from torchvision.transforms import Resize

torch.use_deterministic_algorithms(True)
model = torchvision.models.resnet50().cuda()
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="deterministic on purpose",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch
import torchvision
from torchvision import transforms

transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
model = torchvision.models.resnet50().cuda()
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
""",
            note="a convolutional network on crops of one size",
        ),
        Example(
            source="""\
import torch
from torch import nn
from torchvision.datasets import CIFAR10

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3)
        self.head = nn.Linear(64, 10)

def train(model, loader, optimizer, device="cuda"):
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
""",
            note="CIFAR-10 images are 32 by 32",
        ),
        Example(
            source="""\
import torch
import torch.nn as nn
from torchvision import transforms

image_size = 64
transform = transforms.Compose([transforms.Resize(image_size), transforms.CenterCrop(image_size)])
netD = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 4)).to("cuda")
for data in dataloader:
    errD = criterion(netD(data.to("cuda")), label)
    errD.backward()
    optimizerD.step()
""",
            note="a GAN",
        ),
    )


class CudnnBenchmarkOff(SourceRule):
    """cudnn.benchmark switched off without a reason that shows.

    What it does
    Finds `torch.backends.cudnn.benchmark = False` that always runs, in a file without anything about
    determinism.

    Why it costs
    cuDNN then picks convolution algorithms by a heuristic. Off is the default, so the line only matters as a
    decision, and it stands in the way of the auto-tuner.

    Example
        torch.backends.cudnn.benchmark = False

    Use instead
        torch.backends.cudnn.benchmark = True

    When it does not apply
    Next to `deterministic = True` or in a seeding helper, where it is part of a reproducible run; inputs of
    changing sizes; switches under a condition. The rule is silent there.

    References
    PyTorch, Performance Tuning Guide, "Enable cuDNN auto-tuner".
    """

    code = "RUN002"
    name = "cudnn-benchmark-off"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = ("PyTorch recipes, Performance Tuning Guide: Enable cuDNN auto-tuner",)
    triggers = ("benchmark",)
    requires = ("cudnn",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or program.speaks_of("deterministic"):
            return
        switches = program.switches_of(_BENCHMARK)
        if len(switches) != 1 or program.words & _VARIABLE_SIZE or program.switches_of(_CUDNN_ENABLED):
            return
        switch = switches[0]
        if not switch.value.certain or switch.value.values[0] is not False:
            return
        if not program.unconditional(switch.function, switch.block) or _in_any_with(switch):
            return
        if _about(program, switch, (*_SEEDING, "disable", "dynamic", "variable")) or _seeds(program, switch):
            return
        yield self.finding(
            context.location(switch.site),
            "`cudnn.benchmark = False` keeps cuDNN from choosing the fastest convolution algorithms, and "
            "nothing here asks for determinism.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Set it to True where inputs keep their size; where runs must be reproducible, set "
                "`torch.backends.cudnn.deterministic = True` as well."
            ),
            identity=f"{switch.function.qualified_name}:{switch.name}",
        )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
""",
            note="a reproducible run",
        ),
        Example(
            source="""\
import torch

def set_seed(seed):
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
""",
            note="a seeding helper",
        ),
        Example(
            source="""\
import torch

if not args.autotune:
    torch.backends.cudnn.benchmark = False
""",
            note="a flag",
        ),
        Example(
            source="""\
import torch.backends.cudnn as cudnn

cudnn.benchmark = True
""",
            note="on",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.benchmark = False
model = build().cuda()
""",
            note="no determinism anywhere",
        ),
        Example(
            source="""\
import torch.backends.cudnn as cudnn

def main():
    cudnn.benchmark = False
    train()
""",
            note="through an alias",
        ),
        Example(
            source="""\
from torch.backends import cudnn

class Trainer:
    def __init__(self, model):
        cudnn.benchmark = False
        self.model = model
""",
            note="in a constructor",
        ),
    )


class DeterministicWithBenchmark(SourceRule):
    """Determinism and cudnn.benchmark both switched on.

    What it does
    Finds `cudnn.benchmark = True` in a program that also sets `cudnn.deterministic = True` or
    `torch.use_deterministic_algorithms(True)`.

    Why it costs
    The two want opposite things. The auto-tuner may choose another algorithm in every run, because it times
    them, so that results differ between runs although each algorithm is deterministic; and it can only
    choose among the deterministic ones.

    Example
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = True

    Use instead
        torch.backends.cudnn.benchmark = True        # speed

    or, for reproducible runs:

        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False

    When it does not apply
    Branches of which only one runs; a later line that switches one of them off again.

    References
    PyTorch, Reproducibility, "CUDA convolution benchmarking".
    PyTorch, Performance Tuning Guide, "Enable cuDNN auto-tuner".
    """

    code = "RUN003"
    name = "deterministic-with-benchmark"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch docs, Reproducibility: CUDA convolution benchmarking",
        "PyTorch recipes, Performance Tuning Guide: Enable cuDNN auto-tuner",
    )
    triggers = ("benchmark",)
    requires = ("deterministic",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path):
            return
        for switch in _lasting(program.switches_of(_BENCHMARK)):
            for other in _lasting(program.switches_of(*_DETERMINISTIC)):
                if not _run_together(program, switch, other):
                    continue
                yield self.finding(
                    context.location(switch.site),
                    f"`{context.excerpt(switch.site)}` lets cuDNN choose algorithms by timing, against "
                    f"`{context.excerpt(other.site)}` on line {context.location(other.site).line}.",
                    related=(context.related(other.site, "determinism is asked for here"),),
                    evidence={"benchmark": True, "deterministic": other.name},
                    fix=Fix(
                        "Keep one of them: benchmark = True for speed, or deterministic with benchmark = "
                        "False for reproducible runs."
                    ),
                    identity=f"{switch.function.qualified_name}:{switch.name}",
                )
                break

    valid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
""",
            note="reproducible",
        ),
        Example(
            source="""\
import torch

if args.deterministic:
    torch.backends.cudnn.deterministic = True
else:
    torch.backends.cudnn.benchmark = True
""",
            note="only one of them runs",
        ),
        Example(
            source="""\
import torch

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = False
""",
            note="speed",
        ),
        Example(
            source="""\
import torch

torch.backends.cudnn.benchmark = not args.deterministic
torch.backends.cudnn.deterministic = args.deterministic
""",
            note="one excludes the other",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = True
""",
            note="both",
        ),
        Example(
            source="""\
import torch
import torch.backends.cudnn as cudnn

def main():
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark = True
    train()
""",
            note="the newer call",
        ),
        Example(
            source="""\
import torch
from torch.backends import cudnn

def set_seed(seed):
    torch.manual_seed(seed)
    cudnn.deterministic = True

def main(args):
    if args.seed is not None:
        set_seed(args.seed)
    cudnn.benchmark = True
    train()
""",
            note="in two functions; whenever a seed is given",
        ),
    )


_CUDNN_ENABLED = "torch.backends.cudnn.enabled"


class CudnnDisabled(SourceRule):
    """cuDNN switched off.

    What it does
    Finds `torch.backends.cudnn.enabled = False` that always runs.

    Why it costs
    Convolutions and recurrent layers fall back to PyTorch's own kernels, which unfold inputs into matrices
    one image at a time and use Tensor Cores little or not at all.

    Example
        torch.backends.cudnn.enabled = False

    Use instead
        torch.backends.cudnn.enabled = True   # the default: remove the line

    When it does not apply
    Debugging behind a flag, tests, and a switch that is set back.

    References
    PyTorch, torch.backends.cudnn.
    """

    code = "RUN004"
    name = "cudnn-disabled"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch docs, torch.backends: torch.backends.cudnn.enabled",)
    triggers = ("cudnn",)
    requires = ("enabled",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        switches = program.switches_of(_CUDNN_ENABLED)
        if is_test_path(context.path) or len(switches) != 1:
            return
        switch = switches[0]
        if not switch.value.certain or switch.value.values[0] is not False:
            return
        if not program.unconditional(switch.function, switch.block) or _in_any_with(switch):
            return
        if _about(program, switch, (*_SEEDING, "debug", "test", "restore", "disable")):
            return
        yield self.finding(
            context.location(switch.site),
            "`cudnn.enabled = False` runs convolutions and recurrent layers without cuDNN, mostly off Tensor "
            "Cores.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Remove the line; for reproducible runs use `torch.backends.cudnn.deterministic = True`."
            ),
            identity=f"{switch.function.qualified_name}:{switch.name}",
        )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.enabled = True
""",
            note="the default",
        ),
        Example(
            source="""\
import torch

if args.debug:
    torch.backends.cudnn.enabled = False
""",
            note="a debugging flag",
        ),
        Example(
            source="""\
import torch

def measure(model, x):
    torch.backends.cudnn.enabled = False
    slow = time(model, x)
    torch.backends.cudnn.enabled = True
    return slow / time(model, x)
""",
            note="set back",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.enabled = False
""",
            note="always off",
        ),
        Example(
            source="""\
import torch.backends.cudnn as cudnn

def main():
    cudnn.enabled = False
    train()
""",
            note="through an alias",
        ),
        Example(
            source="""\
from torch.backends import cudnn

if __name__ == "__main__":
    cudnn.enabled = False
    train()
""",
            note="in a script's main part",
        ),
    )


RULES: tuple[type[Rule], ...] = (
    CudnnBenchmarkMissing,
    CudnnBenchmarkOff,
    DeterministicWithBenchmark,
    CudnnDisabled,
)


def _convolutions(context: SourceContext) -> str:
    """A convolutional layer or network of the program, or ''."""
    program = context.program
    for layer in program.all_layers():
        last = layer.qualified.rpartition(".")[2]
        if last in ("Conv2d", "ConvTranspose2d", "Conv3d", "ConvTranspose3d"):
            return last
    for function in context.tables.functions:
        for item in function.imports:
            if item.qualified.startswith("torchvision.models"):
                return "torchvision.models"
    if any(name in context.tables.identifiers for name in ("torchvision",)):
        for _, event, _ in program.methods(
            "resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "densenet121"
        ):
            return str(getattr(event.call.function, "dotted", "torchvision.models"))
    neighbours = context.neighbours
    return "Conv2d" if neighbours.imported() and neighbours.count(("nn.Conv2d(",)) >= 2 else ""


def _in_any_with(switch: Switch) -> bool:
    return any(
        switch.function.blocks[index].kind == "with" for index in switch.function.enclosing(switch.block)
    )


def _about(program: Program, switch: Switch, parts: tuple[str, ...]) -> bool:
    """A function or class around the switch has one of these in its name."""
    return any(
        part in function.name.lower()
        for function in program.outer_functions(switch.function)
        for part in parts
    )


def _seeds(program: Program, switch: Switch) -> bool:
    return any(
        function.index == switch.function.index
        for function, _, _ in program.methods(
            "manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed"
        )
    )


def _lasting(switches: list[Switch]) -> list[Switch]:
    """Those that switch on and that no later line of their function switches off again."""
    found = []
    for switch in switches:
        if not switch.value.certain or switch.value.values[0] is not True:
            continue
        later = (
            other
            for other in switches
            if other.function.index == switch.function.index and other.site > switch.site
        )
        if not any(other.name == switch.name and other.value.values != (True,) for other in later):
            found.append(switch)
    return found


def _run_together(program: Program, first: Switch, second: Switch) -> bool:
    if first.function.index == second.function.index:
        return not program.apart(first.function, first.block, second.block) and (
            program.unconditional(first.function, first.block)
            or program.unconditional(second.function, second.block)
            or set(first.function.enclosing(first.block)) & set(first.function.enclosing(second.block)) - {0}
            != set()
        )
    # In different functions: once the benchmark is always on, it meets whatever asks for determinism.
    if not program.unconditional(first.function, first.block):
        return False
    return all(
        not switch.function.index
        or bool(program.callers.get(switch.function.index))
        or switch.function.name in _ENTRANCES
        for switch in (first, second)
    )
