"""What rules on traced models import besides `tclint.plugin`: layers, changes, sizes, and words for findings.

A rule asks its `GraphContext` for prices; the functions below find the layers to ask about, make the changes
to price, and put both into sentences.
"""

from __future__ import annotations

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.change import CHANNELS_LAST
from tclint.analysis.findings import annotate_if_compile_fixes, share_finding
from tclint.analysis.layers import (
    OpDim,
    by_line,
    costliest,
    cuts_patches,
    gain_phrase,
    indices_of,
    layers_phrase,
    layers_take,
    related_sites,
    rounded,
    sentence,
    share_phrase,
    width_dims,
)
from tclint.analysis.limits import latency_bound
from tclint.analysis.options import best_option, priced
from tclint.analysis.precision_changes import autocast, tf32
from tclint.analysis.widths.alignment import SMALLEST_WIDTH, efficient_multiple, is_misaligned, round_up
from tclint.analysis.widths.bounds import alignment_gain_percent
from tclint.analysis.widths.interfaces import with_input_channels
from tclint.analysis.widths.padding import Padding, best_padding, padded_sizes, sizes_phrase
from tclint.analysis.widths.resizing import batch_change, larger_batch, the_batch
from tclint.cost.transforms.layout import apply_layout
from tclint.graph.dims.coupled import DimGroup
from tclint.graph.dims.vocabulary import VocabularyHead
from tclint.graph.lowering.work import Gemm

__all__ = [  # noqa: RUF022 (by subject)
    # Layers
    "AttentionBlock", "Gemm", "VocabularyHead", "attention_blocks", "by_line", "costliest", "cuts_patches",
    "indices_of", "latency_bound",
    # Sizes
    "SMALLEST_WIDTH", "DimGroup", "OpDim", "Padding", "alignment_gain_percent", "best_padding",
    "efficient_multiple", "is_misaligned", "padded_sizes", "round_up", "width_dims",
    # Changes, and the choice among several
    "CHANNELS_LAST", "apply_layout", "autocast", "batch_change", "best_option", "larger_batch",
    "priced", "tf32", "the_batch", "with_input_channels",
    # Findings and their words
    "annotate_if_compile_fixes", "gain_phrase", "layers_phrase", "layers_take", "related_sites", "rounded",
    "sentence", "share_finding", "share_phrase", "sizes_phrase",
]  # fmt: skip
