"""How convolutions are built: first layer and biases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.advice.alignment import efficient_multiple
from tclint.advice.change import Change
from tclint.advice.compiled import marked_if_handled
from tclint.advice.edits import with_input_channels, without_bias
from tclint.advice.layers import (
    by_line,
    consumers,
    costliest,
    gain_phrase,
    indices_of,
    layers_phrase,
    related_sites,
    rounded,
    share_percent,
    share_phrase,
    worth_pricing,
)
from tclint.advice.op_dims import convolutions, groups_of
from tclint.advice.padding import mean_gain_percent
from tclint.advice.scenarios import channels_last
from tclint.context import GraphContext
from tclint.finding import Finding, Fix
from tclint.graph import Op
from tclint.rule import Example, GraphRule


class FirstLayerC3(GraphRule):
    """The first convolution reads images of three channels (or one), where four are as cheap.

    What it does
    Finds the convolution that reads the model's input with one to three channels, and prices the same
    layer on images stored with four (or eight) channels, the added ones zero; both in channels_last,
    which the kernels for four channels need.

    Why it costs
    Tensor Core convolutions read channels in groups of 16 bytes. cuDNN has special kernels for C = 4 in
    NHWC; with C = 3 it pads the images on every step, or runs without Tensor Cores. On V100 such first
    layers are measured slower in fp16 than in fp32.

    Example
        nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3)     # images [N, 3, 224, 224]

    Use instead
        nn.Conv2d(4, 64, kernel_size=7, stride=2, padding=3)     # images padded to [N, 4, 224, 224] NHWC

    When it does not apply
    Where the first layer is a small part of the step, as in most large models. Weights of a pretrained
    first layer need a zero slice for the added channel. Convolutions whose stride equals their kernel
    (patch embeddings) profit less.

    References
    NVIDIA, Convolutional Layers User's Guide, section Channels In and Out: C = 4 has special kernels,
    padding three channels to four suffices for a first layer of stride 2.
    """

    code = "DIM006"
    name = "first-layer-c3"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA Convolutional Layers User's Guide, Channels In and Out",)
    invalid = (
        Example(
            """
from torch import empty, nn


def build_model():
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    return nn.Sequential(stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def example_inputs():
    return empty(64, 3, 224, 224)
""",
            "the stem of a residual network",
        ),
        Example(
            """
from torch import empty, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.body = nn.Conv2d(32, 64, 3, stride=2, padding=1)

    def forward(self, images):
        return self.body(self.stem((images - 0.45) / 0.225).relu())


def build_model():
    return Model()


def example_inputs():
    return empty(64, 3, 256, 256)
""",
            "images that the model normalises first",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())


def example_inputs():
    return empty(8, 1, 512, 512)
""",
            "slices of one channel, as in medical imaging",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(4, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())


def example_inputs():
    return empty(64, 4, 224, 224)
""",
            "padded to four channels",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 3, 3, padding=1), nn.Conv2d(3, 64, 3, padding=1))


def example_inputs():
    return empty(16, 64, 64, 64)
""",
            "three channels in the middle are no first layer",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    stem = nn.Conv2d(3, 512, 16, stride=16)
    return nn.Sequential(stem, *[nn.Conv2d(c, 4096, 3, padding=1) for c in (512, 4096, 4096)])


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "a patch embedding that costs next to nothing",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        stems = [op for op in convolutions(context.graph) if self._reads_images(op, context)]
        for ops in by_line(stems).values():
            concerned = indices_of(ops)
            if worth_pricing(context, concerned):
                yield self._finding(context, ops)

    def _reads_images(self, op: Op, context: GraphContext) -> bool:
        source = op.input("input")
        if source is None or len(source.shape) != 4 or source.shape[1] > 3 or groups_of(op) != 1:
            return False
        if "transpose" in op.name:
            return False
        # Normalising the images first (x - mean) / std keeps their channels.
        group = context.dims.group_of_input(op.index, op.input_names.index("input"), 1)
        from_input = group is not None and (group.fixed or "").startswith("model input")
        return from_input or source.input_name is not None

    def _finding(self, context: GraphContext, ops: list[Op]) -> Finding:
        concerned = indices_of(ops)
        source = ops[0].inputs[0]
        priced = {
            channels: context.effect(
                concerned,
                graph=with_input_channels(context.graph, ops, channels),
                start=channels_last,
                change=channels_last,
            )
            for channels in (4, 8)
        }
        channels = max(priced, key=lambda count: mean_gain_percent(priced[count]))
        effect = priced[channels]
        shares = share_percent(context, concerned)
        return self.finding(
            context.location(costliest(context, ops)),
            f"The first convolution reads {source.shape[1]} channel{'s' if source.shape[1] > 1 else ''} and "
            f"takes {share_phrase(shares)}; in channels_last, padding the images to {channels} channels "
            f"{gain_phrase(effect)}.",
            effect=effect,
            evidence={
                "channels": source.shape[1],
                "padded_channels": channels,
                "share_percent": rounded(shares),
            },
            fix=Fix(
                f"Pad the images to {channels} channels with zeros where they are loaded, keep them "
                f"channels_last, and give this layer in_channels={channels}."
            ),
            change=Change(
                edit=partial(with_input_channels, ops=ops, channels=channels), scenario=channels_last
            ),
        )


_BATCH_NORMS = frozenset({"batch_norm", "cudnn_batch_norm", "native_batch_norm", "sync_batch_norm"})


class ConvBiasBeforeBn(GraphRule):
    """A convolution or linear layer adds a bias that the batch norm after it subtracts again.

    What it does
    Finds convolutions (1-D to 3-D, transposed ones too) and linear layers with a bias whose output goes to
    a batch norm over its channels and nowhere else, in training, and prices the model without those biases.

    Why it costs
    Batch norm subtracts the mean of each channel, so a constant added to the channel changes nothing, and
    the bias never learns. Adding it reads and writes the whole output once more, and its gradient sums
    the whole output's gradient.

    Example
        nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128))

    Use instead
        nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128))

    When it does not apply
    Other norms do not cancel it (layer norm, group norm) or only partly, nor does a batch norm over
    another dim than the layer's outputs; an activation in between makes the bias meaningful; in inference
    the norm is folded into the convolution, bias included. Checkpoints with the biases no longer load
    strictly.

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
    invalid = (
        Example(
            """
from torch import empty, nn


def build_model():
    layers = []
    for channels in (64, 64, 64, 64):
        layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers)


