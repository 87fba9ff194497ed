"""Biases that the norm after them takes away, as the source itself shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule
from tclint.source.layers.layer_order import Layer, LayerOrder
from tclint.source.names.queries import is_test_path, keyword
from tclint.source.syntax.tables import Argument, Collection, Literal, dotted, render

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
    Finds torch.nn convolutions (1-D to 3-D, transposed ones too), and linear layers with as many outputs
    as the norm has features, with a bias that a batch norm directly follows, in `nn.Sequential` or in
    `forward` (lists of layers included). Nothing is run; for a traced model the layers are priced as
    well.

    Why it costs
    Batch norm subtracts the mean of each channel, so a constant added to the channel changes nothing, and
    the bias never learns. Adding it reads and writes the whole output once more, and its gradient sums
    the whole output's gradient.

    Example
        nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128))

    Use instead
        nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128))

    When it does not apply
    Other norms (layer norm, group norm) cancel it only partly or not at all; an activation in between
    makes the bias meaningful; norms chosen at run time are unknown, and files that freeze norms are left
    alone; in inference the norm is folded into the convolution, bias included. `bias=True` written in the
    call is a choice. The running means of checkpoints with the biases include them, so the biases have to
    be subtracted there when they are dropped; where a file loads published weights, or reads biases that
    may be these, `--fix` changes nothing.
    """

    code = "ARC001"
    name = "conv-bias-before-bn"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Disable bias for convolutions directly followed by a batch "
        "norm: it has no effect there",
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
        # A frozen norm subtracts a constant: the bias shifts its output.
        if any(_FREEZES.search(identifier) for identifier in context.tables.identifiers):
            return
        seen: Counter[str] = Counter()
        for conv, norm in LayerOrder(context).pairs():
            if not _has_bias(context, conv) or not _normalises(norm, conv):
                continue
            identity = f"{conv.function.qualified_name}:{render(conv.call)}"
            seen[identity] += 1
            yield self.finding(
                context.location(conv.call.node_id),
                f"This {conv.kind} adds a bias that the {norm.kind} after it subtracts again: the addition "
                "and its gradient are wasted passes over the output.",
                related=(context.related(norm.call.node_id, "the batch norm after it"),),
                evidence={"layer": conv.kind, "norm": norm.kind},
                fix=Fix(
                    "Build it with bias=False; to load a checkpoint that has the bias, subtract the bias "
                    "from the norm's running_mean and drop it."
                ),
                identity=identity if seen[identity] == 1 else f"{identity}:{seen[identity]}",
            )


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


def _normalises(norm: Layer, layer: Layer) -> bool:
    if layer.kind == "Linear":
        # Of [N, T, C] a batch norm takes the mean over C, which is not the layer's outputs.
        outputs, features = keyword(layer.call, "out_features", 1), keyword(norm.call, "num_features", 0)
        alike = outputs is not None and features is not None and render(outputs) == render(features)
        return alike and norm.kind in ("BatchNorm1d", "SyncBatchNorm")
    dims = layer.kind[-2:]
    return norm.kind in ("SyncBatchNorm", f"BatchNorm{dims}", f"LazyBatchNorm{dims}")
