"""A rule on mini-batches that are not a multiple of 8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import Change, Finding, Fix, SourceContext, SourceRule, Thing
from tclint.plugin.source import Defaults


class BatchMultipleOf8(SourceRule):
    """A training batch size that is not a multiple of 8 under mixed precision.

    What it does
    Finds `DataLoader(..., batch_size=n)` whose batches give a loss that is computed under autocast or scaled,
    where n is known, larger than 8 and not a multiple of 8.

    Why it costs
    In linear layers the batch is a dim of the matrix products of the forward pass, the activation
    gradient and the weight gradient. 16-bit Tensor Core kernels are most efficient when every dim is a
    multiple of 8 (of 64 on A100), and before cuBLAS 11 they require it.

    Example
        loader = DataLoader(dataset, batch_size=100, shuffle=True)

    Use instead
        loader = DataLoader(dataset, batch_size=96, shuffle=True)   # or 104, or 128

    When it does not apply
    Language models, where batch times sequence length counts; evaluation loaders; batch samplers; batches
    of 8 or fewer, which memory dictates; batch sizes that are known only at run time.
    """

    code = "RUN009"
    name = "batch-multiple-of-8"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision, Satisfying Tensor Core Shape Constraints: batches in "
        "multiples of 8",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, Batch Size: it is a dim of all three products",
        "NVIDIA Convolutional Layers User's Guide, Batch Size, Height And Width: multiples for convolutions",
    )
    triggers = ("batch_size", "DataLoader")
    program = ("DataLoader",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for loader in context.batches.trained_on:
            made = loader.made
            defaults = Defaults()
            size = defaults.constant(loader.fields.get("batch_size"))
            if made is None or type(size) is not int or size <= 8 or size % 8 == 0:
                continue
            if not context.concerns(made) or "batch_sampler" in loader.fields:
                continue
            if not self._is_mixed(context, loader):
                context.skip(made, "feeds no step that is known to compute in 16 bits")
                continue
            if context.batches.holds_tokens(loader):
                context.skip(made, "holds tokens: batch times sequence length counts")
                continue
            below, above = size - size % 8, size - size % 8 + 8
            yield self.finding(
                context.at(made),
                f"This loader's batch size is {size}{defaults.words}, not a multiple of 8, under mixed "
                "precision.",
                evidence={"batch_size": size, "multiple": 8, "remainder": size % 8},
                fix=Fix(f"Use {below} or {above}; multiples of 64 are best on A100 and newer."),
                identity=f"{made.place.function.qualified_name}:{size}",
            )

    def change(self, finding: Finding, context: Any) -> Any:
        from tclint.plugin.graph import batch_change, best_option, priced, the_batch

        batches, size = the_batch(context), finding.evidence["batch_size"]
        if isinstance(batches, str) or batches[0].size != size:
            return None
        below = size - size % 8
        options = priced(context, (), ((other, batch_change(batches, other)) for other in (below, below + 8)))
        best = best_option(context, options)
        if best is None or len(options) < 2:
            return None
        # Any larger batch spreads the fixed costs of a step over more samples, which is no argument for 8.
        less, more = (1.0 - option.gain_percent / 100.0 for option in options)
        between = less + (more - less) * (size - below) / 8
        return best.change if between < 1.0 else Change()

    def _is_mixed(self, context: SourceContext, loader: Thing) -> bool:
        """Whether the losses of a loader's batches are computed under autocast or scaled."""
        facts = context.facts
        losses = [facts.loss_of(backward) for backward in context.batches.backwards_of(loader)]
        scalers = [scaler for loss in losses for scaler in facts.scalers_of(loss)]
        return any(True for loss in losses for _ in context.autocasts.origins(loss)) or any(
            facts.is_on(scaler) is not False for scaler in scalers
        )
