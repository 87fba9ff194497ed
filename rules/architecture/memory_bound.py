"""Models whose time goes into moving data."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.change import COMPILED
from tclint.analysis.layers import gain_phrase, indices_of, rounded, sentence, share_percent, share_phrase
from tclint.analysis.memory_bound import MOVING_KINDS, is_memory_bound
from tclint.plugin import Finding, Fix, GraphContext, GraphRule, Op

_LAYERS = {
    "norm": "normalisation",
    "pool": "pooling",
    "softmax": "softmax",
    "elementwise": "activations and other elementwise work",
    "reduction": "reductions",
}


class MemoryBoundLayers(GraphRule):
    """Norms, pooling, activations and other data movement take most of the step.

    What it does
    Adds up the predicted time of normalization, pooling, softmax, activations and elementwise layers of a
    model that also has matrix products. Reports the model when, on some GPU, they take longer than all
    its products and convolutions, by more than the error of the prediction, both in eager mode and fused
    by torch.compile: then it is the architecture that is limited by memory, not its execution. The priced
    alternative is the step under torch.compile.

    Why it costs
    These layers do a few operations per byte and Tensor Cores cannot help them, and Amdahl's law caps
    what faster products can still gain: with 70 % of the time elsewhere, at most 1.43x.

    Example
        x = self.pool(self.norm(self.squeeze_excite(self.act(self.conv(x)))))

    Use instead
        model = torch.compile(model)      # fuses norm, activation and residual into one pass

    When it does not apply
    Small models and inputs, whose products are cheap anyway. In the late, math-limited part of a network
    such layers cost little and need no attention.
    """

    code = "ARC008"
    name = "memory-bound-layers"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Memory-Limited Layers User's Guide: norms, activations and pooling",
        "NVIDIA Train With Mixed Precision: by Amdahl's law a speedup of 5 on half of the time gives 1.67"
        " in all",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.compiled or not context.once(is_memory_bound):
            return
        moving = [op for op in context.graph.ops if op.kind in MOVING_KINDS]
        concerned = indices_of(moving)
        shares = share_percent(context, concerned)
        effect = context.effect(concerned, COMPILED)
        parts = self._parts(context, moving)
        listed = ", ".join(f"{what} {share:.0f} %" for what, share in list(parts.items())[:4])
        yield self.finding(
            context.root_location(),
            f"Layers that only move data take {share_phrase(shares)} ({listed} on the first GPU); "
            f"torch.compile {gain_phrase(effect)}.",
            effect=effect,
            evidence={"share_percent": rounded(shares), "parts_percent": rounded(parts)},
            fix=Fix(_advice(moving)),
            identity="memory",
            change=COMPILED,
        )

    def _parts(self, context: GraphContext, moving: list[Op]) -> dict[str, float]:
        """Kind of layer -> its share of the step on the first GPU, largest first."""
        parts = {}
        for kind, what in _LAYERS.items():
            shares = share_percent(context, indices_of(op for op in moving if op.kind == kind))
            first = next(iter(shares.values()), 0.0)
            if first >= 1.0:
                parts[what] = first
        return dict(sorted(parts.items(), key=lambda item: -item[1]))


def _advice(moving: list[Op]) -> str:
    """Advice for these layers; squeeze-and-excite and pooling occur only in networks on images."""
    parts = ["compile the model so that these layers are fused"]
    if any(op.kind == "pool" for op in moving):
        parts.append("drop pooling or squeeze-and-excite blocks in the early, high-resolution part")
    parts.append("make the products between them wider, or chains of small operators one kernel")
    return sentence(f"{'; '.join(parts)}.")
