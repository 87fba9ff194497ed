"""What an op makes the GPU do: matrix products, convolutions, attention, and bytes to move.

`tclint.graph.lowering.step` turns ops into `Kernel`s; `tclint.cost` prices them. Sizes are in elements unless
a name says otherwise, FLOPs count 2 per multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "backward", "optimizer"]
GemmDirection = Literal["forward", "dgrad", "wgrad"]
AttentionKernel = Literal["cuDNN", "FlashAttention 2", "FlashAttention 4", "memory-efficient", "serving"]
"""Whose fused kernel: 'serving' is that of an engine for inference."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[M,N] = A[M,K] B[K,N], `batch` times independently, `repeats` times one after the other.

    Which dim of each matrix is contiguous in memory decides alignment: a linear layer's forward has K
    contiguous in A and B (the weight is stored [N,K]) and N in C; its wgrad has M contiguous in A.
    """

    m: int
    n: int
    k: int
    dtype: str
    batch: int = 1
    a_contiguous: Literal["m", "k"] = "k"
    b_contiguous: Literal["n", "k"] = "n"
    c_contiguous: Literal["m", "n"] = "n"
    repeats: int = 1
    """Dependent repetitions, e.g. the time steps of a recurrent layer; they cannot share a launch."""
    out_dtype: str = ""
    """The dtype of C; empty: `dtype`, as for the operands."""
    in_cudnn: bool = False
    """Part of a recurrent layer: cuDNN's TF32 switch holds for it, not the one of matrix products."""

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch * self.repeats

    @property
    def contiguous(self) -> tuple[tuple[str, int], ...]:
        """The contiguous dim of A, B and C: its letter and size."""
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        letters = (self.a_contiguous, self.b_contiguous, self.c_contiguous)
        return tuple((letter, sizes[letter]) for letter in letters)


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution kernel, in the names of the forward convolution it belongs to.

    A transposed convolution's forward is the dgrad of its mirrored convolution, and is lowered so:
    `direction` names the kernel that runs, the `Kernel` around it the phase it runs in.
    `input_size` and `output_size` are spatial sizes of the (mirrored) forward convolution, 1 to 3 of them.
    """

    batch: int
    in_channels: int
    out_channels: int
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: str
    channels_last: bool
    direction: GemmDirection = "forward"

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.in_channels == self.groups

    @property
    def flops(self) -> int:
        """Equal in the three directions: every (output position, kernel tap, channel pair) once."""
        positions = self.batch
        for size in self.output_size:
            positions *= size
        taps = 1
        for size in self.kernel_size:
            taps *= size
        return 2 * positions * self.out_channels * (self.in_channels // self.groups) * taps


@dataclass(frozen=True, slots=True)
class Attention:
    """Fused scaled-dot-product attention (the S x S scores never reach memory)."""

    batch: int
    heads: int
    kv_heads: int
    query_length: int
    key_length: int
    head_dim: int
    value_head_dim: int
    dtype: str
    is_causal: bool = False
    has_mask: bool = False
    is_backward: bool = False
    has_dropout: bool = False
    seen_share: float = 1.0
    """Of the blocks of scores, those that a block mask leaves to be computed."""
    kernel: AttentionKernel | None = None
    """Whose kernel it is, where that is known; None: the one that torch's dispatcher chooses on a GPU."""
    disabled: frozenset[AttentionKernel] = frozenset()
    """Kernels that the model's code keeps the dispatcher from."""

    @property
    def flops(self) -> int:
        """Forward 2 matrix products, backward 5, of the full S x S scores (causality is not subtracted)."""
        qk = 2 * self.batch * self.heads * self.query_length * self.key_length * self.head_dim
        pv = 2 * self.batch * self.heads * self.query_length * self.key_length * self.value_head_dim
        return 3 * qk + 2 * pv if self.is_backward else qk + pv


TrafficClass = Literal[
    "elementwise", "norm", "softmax", "reduction", "pool", "embedding", "scatter", "copy", "loss", "optimizer"
]


@dataclass(frozen=True, slots=True)
class Walk:
    """How a kernel finds its elements where they do not lie one behind the other in all of its tensors."""

    elements: int
    operands: int
    """Tensors in which a thread works out where its element lies."""
    dims: int
    """That its number is divided into."""
    sectors: int
    """Pieces of 32 bytes that a warp, 32 elements, draws from the L2 at once."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A memory-bound kernel: what counts is the bytes it moves.

    `rows` and `columns` give the shape that norms and softmax reduce over (columns), where known.
    """

    traffic_class: TrafficClass
    operation: str
    """The ATen name, for messages and per-operation calibration."""
    bytes_read: int
    bytes_written: int
    flops: int = 0
    rows: int = 0
    columns: int = 0
    dtype: str = "float32"
    channels_last: bool = False
    launches: int = 1
    """Kernels it takes; each pays the fixed launch cost."""
    summed: int = 0
    """Rows that a sum over leading dims adds up for each of its results; 0: it is none."""
    walk: Walk | None = None
    """None: it loads several neighbouring elements at once."""


Work = Gemm | Convolution | Attention | Traffic


@dataclass(frozen=True, slots=True)
class Kernel:
    """A piece of work with the op that causes it and the phase of the step it runs in."""

    op_index: int
    """-1 for work that belongs to no op (the optimizer step)."""
    phase: Phase
    role: str
    """'forward', 'dgrad', 'wgrad', 'backward' (memory-bound), 'cast', 'optimizer'."""
    work: Work

    @property
    def flops(self) -> int:
        return self.work.flops


@dataclass(frozen=True, slots=True)
class Gap:
    """Work that has no formula: reported with its count and FLOPs where known, never priced as zero."""

    name: str
    reason: str
    op_indices: tuple[int, ...]
    flops: int | None = None
    """Forward; None: unknown, or not asked for."""
    flops_percent: float | None = None
    """The share of the forward FLOPs, with these included."""
