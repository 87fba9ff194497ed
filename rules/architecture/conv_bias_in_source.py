"""Biases that the norm after them takes away, as the source itself shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.layers.layer_order import Layer, LayerOrder
from tclint.source.names.queries import is_test_path, keyword
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Argument, Collection, Literal, dotted, render

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_BIAS_POSITION = {
    **dict.fromkeys(
        ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), 7
    ),
    **dict.fromkeys(("LazyConv1d", "LazyConv2d", "LazyConv3d"), 6),
    "Linear": 2,
}
"""Of the argument among the positional ones, counted from 0, by layer."""

_FREEZES = re.compile(r"(?:freeze|frozen|fix)_?(?:all_?)?(?:bn|norm|batch)", re.IGNORECASE)


class ConvBiasBeforeBnInSource(SourceRule):
    """A convolution or linear layer adds a bias that the batch norm after it subtracts again.

    What it does
    Finds convolutions of torch.nn (1-D to 3-D, transposed ones too), and linear layers with as many outputs
    as the norm has features, with a bias that a batch norm directly follows, in `nn.Sequential` or in
    `forward` (lists of layers included), without running the code. On a traced model it prices the layers
    as well.

    Why it costs
    Batch norm subtracts the mean of each channel, so a constant added to the channel changes nothing, and
    the bias never learns. Adding it reads and writes the whole output once more, and its gradient sums
    the whole output's gradient.

    Example
        nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128))

    Use instead
        nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128))

    When it does not apply
    Other norms do not cancel it (layer norm, group norm) or only partly; an activation in between makes
    the bias meaningful; norms chosen at run time are unknown, files that freeze norms are left alone; in
    inference the norm is folded into the convolution, bias included. `bias=True` written in the call is a
    choice. Checkpoints that have the bias hold it in the norm's running_mean too, from which it has to be
    subtracted when it is dropped; where a file loads published weights, or reads biases that may be those,
    nothing is changed by --fix.

    References
    PyTorch, Performance Tuning Guide, section on disabling the bias of convolutions before a batch norm.
    """

    code = "ARC001"
    name = "conv-bias-before-bn"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Disable bias for convolutions directly followed by a batch norm",
    )
    triggers = (
        *("Conv1d(", "Conv2d(", "Conv3d(", "ConvTranspose1d(", "ConvTranspose2d(", "ConvTranspose3d("),
        "Linear(",
    )
    requires = ("BatchNorm",)
    # A layer whose arguments do not say `bias=`, with a batch norm made further down in its class or
    # function.
    pattern = re.compile(
        rb"(?<!\w)(?:(?:Lazy)?Conv(?:Transpose)?[123]d|Linear)\("
        rb"(?!(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?\bbias\s*=)"
        rb"(?=(?:[^\n]|\n(?!class )){0,3000}?(?<!\w)(?:Sync|Lazy)?BatchNorm(?:[123]d)?\()"
    )

    def applies(self, settings: Settings) -> bool:
        return settings.mode == "train"

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.settings.mode != "train" or is_test_path(context.path):
            return
        if _may_freeze_norms(context):
            return
        seen: Counter[str] = Counter()
        for conv, norm in LayerOrder(context).pairs():
            if not _has_bias(context, conv) or not _normalises(norm, conv):
                continue
            identity = f"{conv.function.qualified_name}:{render(conv.call)}"
            seen[identity] += 1
            yield self.finding(
                context.location(conv.call.site),
                f"This {conv.kind} adds a bias that the {norm.kind} after it subtracts again: the addition "
                "and its gradient are wasted passes over the output.",
                related=(context.related(norm.call.site, "the batch norm after it"),),
                evidence={"layer": conv.kind, "norm": norm.kind},
                fix=Fix(
                    "Build it with bias=False; to load a checkpoint that has the bias, subtract the bias "
                    "from the norm's running_mean and drop it."
                ),
                identity=identity if seen[identity] == 1 else f"{identity}:{seen[identity]}",
            )

    valid = (
        Example(
            source="""\
from torch import nn

net = nn.Sequential(
    nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64),
    nn.Conv2d(64, 64, 3, 1, 1, 1, 1, False), nn.BatchNorm2d(64),
    nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64),
    nn.Conv2d(64, 64, 3), nn.GroupNorm(8, 64),
    nn.Conv2d(64, 64, 3, bias=True), nn.BatchNorm2d(64),
)
""",
            note="no bias, by name or position; an activation between; another norm; a bias on purpose",
        ),
        Example(
            source="""\
from torch import nn

def block(channels, norm_layer=nn.BatchNorm2d, use_bias=True, **kwargs):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3), norm_layer(channels),
        nn.Conv2d(channels, channels, 3, bias=use_bias), nn.BatchNorm2d(channels),
        nn.Conv2d(channels, channels, 3, **kwargs), nn.BatchNorm2d(channels),
    )
""",
            note="the norm or the bias is chosen at run time",
        ),
        Example(
            source="""\
from torch import nn

def make_layers(widths, batch_norm):
    layers = []
    for channels, width in widths:
        conv = nn.Conv2d(channels, width, 3)
        if batch_norm:
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        else:
            layers += [conv, nn.ReLU()]
        layers.append(nn.Conv2d(width, width, 3))
        if batch_norm:
            layers.append(nn.BatchNorm2d(width))
    return nn.Sequential(*layers)
