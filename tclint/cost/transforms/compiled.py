"""A step as torch.compile runs it: layouts of convolutions, misaligned products padded.

Deliberately simple, and no better than this says: Inductor's schedule is not reproduced. What it fuses is in
tclint/cost/transforms/fusion.py.
- Products with misaligned sizes are padded as torch/_inductor/fx_passes/pad_mm.py does: where math limits
  them and the padded one, copies included, is PADDED_GAIN times as fast. Inductor measures, the model prices.
- Convolutions run channels last where torch/_inductor/graph.py (decide_layout_opt) says so.
"""

from __future__ import annotations

from dataclasses import replace

from tclint.config.settings import Mode
from tclint.graph.lowering.work import Gemm, Traffic
from tclint.graph.ops import Graph, Op, itemsize_bytes

PADDED_GAIN = 1.1
"""Times by which the padded product must be faster (is_padded_faster)."""
BALANCE_SHARE = 0.5
"""Padding is tried from this share of the machine balance on, in multiply-adds per element
(is_mm_compute_bound)."""
OPS_PER_CONVOLUTION = 300
"""A graph with this many ops per convolution, or more, keeps its layout."""
SMALL_CHANNELS = 64
# Time in channels_last over time as it is, by kind of convolution, that Inductor goes by in inference.
LAYOUT_FACTORS = {"grouped": 1.358, "small": 0.783, "in_out": 0.725, "default": 0.823}

PADDED_ALIGNMENT = {"float16": 8, "bfloat16": 8, "float32": 4}
"""torch/_inductor/fx_passes/pad_mm.py, get_alignment_size."""


def turns_channels_last(graph: Graph, mode: Mode) -> bool:
    """Whether Inductor runs a graph's convolutions channels last, whatever layout it was traced in."""
    convolutions = [op for op in graph.ops if op.kind == "conv" and len(op.inputs) > 1]
    if not convolutions or len(graph.ops) >= OPS_PER_CONVOLUTION * len(convolutions):
        return False
    kinds = [_layout_kind(op) for op in convolutions]
    if mode == "infer":
        flops = [max(op.outputs[0].numel * op.inputs[1].numel, 1) for op in convolutions]
        weighted = sum(LAYOUT_FACTORS[kind] * flop for kind, flop in zip(kinds, flops, strict=True))
        return weighted <= sum(flops)
    if "grouped" in kinds or any(_narrows(op) for op in convolutions):
        return False
    return not all(_is_small(op) for op in convolutions)


def _layout_kind(op: Op) -> str:
    if op.attributes.get("groups", 1) > 1 and op.inputs[1].shape[1] > 1:
        return "grouped"
    return "small" if _is_small(op) else "in_out" if _narrows(op) else "default"


def _is_small(op: Op) -> bool:
    return max(op.inputs[1].shape[:2]) <= SMALL_CHANNELS


def _narrows(op: Op) -> bool:
    """Half as many output as input channels, or fewer, in a kernel larger than 1."""
    shape = op.inputs[1].shape
    return len(shape) > 2 and shape[0] * 2 <= shape[1] and shape[2] > 1


def padded_gemm(work: Gemm) -> tuple[Gemm, Traffic] | None:
    """The product with sizes padded to Inductor's alignment and the copies that takes; None if aligned."""
    alignment = PADDED_ALIGNMENT.get(work.dtype)
    if alignment is None:
        return None
    # A dim of 1 is squeezed away, not padded.
    m, n, k = (size if size == 1 else -(-size // alignment) * alignment for size in (work.m, work.n, work.k))
    if (m, n, k) == (work.m, work.n, work.k):
        return None
    size = itemsize_bytes(work.dtype) * work.batch * work.repeats
    read = written = 0
    # The result is a view of the padded one, which the next kernel reads as it lies.
    for before, after in ((work.m * work.k, m * k), (work.k * work.n, k * n)):
        if before != after:
            read += before * size
            written += after * size
    copies = Traffic("copy", "constant_pad_nd", read, written, dtype=work.dtype, launches=1)
    return replace(work, m=m, n=n, k=k), copies
