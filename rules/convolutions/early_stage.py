"""A rule on extras that the early stage of a network on images should avoid."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import prod

from tclint.plugin import Effect, Finding, GraphContext, GraphRule, Op
from tclint.plugin.graph import indices_of, share_finding

_EARLY_STRIDE = 4
_MOST_STEPS = 12
"""The most ops between the mean of an excitation and the product with it."""


class EarlyStageExtras(GraphRule):
    """Pooling, squeeze-and-excite or layer norms run in the early, memory-limited stage of a network.

    What it does
    In image networks, adds up memory-limited pooling, squeeze-and-excite (a global mean that scales the
    channels) and layer or group norms on images that are at least a quarter as wide as the model's, and
    reports each kind that takes at least five times --min-gain (5 % of the step).

    Why it costs
    Early stages have few channels at many positions: their convolutions are already limited by memory,
    and each such layer moves the model's largest tensors once or twice more. In the late, math-limited
    stages the same layers cost little.

    Example
        nn.Sequential(conv, SqueezeExcite(64), nn.AvgPool2d(3, stride=1))      # at 112 x 112

    Use instead
        nn.Sequential(conv)      # and squeeze-and-excite from 28 x 28 on

    When it does not apply
    Late stages. Batch norm, which folds into convolutions. Accuracy may need the layer: leaving it out
    gains its share of the step; what that does to accuracy is not known here.
    """

    code = "ARC022"
    name = "early-stage-extras"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: in memory-limited layers avoid "
        "pooling, squeeze-and-excite and layer norm",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        image = max((prod(s.shape[2:]) for s in context.graph.inputs if len(s.shape) == 4), default=0)
        if not image or not any(op.kind == "conv" for op in context.graph.ops):
            return
        for what, ops in _extras(context).items():
            early = [
                op
                for op in ops
                if _positions(op) * _EARLY_STRIDE**2 >= image and "memory" in context.limiters(op)
            ]
            concerned = indices_of(early)
            if not early or not context.worth_saying_unpriced(concerned):
                continue
            yield share_finding(
                self,
                context,
                early,
                f"{what} operator",
                " in the early, memory-limited stage, on images of up to "
                f"{max(_positions(op) for op in early)} positions",
                effect=Effect(unknown="the gain depends on what replaces it"),
                advice=f"Where accuracy allows, keep {what} for the later stages.",
                evidence={"what": what},
                others=f"another early {what} operator",
                identity=what,
            )


def _positions(op: Op) -> int:
    """The number of positions in the largest image that the op reads, in NCHW or NHWC."""
    return max(
        (
            spec.numel // (spec.shape[0] * _channels(op, spec.shape))
            for spec in op.inputs
            if len(spec.shape) == 4
        ),
        default=0,
    )


def _channels(op: Op, shape: tuple[int, ...]) -> int:
    last = op.name in ("layer_norm", "rms_norm")
    return max(shape[-1] if last else shape[1], 1)


def _extras(context: GraphContext) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {"pooling": [], "squeeze-and-excite": [], "layer norm": [], "group norm": []}
    for op in context.graph.ops:
        if op.kind == "pool" and "upsample" not in op.name and "adaptive" not in op.name:
            found["pooling"].append(op)
        elif op.name in ("layer_norm", "rms_norm", "group_norm") and len(op.inputs[0].shape) == 4:
            found["group norm" if op.name == "group_norm" else "layer norm"].append(op)
        elif op.name == "mul" and (mean := _excitation(op, context)) is not None:
            found["squeeze-and-excite"] += [mean, op]
    return found


def _excitation(scale: Op, context: GraphContext) -> Op | None:
    """The global mean behind a product of an image with one value per channel."""
    images = [spec for spec in scale.inputs if len(spec.shape) == 4]
    if len(images) != 2 or images[0].shape[:2] != images[1].shape[:2]:
        return None
    gate = min(images, key=lambda spec: spec.numel)
    if prod(gate.shape[2:]) != 1 or prod(max(images, key=lambda spec: spec.numel).shape[2:]) == 1:
        return None
    before = islice(context.graph.producers(gate), _MOST_STEPS)
    return next((op for op in before if op.kind in ("pool", "reduction")), None)