""",
            note="the norm follows only on one path",
        ),
        Example(
            source="""\
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(64, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.conv2 = nn.Conv2d(64, 64, 3)
        self.bn2 = nn.BatchNorm2d(64)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.bn3 = nn.BatchNorm2d(64)

    def forward(self, x):
        y = self.conv1(x)
        x = self.bn1(y) + y
        x = self.conv2(x)
        x = x.relu()
        x = self.bn2(x)
        if x.shape[0] > 1:
            return self.bn3(self.conv3(x))
        return self.conv3(x)
""",
            note="the output is read elsewhere, activated first, or not always normed",
        ),
        Example(
            source="""\
from torch import nn
from torch.nn.utils import weight_norm
from mylib import Conv2d

net = nn.Sequential(
    weight_norm(nn.Conv2d(3, 64, 3)), nn.BatchNorm2d(64),
    Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 3),
)
""",
            note="another library's convolution, and a wrapped one",
        ),
        Example(
            source="""\
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())

    def freeze_bn(self):
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
""",
            note="a frozen norm subtracts a constant",
        ),
        Example(
            source="""\
from torch import nn

def tokens(length, width):
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(length), nn.Linear(width, width, True))
""",
            note="normed over the tokens, each of whose outputs has a bias of its own",
        ),
        Example(
            source="""\
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
""",
            note="in inference the norm is folded away",
            settings={"mode": "infer"},
        ),
    )
    invalid = (
        Example(
            source="""\
import torch.nn as nn

def double_conv(channels):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )
""",
            note="neighbours in a Sequential",
        ),
        Example(
            source="""\
from torch import nn

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.bn1(self.conv1(x)).relu() + x
""",
            note="called one in the other",
        ),
        Example(
            source="""\
from torch import nn
from torch.nn import functional as F

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(128, 64, 2, stride=2)
        self.norm = nn.SyncBatchNorm(64)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        skip = x
        x = self.up(x)
        x = F.relu(self.norm(x))
        return x, skip
""",
            note="one statement after the other; a bias that is set to zero learns nothing all the same",
        ),
        Example(
            source="""\
from torch import nn

def make_layers(widths):
    layers = []
    channels = 3
    for width in widths:
        conv = nn.Conv1d(channels, width, 3)
        layers += [conv, nn.BatchNorm1d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers)
""",
            note="a list that Sequential gets",
        ),
        Example(
            source="""\
from torch import nn

class ConvBn(nn.Sequential):
    def __init__(self, channels):
        super().__init__()
        self.add_module("conv", nn.Conv3d(channels, channels, 3))
        self.add_module("norm", nn.BatchNorm3d(channels))
""",
            note="added by name to a Sequential",
        ),
        Example(
            source="""\
from collections import OrderedDict
from torch import nn

BatchNorm2d = nn.BatchNorm2d

def stem(device):
    place = {"device": device}
    return nn.Sequential(OrderedDict([("conv", nn.Conv2d(3, 64, 7, **place)), ("bn", BatchNorm2d(64))]))
""",
            note="an OrderedDict, a norm under another name, arguments that are known not to be the bias",
        ),
        Example(
            source="""\
from torch import nn

class Tables(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for before, width in zip(widths, widths[1:]):
            self.layers.append(nn.Linear(before, width))
            self.norms.append(nn.BatchNorm1d(width))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = layer(x)
            x = norm(x)
            x = x.relu()
        return x
""",
            note="linear layers, in lists",
        ),
    )


RULES: tuple[type[Rule], ...] = (ConvBiasBeforeBnInSource,)


def _has_bias(context: SourceContext, layer: Layer) -> bool:
    """A layer whose bias is certain."""
    position = _BIAS_POSITION.get(layer.kind)
    if position is None or any(
        argument.star and not _says_nothing(context, layer, argument) for argument in layer.call.arguments
    ):
        return False
    # Written out, True is somebody's choice.
    return keyword(layer.call, "bias", position) is None


def _says_nothing(context: SourceContext, layer: Layer, argument: Argument) -> bool:
    """`**factory` of `factory = {"device": device, "dtype": dtype}`."""
    name = dotted(argument.value)
    if argument.star != "**" or not name or "." in name:
        return False
    found, complete = context.resolver.definitions(layer.function, name)
    if not complete or len(found) != 1 or found[0][1].operator or found[0][1].unpacked:
        return False
    value = found[0][1].value
    return (
        isinstance(value, Collection)
        and value.kind == "dict"
        and all(isinstance(key, Literal) and key.value != "bias" for key in value.keys)
    )


def _may_freeze_norms(context: SourceContext) -> bool:
    """A frozen norm subtracts a constant: the bias shifts its output."""
    return any(_FREEZES.search(identifier) for identifier in context.tables.identifiers)


def _normalises(norm: Layer, layer: Layer) -> bool:
    if layer.kind == "Linear":
        # Of [N, T, C] a batch norm takes the mean over C, which is not the layer's outputs.
        outputs, features = keyword(layer.call, "out_features", 1), keyword(norm.call, "num_features", 0)
        alike = outputs is not None and features is not None and render(outputs) == render(features)
        return alike and norm.kind in ("BatchNorm1d", "SyncBatchNorm")
    dims = layer.kind[-2:]
    return norm.kind in ("SyncBatchNorm", f"BatchNorm{dims}", f"LazyBatchNorm{dims}")
