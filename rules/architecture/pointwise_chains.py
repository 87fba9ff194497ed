"""Chains of elementwise work."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.change import COMPILED
from tclint.analysis.layers import (
    gain_phrase,
    indices_of,
    largest_share_percent,
    rounded,
    share_percent,
    share_phrase,
)
from tclint.analysis.memory_bound import is_memory_bound
from tclint.graph.ops.op import GEMM_KINDS
from tclint.plugin import Finding, Fix, GraphContext, GraphRule

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
        if context.settings.compiled or not any(op.kind in GEMM_KINDS for op in ops):
            return
        fusable = [op for op in ops if op.kind in ("elementwise", "norm", "softmax", "reduction")]
        concerned = indices_of(fusable)
        least = _WORTH_COMPILING * context.settings.min_gain_percent
        if largest_share_percent(context, concerned) < least or context.once(is_memory_bound):
            return
        # Gains of compiling in products do not count, since other rules advise on padding these.
        if context.own_gain_percent(concerned, COMPILED) < least:
            return
        effect = context.effect(concerned, COMPILED)
        shares = share_percent(context, concerned)
        yield self.finding(
            context.root_location(),
            f"Elementwise operators, norms and softmax take {share_phrase(shares)}, one kernel each; "
            f"torch.compile, which fuses them, {gain_phrase(effect)}.",
            effect=effect,
            evidence={"operators": len(fusable), "share_percent": rounded(shares)},
            fix=Fix("model = torch.compile(model), with shapes that stay the same from step to step."),
            identity="chains",
            change=COMPILED,
        )
