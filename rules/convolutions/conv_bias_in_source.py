"""Biases that the norm after them takes away, as the source itself shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Settings, SourceContext, SourceRule, Thing, render
from tclint.plugin.source import TRAINS, Flow, modules_in

_LAYER = re.compile(r"(Lazy)?Conv(Transpose)?[123]d|(Lazy)?Linear")


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
    program = TRAINS
    requires = ("BatchNorm",)
    # Matches a layer without a `bias=` argument that is followed by a batch norm in its class or function.
    pattern = re.compile(
        rb"(?<!\w)(?:(?:Lazy)?Conv(?:Transpose)?[123]d|Linear)\("
        rb"(?!(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?\bbias\s*=)"
        rb"(?=(?:[^\n]|\n(?!class )){0,3000}?(?<!\w)(?:Sync|Lazy)?BatchNorm(?:[123]d)?\()"
    )

    def applies(self, settings: Settings) -> bool:
        return settings.mode == "train"

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.settings.mode != "train":
            return
        flow, seen = context.flow, Counter[str]()
        frozen = set(_frozen(flow))
        for modules in flow.made.values():
            made, kind = modules[0].made, flow.kind(modules[0])
            if (
                made is None
                or not context.concerns(made)
                or not all(_has_bias(flow, item) for item in modules)
            ):
                continue
            readers = [flow.only_readers(module) for module in modules]
            pairs = [
                (item, norm) for item, norms in zip(modules, readers, strict=True) for norm in norms or ()
            ]
            if not pairs or None in readers or made.call is None:
                continue
            if not all(_takes_away(flow, norm, item) and norm not in frozen for item, norm in pairs):
                continue
            after = pairs[0][1]
            norm = flow.kind(after)
            identity = f"{made.place.function.qualified_name}:{render(made.call)}"
            seen[identity] += 1
            yield self.finding(
                context.at(made),
                f"This {kind} adds a bias that the {norm} after it subtracts again: the addition "
                "and its gradient are wasted passes over the output.",
                related=(context.also(after.made, "the batch norm after it"),) if after.made else (),
                evidence={"layer": kind, "norm": norm},
                fix=Fix(
                    "Build it with bias=False; to load a checkpoint that has the bias, subtract the bias "
                    "from the norm's running_mean and drop it."
                ),
                identity=identity if seen[identity] == 1 else f"{identity}:{seen[identity]}",
            )


def _frozen(flow: Flow) -> Iterator[Thing]:
    """The norms in evaluation mode while the rest trains; they subtract a constant, so a bias shifts their
    output."""
    for event in flow.record.of("evaluate"):
        for module in flow.facts.kinds(event.subject, "module"):
            if "Norm" in flow.kind(module):
                yield module
            for owner in flow.facts.things(module.fields.get("@part of")):
                yield from modules_in(owner)


def _has_bias(flow: Flow, layer: Thing) -> bool:
    """Whether a layer has a bias by default; a written `bias=True` is a choice and does not count."""
    if not _LAYER.fullmatch(flow.kind(layer)) or layer.made is None:
        return False
    return "bias" not in layer.fields and not {"*", "**"} & layer.made.arguments.keys()


def _takes_away(flow: Flow, norm: Thing, layer: Thing) -> bool:
    kind, after = flow.kind(layer), flow.kind(norm)
    if "@guessed" in norm.fields:
        return False
    if kind.endswith("Linear"):
        # On [N, T, C] a batch norm normalises dim 1, which is not the dim of the layer's outputs.
        features = norm.fields.get("num_features")
        alike = features is not None and features == layer.fields.get("out_features")
        return alike and after in ("BatchNorm1d", "SyncBatchNorm")
    return after in ("SyncBatchNorm", f"BatchNorm{kind[-2:]}", f"LazyBatchNorm{kind[-2:]}")
