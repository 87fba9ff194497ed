"""Models that something else than products limits: moving data, launches, chains of small kernels."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Change, Finding, Fix, GraphContext, GraphRule, Op
from tclint.plugin.graph import (
    gain_phrase,
    indices_of,
    larger_batch,
    latency_bound,
    rounded,
    sentence,
    share_phrase,
)

_COMPILED = Change(settings={"compiled": True})
_MOVING_KINDS = ("norm", "pool", "softmax", "elementwise", "reduction")
"""Kinds of ops with few operations per byte."""
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
        if context.settings.compiled or not context.once(_is_memory_bound):
            return
        moving = [op for op in context.graph.ops if op.kind in _MOVING_KINDS]
        concerned = indices_of(moving)
        shares = context.share_percent(concerned)
        effect = context.effect(concerned, _COMPILED)
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
            change=_COMPILED,
        )

    def _parts(self, context: GraphContext, moving: list[Op]) -> dict[str, float]:
        """Kind of layer -> its share of the step on the first GPU, largest first."""
        parts = {}
        for kind, what in _LAYERS.items():
            shares = context.share_percent(indices_of(op for op in moving if op.kind == kind))
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


_LARGER_BATCH = 4
"""The multiple of the present batch from which on to try larger ones: enough that kernels with tiles for a
fifth of the SMs can fill the GPU."""


class LatencyBoundLayers(GraphRule):
    """Kernels that are too small to fill the GPU take much of the step.

    What it does
    Adds up the kernels whose time is limited by latency - whatever they compute, it is too little work
    for the GPU's SMs - and reports the model when they take 20 % of the step, with the operators that
    wait most and the gain per sample of the first batch, 4, 16, ... times as large, that ends it, else
    of the one that gains most in the GPU's memory. At the batches they are trained with, common networks
    have 0 to 2 %.

    Why it costs
    A kernel takes a few microseconds to start, fill and drain, however little it computes. A product with
    tiles for only one SM in five leaves the other four idle.

    Example
        model(images)      # batch 1, many small layers

    Use instead
        model(images)      # batch 8; or mode="reduce-overhead" (CUDA graphs) where the batch is given

    When it does not apply
    Inference whose batch is set by latency requirements. Training whose batch is limited by memory or
    convergence: there wider and fewer layers help. Where nobody states a batch (inputs that tclint
    inferred, without --batch), nothing is reported.
    """

    code = "ARC021"
    name = "latency-bound-layers"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Math And Memory Bounds: small products are"
        " limited by latency",
        "NVIDIA Memory-Limited Layers User's Guide: small operations do not fill a GPU",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if context.batch_is_assumed or not any(op.is_product for op in context.graph.ops):
            return
        waiting = context.once(latency_bound)
        if waiting is None:
            return
        larger = larger_batch(
            context, _LARGER_BATCH, waiting.op_indices, lambda at: latency_bound(at) is None
        )
        if larger is None:
            return
        effect, words, change = larger
        yield self.finding(
            context.root_location(),
            f"Kernels too small to fill the GPU take {share_phrase(waiting.share_percent)}, most of it in "
            f"{'; '.join(waiting.causes)}{words}.",
            effect=effect,
            evidence={
                "operators": len(waiting.op_indices),
                "share_percent": rounded(waiting.share_percent),
                "causes": list(waiting.causes),
            },
            fix=Fix(
                "Raise the batch; where it is given, launch the step as a CUDA graph "
                '(torch.compile\'s mode="reduce-overhead") or make fewer, wider layers.'
            ),
            identity="latency",
            change=change,
        )


_WORTH_COMPILING = 10
"""The required gain as a multiple of other findings', since compiling takes minutes at every start and for
every new shape."""


class PointwiseChains(GraphRule):
    """Chains of elementwise operators, norms and softmax run kernel by kernel.

    What it does
    Prices the step under torch.compile, which fuses chains of elementwise work, norms and softmax into
    single kernels, and reports the model once where that gains at least ten times --min-gain (10 % of the
    step).

    Why it costs
    Every eager operator reads its inputs from memory and writes its result there. A dropout, a residual
    and a layer norm after a product move the same tensor three times.

    Example
        x = self.norm(x + self.dropout(self.proj(x)))      # eager

    Use instead
        model = torch.compile(model)

    When it does not apply
    Compiled models. Shapes that change from step to step, graph breaks. Models whose time is not in such
    chains. Where such layers outweigh the products, memory-bound-layers reports the model instead.
    """

    code = "ARC016"
    name = "pointwise-chains"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Fuse operations: chains of pointwise operators into one kernel",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        ops = context.graph.ops
        if context.settings.compiled or not any(op.is_product for op in ops):
            return
        fusable = [op for op in ops if op.kind in ("elementwise", "norm", "softmax", "reduction", "copy")]
        concerned = indices_of(fusable)
        least = _WORTH_COMPILING * context.settings.min_gain_percent
        if context.largest_share_percent(concerned) < least or context.once(_is_memory_bound):
            return
        # Gains of compiling in products do not count, since other rules advise on padding these.
        if context.own_gain_percent(concerned, _COMPILED) < least:
            return
        effect = context.effect(concerned, _COMPILED)
        shares = context.share_percent(concerned)
        yield self.finding(
            context.root_location(),
            f"Elementwise operators, norms, softmax and copies take {share_phrase(shares)}, one kernel each; "
            f"torch.compile, which fuses them, {gain_phrase(effect)}.",
            effect=effect,
            evidence={"operators": len(fusable), "share_percent": rounded(shares)},
            fix=Fix("model = torch.compile(model), with shapes that stay the same from step to step."),
            identity="chains",
            change=_COMPILED,
        )


def _is_memory_bound(context: GraphContext) -> bool:
    """Whether these ops take longer than all products and convolutions on some GPU.

    They have to take longer by more than the error of the prediction, both eagerly and under torch.compile,
    so that memory limits the architecture and not only its execution.
    """
    moving = indices_of(op for op in context.graph.ops if op.kind in _MOVING_KINDS)
    products = indices_of(op for op in context.graph.ops if op.is_product)
    compiled = context.with_settings(**_COMPILED.settings)
    for scenarios in zip(context.scenarios, compiled.scenarios, strict=True) if products else ():
        estimates = [context.estimate(scenario) for scenario in scenarios]
        if all(
            estimate.time_of_us(moving)
            > estimate.time_of_us(products)
            * (1.0 + estimate.uncertainty_of_percent((*moving, *products)) / 100.0)
            for estimate in estimates
        ):
            return True
    return False
