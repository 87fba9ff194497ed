"""Tiles and waves: sizes just above what fills the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.widths.alignment import largest_power_of_two_in
from tclint.analysis.widths.bounds import quantization_loss_percent
from tclint.analysis.widths.padding import LARGEST_CUT
from tclint.analysis.widths.tile_widths import advisory, chosen_widths, width_findings
from tclint.plugin import PRECISION_FACTS, Finding, Fix, GraphContext, GraphRule
from tclint.plugin.graph import batch_change, best_option, gain_phrase, indices_of, priced, rounded

_NARROW = 1024
"""For widths from here on, rounding to 128 bytes concerns less than a sixteenth of the width."""


class Ampere128Bytes(GraphRule):
    """A narrow layer misses the 128-byte multiple that A100-class GPUs prefer.

    What it does
    On GPUs of compute capability 8.0 and above, tries layer widths below 1024 that are aligned but not a
    multiple of 128 bytes (64 in fp16 and bf16, 32 in TF32) at the multiples next to them, together with
    everything coupled to them. Reports those whose predicted gain exceeds the work that the smaller size
    saves anyway.

    Why it costs
    Ampere reads its caches in lines of 128 bytes and computes tiles of 64 to 256 elements: a narrow
    matrix that just exceeds a tile loads and computes a whole extra tile, of which it uses a corner. That
    is why 512 instead of 520 matters more than 5120 instead of 5128.

    Example
        nn.Linear(512, 264)

    Use instead
        nn.Linear(512, 256)

    When it does not apply
    Wide layers, where the last tile is a small part of the work; GPUs before Ampere; widths whose
    neighbors are not faster by more than their size explains. A smaller width is another model: whether
    accuracy allows it is not known here.
    """

    code = "DIM010"
    name = "a100-128-byte"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: on A100 most efficient with "
        "multiples of 64 (fp16) and 32 (TF32)",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist: multiples of at least 64 and "
        "ideally 256",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        wanted = PRECISION_FACTS[context.settings.precision].largest_multiple
        gpus = tuple(
            scenario.gpu
            for scenario in context.scenarios
            if context.estimate(scenario).gpu.compute_capability >= (8, 0)
        )
        if wanted is None or not gpus:
            return
        ampere = context if len(gpus) == len(context.scenarios) else context.with_settings(gpus=gpus)
        narrow = [dim for dim in chosen_widths(ampere) if wanted <= dim.size < _NARROW and dim.size % wanted]
        yield from width_findings(self, ampere, narrow, (wanted,))


class TileWaveQuantization(GraphRule):
    """A batch or a wide layer is just above what fills the GPU with whole tiles and waves.

    What it does
    Looks for products and convolutions that lose time to partly filled tiles or to a last wave of few
    tiles (108 tiles are a wave on A100, one per SM). Prices the step per sample at slightly smaller and
    rounder batches, and widths from 1024 on at the next multiples of 128, and reports what is faster by
    more than its size explains.

    Why it costs
    A matrix is computed in tiles of up to 256x128, as many at once as the GPU has SMs. 109 tiles on 108
    SMs take twice as long as 108. A size is best when its number of tiles is a multiple of the wave, or
    just below one.

    Example
        DataLoader(dataset, batch_size=33)      # or nn.Linear(2048, 2056)

    Use instead
        DataLoader(dataset, batch_size=32)      # or nn.Linear(2048, 2048)

    When it does not apply
    Large products, whose many waves make the last one unimportant; steps limited by memory. On compute
    capability 9.0 and above kernels schedule tiles persistently and this prediction is advisory. Batches
    that tclint had to infer are not judged.
    """

    code = "DIM011"
    name = "tile-wave-quantization"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Dimension Quantization Effects: tile and "
        "wave quantization",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist: sizes that avoid them",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        least = context.settings.min_gain_percent
        losses = quantization_loss_percent(context)
        if max(losses.values(), default=0.0) < least:
            return
        if context.graph.metadata.get("inputs_from") != "inferred":
            yield from self._batch_findings(context, losses)
        wide = [dim for dim in chosen_widths(context) if dim.size >= _NARROW and dim.size % 128]
        yield from width_findings(self, context, wide, (128, 256))

    def _batch_findings(self, context: GraphContext, losses: dict[str, float]) -> Iterator[Finding]:
        least = context.settings.min_gain_percent
        batches = {group for group in context.dims.groups if group.is_batch and not group.composite}
        sizes = {group.size for group in batches}
        if len(sizes) != 1:
            return
        batch = sizes.pop()
        ops = context.graph.products
        options = ((size, batch_change(tuple(batches), size)) for size in _rounder_batches(batch))
        best = best_option(context, priced(context, indices_of(ops), options), liked=largest_power_of_two_in)
        if best is None or (best.effect.best_gain_percent or 0.0) < least:
            return
        shares = context.share_percent(indices_of(ops))
        yield self.finding(
            context.root_location(),
            f"A batch of {batch} fills tiles and waves badly: up to {max(losses.values()):.1f} % of the step "
            f"goes into parts of them that stay empty; per sample, {batch} -> {best.what} "
            f"{gain_phrase(best.effect)}"
            f"{advisory(context)}.",
            effect=best.effect,
            evidence={
                "batch": batch,
                "better_batch": best.what,
                "empty_percent": rounded(losses),
                "share_percent": rounded(shares),
            },
            fix=Fix(f"Train with a batch of {best.what}; the gain is per sample."),
            identity="batch",
            change=best.change,
        )


def _rounder_batches(batch: int) -> tuple[int, ...]:
    """Sizes a little below with more factors of two: 33 -> 32, 72 -> 64; none for a power of two."""
    lowest = batch * (1 - LARGEST_CUT)
    found = []
    for multiple in (256, 128, 64, 32, 16, 8):
        size = (batch - 1) // multiple * multiple
        rounder = largest_power_of_two_in(size) > largest_power_of_two_in(batch)
        if size >= max(lowest, 1) and rounder and size not in found:
            found.append(size)
    return tuple(found)
