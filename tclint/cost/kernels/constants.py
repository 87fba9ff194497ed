"""The constants of the cost model, typed and explained. Values come from tclint/cost/gpu/*.toml.

Shares and ratios are relative to the GPU's datasheet row, so that they carry over to other GPUs of a
generation. The defaults are the A100's and stand in only where a calibration does not name a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """Matrix products."""

    math_efficiency: float = 0.97
    """Share of the datasheet rate in the main loop of a full tile."""
    tile_overhead: float = 0.043
    """Extra main-loop time of a 64x64 tile's sides; it shrinks as 64 / side."""
    occupancy: float = 0.25
    """Tiles of 256x128 that one SM holds at once; smaller ones in proportion, 1 to 8."""
    least_tile_side: float = 16.0
    """Tiles with a shorter side are not used: for some products a library knows few kernels."""
    most_tile_side: float = 256.0
    """The same for longer sides."""
    k_step_ns: float = 4.4
    """Least time per element of K of one tile (latency of the main loop)."""
    prologue_us: float = 1.6
    """Filling the pipeline, per round of resident tiles."""
    epilogue_us: float = 2.9
    """Writing a tile of 256x128, per round of resident tiles; smaller tiles in proportion."""
    wave_rounding: float = 0.95
    """1: the last wave costs as much as a full one; 0: partial waves cost their share."""
    l2_operand_ratio: float = 0.9
    """Bandwidth for operand tiles relative to the L2's (neighbouring tiles share them in flight)."""
    l2_capacity_share: float = 0.043
    """Part of the L2 that may hold operands from an earlier kernel."""
    l2_residency_exponent: float = 0.73
    """How sharply residency falls when the operands outgrow that part."""
    dram_efficiency: float = 0.82
    """Share of the datasheet DRAM bandwidth."""
    l2_efficiency: float = 0.125
    """Share of the L2 bandwidth at which resident operands are read."""
    sm_bandwidth_ratio: float = 3.6
    """Most bandwidth one SM can draw, relative to its equal share of DRAM's."""
    split_k_us: float = 2.26
    """The second kernel, or the fix-up, that a split K needs."""
    split_k_bandwidth: float = 0.94
    """Share of the L2 bandwidth at which partial sums are written and read."""
    long_k_slowdown: float = 0.0
    """Relative slowdown of the main loop where rows of K are long (128 KiB and more): their addresses lie
    too far apart for the caches of page addresses."""
    power_slowdown: float = 0.006
    """Relative slowdown of long kernels by the power limit."""
    softness: float = 3.2
    """Exponent p of (math^p + l2^p + memory^p)^(1/p): large means perfect overlap."""
    launch_us: float = 1.4
    """Start and end of any kernel on an idle GPU, host excluded."""
    gemv_launch_us: float = 2.6
    """The same for the matrix-vector kernels that batch 1 uses."""
    gemv_memory_factor: float = 1.05
    """Memory time of those kernels relative to a GEMM's."""
    misaligned_4: float = 1.755
    """Main-loop factor when the worst contiguous dim is a multiple of 4 elements of 16 bits, not of 8."""
    misaligned_2: float = 1.773
    """The same for 2."""
    misaligned_1: float = 2.865
    """The same for odd sizes."""
    misaligned_1_tn: float = 3.5
    """Odd K contiguous in both operands: x[M,K] @ W[N,K].T."""
    misaligned_memory: float = 1.0
    """DRAM time with odd contiguous dims, relative to aligned ones."""


