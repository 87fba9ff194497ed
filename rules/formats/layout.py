"""Memory format."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.change import Change
from tclint.analysis.compile_fixes import marked_if_handled
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import gain_phrase, indices_of, layers_take, rounded, sentence, share_percent
from tclint.analysis.op_dims import convolutions
from tclint.analysis.what_if.layouts import breaks_in
from tclint.analysis.what_if.scenarios import channels_last
from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example
from tclint.cost.transforms.layout import apply_layout
from tclint.graph.ops import Op

_RANKS = {4: "channels_last", 5: "channels_last_3d"}


class ChannelsLastMissing(GraphRule):
    """A convolutional model runs in NCHW, though Tensor Core convolutions want NHWC.

    What it does
    Prices the whole step with model and images in channels_last against the step as traced, and reports
    it once for the model where 2-D or 3-D convolutions run in the default format and the change pays.

    Why it costs
    cuDNN's Tensor Core kernels read channels innermost. In NCHW each convolution either runs a slower
    kernel or transposes its tensors before and after.

    Example
        model = build_model().cuda()
        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())

    Use instead
        model = build_model().cuda().to(memory_format=torch.channels_last)
        for images, labels in loader:
            images = images.cuda().to(memory_format=torch.channels_last)
            loss = criterion(model(images), labels.cuda())

    When it does not apply
    fp32 without TF32, which has no Tensor Cores to feed. Models without 2-D or 3-D convolutions. Models
    whose operators lack channels_last kernels (they convert back and forth): the predicted gain decides,
    and NHWC does lose on some. The training script may set the format already: trace the model as the
    script runs it, or suppress the rule where it is built.

    References
    PyTorch, Channels Last Memory Format tutorial: 22 % for ResNet-50, 8 to 35 % for a list of models.
    NVIDIA, Convolutional Layers User's Guide, tensor layouts.
    """

    code = "FMT001"
    name = "channels-last-missing"
    since = "0.1.0"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch tutorial Channels Last Memory Format in PyTorch",
        "NVIDIA Convolutional Layers User's Guide, tensor layouts",
    )
    invalid = (
        Example(
            """
from torch import empty, nn


def block(channels):
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU())


def build_model():
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), *[block(64) for _ in range(4)])


def example_inputs():
    return empty(64, 3, 224, 224)
""",
            "a plain convolutional network",
        ),
        Example(
            """
from torch import empty, nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x):
        return (x + self.second(self.norm(self.first(x)).relu())).relu()


def build_model():
    return nn.Sequential(*[Residual(128) for _ in range(3)])


def example_inputs():
    return empty(64, 128, 56, 56)
""",
            "residual blocks",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU())


def example_inputs():
    return empty(32, 64, 112, 112)
""",
            "in inference",
            {"mode": "infer"},
        ),
    )
    valid = (
        Example(
            """
from torch import channels_last, empty, nn


def build_model():
    layers = [nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(4)]
    return nn.Sequential(*layers).to(memory_format=channels_last)


def example_inputs():
    return empty(64, 64, 56, 56).to(memory_format=channels_last)
""",
            "done",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))


def example_inputs():
    return empty(4096, 1024)
""",
            "nothing to convolve",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1) for _ in range(4)])


def example_inputs():
    return empty(64, 64, 56, 56)
""",
            "fp32 uses no Tensor Cores",
            {"precision": "fp32"},
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 64, 3, padding=1))


def example_inputs():
    return empty(64, 64, 4096)
""",
            "channels_last does not exist for 1-D convolutions",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from marked_if_handled(context, self._check, "lays out convolutions in NHWC")

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        if (
            context.settings.precision in ("fp32", "fp64", "tf32-matmul")
            or context.settings.layout == "channels_last"
        ):
            return
        in_order = [op for op in convolutions(context.graph) if _runs_channels_first(op)]
        if not in_order:
            return
        concerned = indices_of(in_order)
        effect = context.effect(concerned, change=channels_last)
        shares = share_percent(context, concerned)
        broken = breaks_in(apply_layout(context.graph, "channels_last"))
        names = list(dict.fromkeys(op.name for op in broken))
        breaks = f", although {_listed(names)} would turn images back to NCHW" if names else ""
        formats = sorted({_RANKS[len(op.inputs[0].shape)] for op in in_order})
        yield self.finding(
            context.root_location(),
            f"{sentence(layers_take(in_order, 'convolution', shares))} in the default memory format (NCHW); "
            f"{' and '.join(formats)} {gain_phrase(effect)}{breaks}.",
            effect=effect,
            evidence={
                "convolutions": len(in_order),
                "share_percent": rounded(shares),
                "breaks_the_format": names,
            },
            fix=Fix(
                f"model = model.to(memory_format=torch.{formats[0]}) after building, and assign every batch: "
                f"images = images.to(memory_format=torch.{formats[0]})."
            ),
            identity="layout",
            change=Change(scenario=channels_last),
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _runs_channels_first(op: Op) -> bool:
    source, weight = op.inputs[0], op.input("weight")
    if len(source.shape) not in _RANKS or weight is None:
        return False
    # torch picks NHWC kernels when the images or the weight are channels_last.
    return not any(spec.memory_format.startswith("channels_last") for spec in (source, weight))


RULES = (ChannelsLastMissing,)
