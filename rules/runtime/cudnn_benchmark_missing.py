"""A rule on convolutional training that leaves cudnn.benchmark off."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword
from tclint.source.syntax.tables import Literal, dotted
from tclint.source.training.cudnn_switches import VARIABLE_SIZE
from tclint.source.training.trained_layers import convolutions

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
_FIXED_ELSEWHERE = (
    "RandomResizedCrop",
    "RandomCrop",
    "CenterCrop",
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "STL10",
    "SVHN",
)
"""Calls that give images one size, looked for in the files that the training script imports."""
_RESIZES = ("Resize((", "Resize(height=", "Resize(width=")
"""There as well: to a height and a width, where one number keeps the aspect."""
_SWITCHES = ("cudnn.benchmark", "cudnn.deterministic", "cudnn.flags", "use_deterministic_algorithms")
_LEAVES_CUDNN_ALONE = ("Accelerate", "DeepSpeed")
"""Frameworks that never set cudnn.benchmark."""
_VARYING = ("bbox", "boxes", "pad_sequence", "collate_fn", "waveform", "spectrogram", "multiscale")
"""Words of files whose inputs change their size."""


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
    reproducible; programs that set it in another file, or that use a training framework that may set it.
    """

    code = "RUN001"
    name = "cudnn-benchmark-missing"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Enable cuDNN auto-tuner: what cudnn.benchmark does",
        "NVIDIA Convolutional Layers User's Guide, Autotuning And cuDNN Heuristics: heuristics do not "
        "always find the fastest algorithm",
    )
    triggers = (".backward(",)
    requires = (".step(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if identifiers & {"benchmark", "deterministic", "use_deterministic_algorithms"}:
            return
        if is_test_path(context.path) or not program.trainings:
            return
        if context.amp.framework not in (None, *_LEAVES_CUDNN_ALONE):
            return
        if not context.on_gpu or program.words & VARIABLE_SIZE:
            return
        sized = next((word for word in _FIXED_SIZE if word in identifiers), None) or _sized_elsewhere(context)
        if sized == "Resize" and _keeps_aspect(context):
            return
        layers = convolutions(context)
        if sized is None or not layers:
            return
        if context.neighbours.mention(_SWITCHES):
            return
        training = program.trainings[0]
        yield self.finding(
            context.location(training.backward.call.node_id),
            f"This loop trains convolutions ({layers}) on inputs of one size (`{sized}`), and nothing sets "
            "torch.backends.cudnn.benchmark.",
            related=(
                context.related(training.step.call.node_id, "the optimizer steps here: this file trains"),
            ),
            evidence={
                "function": training.function.qualified_name,
                "convolutions": layers,
                "fixed_size": sized,
            },
            fix=Fix("Set `torch.backends.cudnn.benchmark = True` once before training."),
            identity=training.function.qualified_name,
        )


def _sized_elsewhere(context: SourceContext) -> str | None:
    """A word for inputs of one size in a file that this one imports, where none there says that they vary."""
    neighbours = context.neighbours
    if not neighbours.imported() or neighbours.mention(_VARYING, imported_only=True):
        return None
    found = next((word for word in _FIXED_ELSEWHERE if neighbours.count((f"{word}(",))), None)
    return found or ("Resize" if neighbours.count(_RESIZES) else None)


def _keeps_aspect(context: SourceContext) -> bool:
    """Images are resized to the length of one side, and batches of one need no common size."""
    calls = [(function, event.call) for function, event in context.tables.calls]
    resizes = [call for _, call in calls if dotted(call.function).rpartition(".")[2] == "Resize"]
    one_side = resizes and all(
        len(call.arguments) == 1 and isinstance(call.arguments[0].value, Literal) for call in resizes
    )
    return bool(one_side) and any(
        keyword(call, "batch_size", 1) in (Literal(1), None)
        for function, call in calls
        if "torch.utils.data.DataLoader" in context.resolver.called(function, call)
    )
