"""Limits of the Tensor Core kernels for 3-D convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.layers import by_line, convolutions, indices_of, worth_pricing
from tclint.analysis.share_findings import share_finding
from tclint.config.precisions import PRECISION_FACTS
from tclint.graph.ops.spec import itemsize_bytes
from tclint.plugin import Effect, Finding, GraphContext, GraphRule, Op

_LARGEST_TENSOR_BYTES = 2**31
_MOST_TAPS = 32


class Conv3dLimits(GraphRule):
    """A 3-D convolution is outside the limits of cuDNN's Tensor Core kernels.

    What it does
    Checks every 3-D convolution against the limits in cuDNN's guide: kernel sides of at most 32, no
    dilation in the backward kernels, tensors below 2 GB, and channels that are multiples of 8.

    Why it costs
    Outside these limits cuDNN silently falls back to kernels that use no Tensor Cores or that need large
    workspaces.

    Example
        nn.Conv3d(30, 30, 3, dilation=2)

    Use instead
        nn.Conv3d(32, 32, 3)

    When it does not apply
    cuDNN 9 lifts some of the limits; what a dilated 3-D kernel costs there has not been measured, and no
    gain is predicted. Misaligned channels alone are reported by conv-misaligned.
    """

    code = "ARC013"
    name = "conv3d-limits"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("NVIDIA cuDNN 8 Developer Guide, 3-D convolutions: limits of the Tensor Core kernels",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        outside = {
            op.index: reasons
            for op in convolutions(context.graph)
            if len(op.inputs[0].shape) == 5 and (reasons := self._reasons(op, context))
        }
        for ops in by_line(context.graph.ops[index] for index in outside).values():
            if not worth_pricing(context, indices_of(ops)):
                continue
            reasons = list(dict.fromkeys(reason for op in ops for reason in outside[op.index]))
            yield share_finding(
                self,
                context,
                ops,
                "3-D convolution",
                f", outside of what cuDNN's Tensor Core kernels take: {'; '.join(reasons)}",
                effect=Effect(unknown="what cuDNN falls back to has not been measured"),
                advice="Stay within the limits: smaller kernels or crops, no dilation, or a split batch.",
                evidence={"limits": reasons},
            )

    def _reasons(self, op: Op, context: GraphContext) -> list[str]:
        weight = op.input("weight")
        assert weight is not None
        reasons = []
        if max(weight.shape[2:]) > _MOST_TAPS:
            reasons.append(f"a kernel side above {_MOST_TAPS}")
        dilation = op.attributes.get("dilation", 1)
        dilated = max(dilation) > 1 if isinstance(dilation, list | tuple) else dilation != 1
        if dilated and context.settings.mode == "train":
            reasons.append("dilation in backward")
        dtype = PRECISION_FACTS[context.settings.precision].dtype
        largest = max(spec.numel for spec in (op.inputs[0], op.outputs[0]))
        if largest * itemsize_bytes(dtype) >= _LARGEST_TENSOR_BYTES:
            reasons.append("a tensor of 2 GB or more")
        return reasons