def example_inputs():
    return empty(32, 64, 112, 112)
""",
            "built in a loop: one finding",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv1d(64, 256, 9, padding=4), nn.BatchNorm1d(256), nn.ReLU())


def example_inputs():
    return empty(64, 64, 4096)
""",
            "one-dimensional",
        ),
        Example(
            """
from torch import empty, nn


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(128, 64, 2, stride=2)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x):
        return self.norm(self.up(x)).relu()


def build_model():
    return Up()


def example_inputs():
    return empty(32, 128, 64, 64)
""",
            "transposed, not in a Sequential",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    layers = []
    for _ in range(4):
        layers += [nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU()]
    return nn.Sequential(*layers)


def example_inputs():
    return empty(65536, 512)
""",
            "linear layers of a network on tables",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())


def example_inputs():
    return empty(32, 64, 112, 112)
""",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(64))


def example_inputs():
    return empty(32, 64, 112, 112)
""",
            "an activation lies in between",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU())


def example_inputs():
    return empty(32, 64, 112, 112)
""",
            "group norm subtracts the mean of eight channels together",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())


def example_inputs():
    return empty(32, 64, 112, 112)
""",
            "in inference the norm is folded away",
            {"mode": "infer"},
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(128), nn.ReLU())


def example_inputs():
    return empty(512, 128, 512)
""",
            "normed over the tokens: every output has a bias of its own, which no token's mean takes away",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from marked_if_handled(context, self._check, "fuses the addition")

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.mode != "train":
            return
        readers = consumers(context.graph.ops)
        layers = (*convolutions(context.graph), *(op for op in context.graph.ops if op.name == "linear"))
        useless = [op for op in layers if _is_cancelled(op, readers)]
        if not useless or not worth_pricing(context, indices_of(useless)):
            return
        effect = context.effect(indices_of(useless), graph=without_bias(context.graph, useless))
        first = costliest(context, useless)
        location = context.location(first)
        kinds = {op.kind for op in useless}
        noun = "layer" if len(kinds) > 1 else "convolution" if kinds == {"conv"} else "linear layer"
        yield self.finding(
            location,
            f"The batch norm after {layers_phrase(useless, noun)} cancels the bias; bias=False "
            f"{gain_phrase(effect)}.",
            effect=effect,
            evidence={"layers": len(useless)},
            fix=Fix(f"Build these {noun}s with bias=False."),
            related=(
                *context.related(first),
                *related_sites(
                    [op.construct_site for op in useless], location, "another bias that batch norm cancels"
                ),
            ),
            identity="bias",
            change=Change(edit=partial(without_bias, ops=useless)),
        )


def _is_cancelled(op: Op, readers: dict[int, list[Op]]) -> bool:
    if op.input("bias") is None:
        return False
    following = readers.get(op.index, [])
    if op.kind == "linear" and len(following) == 1 and following[0].kind == "view":
        # [N, T, C] flattened to [N * T, C].
        view = following[0]
        if len(view.outputs[0].shape) != 2 or view.outputs[0].shape[-1] != op.outputs[0].shape[-1]:
            return False
        following, op = readers.get(view.index, []), view
    # The same bias added to what is normed and to something else is not cancelled.
    return len(following) == 1 and _normalises_batch(following[0], op)


def _normalises_batch(norm: Op, layer: Op) -> bool:
    if norm.name not in _BATCH_NORMS or norm.inputs[0].producer != layer.index:
        return False
    if layer.kind in ("linear", "view") and len(layer.outputs[0].shape) != 2:
        return False  # normed over dim 1, which is not the layer's outputs
    # With running statistics only (frozen norms), the mean is a constant and the bias shifts the output.
    return bool(norm.attributes.get("training", True))


RULES = (FirstLayerC3, ConvBiasBeforeBn)
