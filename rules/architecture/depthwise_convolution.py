"""Convolutions that do not sum over channels at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import prod
from typing import Protocol

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import (
    by_line,
    costliest,
    gain_phrase,
    indices_of,
    layers_take,
    rounded,
    sentence,
    share_percent,
    worth_pricing,
)
from tclint.analysis.op_dims import convolutions, is_depthwise
from tclint.analysis.what_if.layer_edits import ungrouped, with_fused_expansion
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.analysis.widths.padding import mean_gain_percent
from tclint.core.finding import Effect, Finding, Fix
from tclint.core.rule import Example
from tclint.graph.ops import Graph, Op

_EARLY_STRIDE = 4
"""A stage is early while its images are at least a quarter as wide as the model's: there channels are few
and positions many (Optimizing for Tensor Cores calls them memory-limited)."""


class DepthwiseConv(GraphRule):
    """Depthwise convolutions take much of the step in an early, high-resolution stage.

    What it does
    Adds up the depthwise convolutions whose output is at least a quarter as wide as the model's image and
    whose time is limited by memory, with their share of the step. Dense convolutions are priced in their
    place: of the same channels, and as one with the 1x1 convolution that widens the image before them.
    Reported where the better of the two is predicted to gain.

    Why it costs
    A depthwise convolution multiplies each value nine times (3x3) and has no sum over channels, so that
    Tensor Cores have nothing to do: it costs what moving its tensors costs. Early stages have the
    largest tensors. A dense convolution does more arithmetic in about the time of the traffic.

    Example
        nn.Conv2d(32, 192, 1), nn.Conv2d(192, 192, 3, groups=192)     # at 112 x 112

    Use instead
        nn.Conv2d(32, 192, 3)                                         # one dense layer for the two

    When it does not apply
    Late stages with small images and many channels, where a dense convolution is limited by arithmetic
    and depthwise ones pay. Models for phones are not built for Tensor Cores. Fixed filters (a blur kept in a
    buffer) and kernels computed from data are no layers that could be dense, and not reported.

    References
    NVIDIA, Train With Mixed Precision, Optimizing for Tensor Cores: in memory-limited layers prefer dense
    to depthwise convolutions.
    """

    code = "ARC002"
    name = "depthwise-conv"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores",)
    invalid = (
        Example(
            """
from torch import empty, nn


def separable(inputs, outputs):
    depthwise = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
    pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
    return nn.Sequential(depthwise, nn.BatchNorm2d(inputs), nn.ReLU(), pointwise)


