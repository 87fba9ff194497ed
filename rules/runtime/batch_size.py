"""A rule on mini-batches that are not a multiple of 8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import Finding, Fix, Literal, Name, SourceContext, SourceRule
from tclint.source.layers.configurations import switched_off
from tclint.source.layers.tied_embeddings import only_size
from tclint.source.names.queries import Called, conditions_of, is_test_path, keyword, unpacks_positions, words
from tclint.source.names.resolve import Possible, Symbol
from tclint.source.training.loaders import feedings, feeds_evaluation, loaders_of, targets_of

_LOSS_SCALERS = ("lossscal", "scaleloss", "scaledloss", "gradscal", "scalegrad", "nativescaler")
"""In names of what can only scale losses; a `scaler` may scale data."""
_TOKENS = words("tokenizer tokens vocab seq llm gpt bert lm")
_TOKEN_IDS = words("input_ids token_ids ids")
"""Whole identifiers: the ids of `device_ids` are no tokens."""


class BatchMultipleOf8(SourceRule):
    """A training batch size that is not a multiple of 8 under mixed precision.

    What it does
    Finds `DataLoader(..., batch_size=n)` for training in a file that uses autocast, a loss scaler or 16-bit
    weights, where n is known, larger than 8 and not a multiple of 8.

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
    requires = ("DataLoader",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not _mixed_precision(context):
            return
        if program.words & _TOKENS or context.tables.identifiers & _TOKEN_IDS:
            return
        if not (program.trainings or "backward" in context.tables.identifiers):
            return
        for loader in loaders_of(context):
            if feeds_evaluation(context, loader) or not _trains(context, loader):
                continue
            # What `**options` may hold besides, a batch sampler, excludes a batch size.
            if keyword(loader.call, "batch_sampler") is not None or unpacks_positions(loader.call):
                continue
            given = keyword(loader.call, "batch_size", 1)
            if given is None:
                continue
            possible = program.resolver.evaluate(loader.function, given)
            if not possible.values and isinstance(given, Name) and "." in given.dotted:
                # `args` often comes as a parameter; the parser is in the file all the same.
                possible = program.resolver.argparse_default(given.dotted.rpartition(".")[2])
            if isinstance(given, Name) and all(isinstance(value, Symbol) for value in possible.values):
                size = only_size(context, loader.function, given)
                possible = Possible((size,) if size is not None else (), False)
            sizes = possible.values
            if len(sizes) != 1 or not isinstance(sizes[0], int) or isinstance(sizes[0], bool):
                continue
            size = sizes[0]
            if size <= 8 or size % 8 == 0:
                continue
            default = "" if possible.certain else " by default"
            below, above = size - size % 8, size - size % 8 + 8
            yield self.finding(
                context.location(loader.call.node_id),
                f"This loader's batch size is {size}{default}, not a multiple of 8, under mixed precision.",
                evidence={"batch_size": size, "multiple": 8, "remainder": size % 8},
                fix=Fix(f"Use {below} or {above}; multiples of 64 are best on A100 and newer."),
                identity=f"{loader.function.qualified_name}:{size}",
            )

    def change(self, finding: Finding, context: Any) -> Any:
        from tclint.analysis.change import Change
        from tclint.analysis.options import best_option, priced
        from tclint.analysis.widths.resizing import batch_change, the_batch

        batches, size = the_batch(context), finding.evidence["batch_size"]
        if isinstance(batches, str) or batches[0].size != size:
            return None
        below = size - size % 8
        options = priced(context, (), ((other, batch_change(batches, other)) for other in (below, below + 8)))
        best = best_option(context, options)
        if best is None or len(options) < 2:
            return None
        # A larger batch spreads what a step costs over more samples: of that alone 8 is no reason.
        less, more = (1.0 - option.gain_percent / 100.0 for option in options)
        between = less + (more - less) * (size - below) / 8
        return best.change if between < 1.0 else Change()


def _trains(context: SourceContext, loader: Called) -> bool:
    """A loader for training: shuffled, named so, or read by a loop that goes backward."""
    shuffle = keyword(loader.call, "shuffle", 2)
    if (shuffle is not None and shuffle != Literal(False)) or keyword(loader.call, "sampler") is not None:
        return True
    if any("train" in name.lower() for name in targets_of(loader)):
        return True
    return any(True for _ in feedings(context, loader))


def _mixed_precision(context: SourceContext) -> bool:
    """Some autocast region of the file can be on, or losses are scaled."""
    amp = context.amp
    regions = [
        (function, region)
        for function in context.tables.functions
        for region in amp.autocasts.regions(function)
        if region.autocast.enabled is not False and region.autocast.dtype in ("float16", "bfloat16", None)
    ]
    if regions:
        return any(
            not switched_off(
                context, function, region.autocast.conditions + conditions_of(function, region.block)
            )
            for function, region in regions
        )
    if context.scaling.made and all(made.enabled is False for made in context.scaling.made):
        return False
    named = (amp.scaler_name or "").lower().replace("_", "")
    if any(word in named for word in _LOSS_SCALERS):
        return True
    return any(view.of("scaled_backward", "scaler_step") for view in context.scaling.views)
