"""Many narrow blocks where fewer wider ones would do the same work faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tclint.analysis.deep_stacks import Sizes, Stack, as_wide, deep_stacks
from tclint.analysis.layers import gain_phrase, indices_of, largest_share_percent, rounded, share_percent
from tclint.analysis.options import Option
from tclint.analysis.share_findings import share_finding
from tclint.plugin import Finding, GraphContext, GraphRule


class PreferWide(GraphRule):
    """A deep stack of narrow blocks waits for memory or for kernel launches.

    What it does
    Finds stacks of four or more equal blocks whose linear layers are not limited by arithmetic, and
    prices half as many blocks of 1.41 times the width, a quarter of twice the width and so on, with about
    the same parameters and the same work.

    Why it costs
    The wider an N x N product is, the more work it does per byte and the more tiles it fills at once;
    layers that follow each other cannot share a launch. Two layers of 256 take longer than one of 362.

    Example
        nn.Sequential(*[Block(256) for _ in range(24)])

    Use instead
        nn.Sequential(*[Block(384) for _ in range(12)])     # where accuracy allows

    When it does not apply
    Depth is a design decision with its own effect on accuracy: the rule is off unless selected. Blocks
    whose layers are limited by arithmetic, and widths that cannot be told apart from the model's inputs.
    """

    code = "ARC011"
    name = "prefer-wide"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: prefer wider layers to deeper "
        "networks where accuracy allows",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        for stack in deep_stacks(context):
            indices = indices_of(stack.ops)
            if largest_share_percent(context, indices) < context.settings.min_gain_percent:
                continue
            wide = as_wide(context, stack)
            if wide is not None:
                yield self._finding(context, stack, indices, wide)

    def _finding(
        self,
        context: GraphContext,
        stack: Stack,
        indices: Sequence[int],
        wide: Option[tuple[int, Sizes]],
    ) -> Finding:
        blocks, sizes = wide.what
        widths = ", ".join(f"{present} -> {wider}" for present, wider in sizes)
        return share_finding(
            self,
            context,
            stack.products,
            "layer",
            f" in {stack.count} equal blocks, mostly not limited by arithmetic; {blocks} of about the same "
            f"work ({widths}): that {gain_phrase(wide.effect)}",
            concerned=indices,
            effect=wide.effect,
            advice=f"Where accuracy allows, build {blocks} wider blocks instead of {stack.count}.",
            evidence={
                "blocks": stack.count,
                "widths": [list(pair) for pair in sizes],
                "blocks_share_percent": rounded(share_percent(context, indices)),
            },
            others="another layer of such blocks",
            identity=f"stack {stack.name}",
            change=wide.change,
        )