def build_model():
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), separable(32, 64), separable(64, 64))


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "separable convolutions at half the resolution",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    expand = nn.Conv2d(24, 144, 1, bias=False)
    depthwise = nn.Conv2d(144, 144, 5, padding=2, groups=144, bias=False)
    project = nn.Conv2d(144, 24, 1, bias=False)
    return nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), expand, depthwise, project)


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "an inverted bottleneck",
        ),
        Example(
            """
from torch import channels_last, empty, nn


def build_model():
    stem = nn.Conv2d(3, 64, 3, 2, 1, bias=False)
    body = [nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False) for _ in range(3)]
    return nn.Sequential(stem, *body).to(memory_format=channels_last)


def example_inputs():
    return empty(32, 3, 224, 224).to(memory_format=channels_last)
""",
            "3x3 at half the resolution, in channels_last",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.Conv2d(64, 64, 3, padding=1, bias=False))


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "dense",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    stem = nn.Conv2d(3, 512, 16, stride=16)
    depthwise = nn.Conv2d(512, 512, 3, padding=1, groups=512, bias=False)
    return nn.Sequential(stem, depthwise, nn.Conv2d(512, 512, 1, bias=False))


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "a late stage: 14 x 14",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    stem = nn.Conv2d(3, 96, 4, stride=4)
    return nn.Sequential(stem, *[nn.Conv2d(96, 96, 7, padding=3, groups=96) for _ in range(3)])


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "dense 7x7 convolutions of 96 channels are slower on a V100",
            {"gpus": ("v100",)},
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    body = [nn.Conv2d(c, 2048, 3, 2, 1, bias=False) for c in (8, 2048, 2048)]
    return nn.Sequential(stem, depthwise, *body)


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "early, but a small part of the step",
        ),
        Example(
            """
from torch import empty, nn, ones


class Blur(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("filter", ones(channels, 1, 3, 3) / 9)

    def forward(self, x):
        return nn.functional.conv2d(x, self.filter, padding=1, groups=x.shape[1])


def build_model():
    stem = nn.Conv2d(3, 64, 3, 2, 1, bias=False)
    return nn.Sequential(stem, *[Blur(64) for _ in range(3)])


def example_inputs():
    return empty(32, 3, 224, 224)
""",
            "a fixed filter",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if efficient_multiple(context.settings.precision) is None:
            return
        image = _image_positions(context)
        learned = {p.name for p in context.graph.parameters if not p.is_buffer}
        early = [
            op
            for op in convolutions(context.graph)
            if is_depthwise(op) and _is_early(op, image) and _weight_name(op) in learned
        ]
        for ops in by_line(op for op in early if _is_memory_limited(op, context)).values():
            concerned = indices_of(ops)
            if not worth_pricing(context, concerned):
                continue
            dense, edit, instead = self._dense(context, ops)
            if mean_gain_percent(dense) <= 0.0:
                continue  # faster on one of the GPUs, slower on another
            shares = share_percent(context, concerned)
            first = costliest(context, ops)
            largest = max((op.outputs[0].shape[2:] for op in ops), key=prod)
            yield self.finding(
                context.location(first),
                f"{sentence(layers_take(ops, 'depthwise convolution', shares))}, on images of up to "
                f"{'x'.join(str(size) for size in largest)}, without Tensor Cores; {instead} "
                f"{gain_phrase(dense)}.",
                effect=dense,
                evidence={"layers": len(ops), "share_percent": rounded(shares)},
                fix=Fix(f"Where accuracy allows, use {instead} in these early stages{_LIKE.get(edit, '')}."),
                related=context.related(first),
                change=Change(edit=partial(edit, ops=ops)),
            )

    def _dense(self, context: GraphContext, ops: list[Op]) -> tuple[Effect, _DenseEdit, str]:
        """What gains more: dense layers of the same channels, or of the channels before the expansion."""
        options: list[tuple[_DenseEdit, str]] = [(ungrouped, "a dense convolution of the same channels")]
        if with_fused_expansion(context.graph, ops) != context.graph:
            options.append((with_fused_expansion, "one dense convolution for the 1x1 and the depthwise one"))
        found = [
            (context.effect(indices_of(ops), graph=edit(context.graph, ops)), edit, words)
            for edit, words in options
        ]
        return max(found, key=lambda option: mean_gain_percent(option[0]))


class _DenseEdit(Protocol):
    def __call__(self, graph: Graph, ops: Iterable[Op]) -> Graph: ...


_LIKE: dict[_DenseEdit, str] = {with_fused_expansion: ", as EfficientNetV2's fused blocks do"}


def _weight_name(op: Op) -> str | None:
    weight = op.input("weight")
    return None if weight is None else weight.parameter


def _image_positions(context: GraphContext) -> int:
    """Positions of the largest image that the model is given; 0 without images."""
    images = [prod(spec.shape[2:]) for spec in context.graph.inputs if len(spec.shape) in (4, 5)]
    return max(images, default=0)


def _is_early(op: Op, image_positions: int) -> bool:
    shape = op.outputs[0].shape
    if len(shape) not in (4, 5):
        return False
    reach = prod(shape[2:]) * int(_EARLY_STRIDE ** (len(shape) - 2))
    return reach >= image_positions > 0


def _is_memory_limited(op: Op, context: GraphContext) -> bool:
    estimates = (context.estimate(scenario) for scenario in context.scenarios)
    return any(
        row.limiter == "memory" for estimate in estimates for row in estimate.rows_of(op.index) if row.flops
    )


RULES = (DepthwiseConv,)
