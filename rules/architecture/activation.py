"""Activations that follow convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tclint.plugin import Effect, Finding, Graph, GraphContext, GraphRule, Op
from tclint.plugin.graph import indices_of, share_finding

_NOT_FUSABLE = frozenset(
    [
        "leaky_relu", "hardswish", "hardsigmoid", "mish", "prelu", "selu", "celu", "rrelu", "glu",
        "log_sigmoid", "hardshrink", "softshrink", "threshold",
    ]
)  # fmt: skip
"""Activations that are not in the NVIDIA cuDNN Developer Guide's list for runtime fusion engines: relu (also
clipped), tanh, sigmoid, elu, gelu, softplus, swish (silu)."""
_BETWEEN = frozenset({"norm"})
_FUSED_INTO = frozenset({"conv", "linear", "matmul"})


class ActivationNotFusable(GraphRule):
    """An activation after a convolution or linear layer is not one that cuDNN fuses.

    What it does
    Finds activations that directly follow a convolution or matrix product (a norm may lie between) and
    are not relu, tanh, sigmoid, elu, gelu, softplus or swish, and reports them once per model when they
    take five times --min-gain (5 % of the step).

    Why it costs
    cuDNN's fused kernels apply those activations while the result is still on the chip. Any other is a
    separate kernel that reads and writes the whole tensor.

    Example
        nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.LeakyReLU(0.1))

    Use instead
        nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())     # or SiLU, GELU

    When it does not apply
    Eager PyTorch launches every activation as a separate kernel, so changing one gains nothing there;
    torch.compile fuses any, and training code that calls it is left alone. The rule matters for engines
    built on cuDNN's fusion. Changing an activation changes the model.
    """

    code = "ARC007"
    name = "activation-not-fusable"
    level = "info"
    confidence = "medium"
    sources = ("NVIDIA cuDNN 8 Developer Guide, Runtime Fusion Engine: supported pointwise operations",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.compiled:
            return
        ops = [
            op for op in context.graph.ops if op.name in _NOT_FUSABLE and _follows_product(op, context.graph)
        ]
        if not ops or not context.worth_saying_unpriced(indices_of(ops)):
            return
        names = sorted({op.name for op in ops})
        name = " and ".join(names)
        yield share_finding(
            self,
            context,
            ops,
            name if len(names) == 1 else "activation",
            " as kernels of their own; after a convolution or linear layer, cuDNN fuses others but not "
            f"{name}",
            effect=Effect(
                unknown="eager PyTorch fuses no activation; what fusing gains depends on the engine"
            ),
            advice="For engines that fuse with cuDNN, train with relu, silu or gelu; or use torch.compile, "
            "which fuses any activation.",
            evidence={"activations": names},
            others="another of them",
            identity=name,
        )


def _follows_product(activation: Op, graph: Graph) -> bool:
    before = graph.producers(activation.inputs[0] if activation.inputs else None)
    for op in islice(before, 2):
        if op.kind in _FUSED_INTO:
            return True
        if op.kind not in _BETWEEN:
            return False
    return False