@dataclass(frozen=True, slots=True)
class ConvolutionConstants:
    """Convolutions as implicit matrix products."""

    forward_factor: float = 1.0
    """Time of the implicit GEMM relative to a GEMM of the same M, N, K."""
    dgrad_factor: float = 1.1
    wgrad_factor: float = 1.1
    halo_reread: float = 0.5
    """Input bytes read again because neighbouring windows overlap, as a share, for kernels above 1x1."""
    transform_bandwidth_share: float = 0.78
    """DRAM share at which NCHW tensors are transposed for (and after) a Tensor Core kernel, where SMs are not
    slower (conversion_cycles). This and the next one are those of the RTX 3090, from networks in both
    layouts: files that have one layout alone do not tell a slow kernel from a fast one behind a copy."""
    pointwise_transform_share: float = 0.29
    """Part of that transposition that 1x1 forward kernels need: as products they can read NCHW as it lies."""
    launch_us: float = 4.0
    """Start and end of the kernel on an idle GPU, host excluded."""
    grouped_factor: float = 1.0
    """Forward time of grouped convolutions relative to a batched product of their groups."""
    grouped_backward_nhwc_factor: float = 1.0
    grouped_backward_nchw_factor: float = 1.0
    grouped_fallback_factor: float = 1.5
    """NHWC forward time relative to the above where there is no NHWC kernel for the groups' channels; the
    transposition comes on top."""
    grouped_direct_share: float = 0.06
    """Share of the fp32 CUDA-core rate of the direct kernels that compute gradients in NHWC where there are
    no others."""
    winograd_gain: float = 1.7
    """Fewer multiplications of fp32 3x3 stride-1 kernels."""
    depthwise_nhwc_share: float = 0.5
    """DRAM share that depthwise kernels reach."""
    depthwise_nchw_share: float = 0.5
    depthwise_math_share: float = 0.1
    """Share of the fp32 CUDA-core rate that depthwise kernels of 3x3 and 5x5 reach."""
    depthwise_general_share: float = 0.1
    """The same for other sizes."""
    depthwise_backward_nhwc_factor: float = 1.0
    """Time that the bytes of the backward kernels of 3x3 and 5x5 take, relative to the forward one's."""
    depthwise_backward_nchw_factor: float = 1.0
    depthwise_general_backward_factor: float = 1.5
    """The same for other sizes, in both layouts."""
    small_c_factor: float = 1.4
    """Main-loop time with 4 input channels in NHWC (special first-layer kernels), relative to 8 and more;
    K counts the 4 real channels, so 2 would mean no gain over padding to 8."""
    tiny_c_factor: float = 1.5
    """Main-loop time with 3 or fewer input channels, on top of padding them."""
    prologue_ratio: float = 1.0
    """Prologue and epilogue of the implicit GEMM relative to cuBLAS's; the same for the next two."""
    split_k_ratio: float = 1.0
    sm_bandwidth_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionConstants:
    """Fused attention."""

    math_efficiency_64: float = 0.5
    """Share of the Tensor Core rate on the scores that are computed, for head dims up to 64."""
    math_efficiency_128: float = 0.62
    """The same at 128; other head dims lie between, on a logarithmic scale."""
    math_efficiency_192: float = 0.61
    """The same at 192."""
    math_efficiency_256: float = 0.6
    """The same at 256."""
    math_efficiency_512: float = 0.2
    """The same above 256, where flash kernels no longer exist."""
    backward_ratio: float = 0.7
    """Rate of the backward kernel relative to the forward one."""
    dram_efficiency: float = 0.55
    launch_us: float = 12.5
    """Start and end of the kernel on an idle GPU, host excluded."""
    block_us: float = 0.1
    """Fixed time of one block of queries."""
    key_block_us: float = 0.7
    """Least time of one block of queries against one block of keys (latency)."""
    wave_rounding: float = 0.95
    """1: the last wave of query blocks costs as much as a full one; 0: its share."""
    softness: float = 1.1
    """Exponent with which math and memory overlap, as for GEMMs."""


@dataclass(frozen=True, slots=True)
class TrafficConstants:
    """Memory-bound kernels of one class."""

    dram_efficiency: float = 0.87
    """Share of the datasheet DRAM bandwidth."""
    l2_efficiency: float = 0.8
    """Share of the L2 bandwidth for the part that stays in it."""
    launch_us: float = 2.2
    """Start and end of one kernel on an idle GPU, host excluded."""
    l2_capacity_share: float = 0.5
    """Part of the L2 that may hold the tensors from an earlier kernel."""
    sm_bytes_per_clock: float = 30.0
    """Most that one SM moves to and from DRAM per cycle at boost clock: few or narrow loads in flight, or
    much arithmetic between them, limit kernels on GPUs with much bandwidth per SM."""
    row_us: float = 0.0
    """Time of an SM per row, in kernels with a block per row, that no other row hides."""


ConstantsT = TypeVar("ConstantsT", GemmConstants, ConvolutionConstants, AttentionConstants, TrafficConstants)
