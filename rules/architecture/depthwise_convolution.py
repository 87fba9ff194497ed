"""Convolutions that do not sum over channels at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

from tclint.analysis.change import Change
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.analysis.layers import by_line, gain_phrase, indices_of, limiters, worth_pricing
from tclint.analysis.op_dims import convolutions, is_depthwise
from tclint.analysis.share_findings import share_finding
from tclint.analysis.what_if.layer_edits import ungrouped, with_fused_expansion
from tclint.analysis.widths.alignment import efficient_multiple
from tclint.analysis.widths.padding import mean_gain_percent
from tclint.core.finding import Effect, Finding
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
        for ops in by_line(
            op for op in early if "memory" in limiters(context, op, products_only=True)
        ).values():
            concerned = indices_of(ops)
            if not worth_pricing(context, concerned):
                continue
            dense, edit, instead = self._dense(context, ops)
            if mean_gain_percent(dense) <= 0.0:
                continue  # faster on one of the GPUs, slower on another
            largest = max((op.outputs[0].shape[2:] for op in ops), key=prod)
            yield share_finding(
                self,
                context,
                ops,
                "depthwise convolution",
                f", on images of up to {'x'.join(str(size) for size in largest)}, without Tensor Cores; "
                f"{instead} {gain_phrase(dense)}",
                effect=dense,
                advice=f"Where accuracy allows, use {instead} in these early stages{_LIKE.get(edit, '')}.",
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


_DenseEdit = Callable[..., Graph]
"""Of a graph and some of its ops."""


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


RULES = (DepthwiseConv,)
