"""The time of convolutions: implicit matrix products in three directions, and depthwise ones as bytes.

Forward is a product of M = batch x output positions, N = output channels, K = input channels x taps;
dgrad and wgrad permute the three. cuDNN pads channels to 16 bytes for Tensor Cores, transposes NCHW
tensors for kernels that need NHWC, and has Winograd kernels for fp32 3x3 stride 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tclint.cost.gpu import Gpu
from tclint.cost.kernels.constants import ConvolutionConstants, GemmConstants
from tclint.cost.kernels.matmul import BoolArray, GemmShapes, GemmTimes, gemm_times
from tclint.cost.kernels.walking import all_sms_us, conversion_cycles
from tclint.cost.math_units import UnitClass
from tclint.cost.rows import FloatArray
from tclint.graph.lowering.work import Convolution

SMALL_CHANNELS = 4
"""Input channels for which cuDNN has special NHWC first-layer kernels."""
TINY_CHANNELS = 3
WINOGRAD_LEAST_CHANNELS = 16
GROUP_CHANNELS = (4, 8, 16, 32, 64, 128, 256, 512)
"""Channels per group for which NHWC kernels of grouped convolutions exist; others run as NCHW."""
GROUPED_BACKWARD_CHANNELS = (4, 8, 16, 32)
GROUPED_BACKWARD_GROUPS = 32
"""NHWC kernels for the gradients of grouped convolutions exist for these channels per group where the groups
are a multiple of this. Which ones exist was found from the throughput of whole networks: RegNet and ResNeXt
train in NHWC at a tenth of one another's rate."""
WIDE_DIRECT_CHANNELS = 96
"""From so many channels per group on, direct gradients run twice as fast (NFNets and RegNets of 112 to
168)."""
DEPTHWISE_KERNELS = (1, 3, 5)
DEPTHWISE_NHWC_KERNELS = (*DEPTHWISE_KERNELS, 7)
"""Square kernels for which depthwise convolutions are compiled, in torch (DepthwiseConv2d.cu) and, for NHWC,
in cuDNN; others run a general one. That 7 is among the latter's was found from the throughput of whole
networks: ConvMixer's 7x7 trains in NHWC at a rate of 0.14 of the CUDA cores', its 9x9 at a tenth of that."""


def is_compiled_depthwise(work: Convolution) -> bool:
    """Whether a depthwise kernel of the size was compiled, not the general one."""
    sizes = DEPTHWISE_NHWC_KERNELS if work.channels_last else DEPTHWISE_KERNELS
    return len(set(work.kernel_size)) == 1 and work.kernel_size[0] in sizes


PATCH_TILE = (256, 64)
PATCH_K_NS = 48.0
"""Tile, and time per element of K of one tile, of the Ampere kernel that cuDNN runs on image channels padded
to 8 where windows do not overlap: every tap of every window is a load of its own, 16 bytes long. From two
patch embeddings of ViT on an H100 (4 and 128 images, 16x16); nothing else was published."""
PACKED_CHANNELS = 64
"""Narrow groups are computed several at a time, as one product of about this width with zeros between."""


@dataclass(frozen=True)
class ConvolutionTimes:
    """Times in microseconds, one element per convolution; `gemm` describes the implicit products."""

    time_us: FloatArray
    gemm: GemmTimes
    depthwise: BoolArray
    direct: BoolArray
    """Gradients of groups for which only a direct kernel exists, on CUDA cores."""
    fallback: BoolArray
    """Groups without an NHWC kernel, computed as NCHW."""
    padded: BoolArray
    """Channels had to be padded for Tensor Cores."""
    winograd: BoolArray
    """Computed with fewer multiplications than the convolution has."""
    patches: BoolArray
    """Image channels in windows that do not overlap (PATCH_K_NS)."""
    copies_us: FloatArray
    """The part of `time_us` for copies: into NHWC and back, or into padded channels."""
    bytes_read: FloatArray
    bytes_written: FloatArray


def _column(values: Sequence[float | int | bool]) -> FloatArray:
    return np.array(values, dtype=np.float64)


def convolution_times(
    works: Sequence[Convolution],
    gpu: Gpu,
    unit: UnitClass,
    gemm_constants: GemmConstants,
    constants: ConvolutionConstants,
) -> ConvolutionTimes:
    """Predict the kernel times of many convolutions of one precision on one GPU."""
    c = constants
    batch = _column([w.batch for w in works])
    groups = _column([w.groups for w in works])
    c_real = _column([w.in_channels // w.groups for w in works])
    k_real = _column([w.out_channels // w.groups for w in works])
    given_groups, wide = groups, np.maximum(c_real, k_real)
    packed = np.clip(np.floor(PACKED_CHANNELS / np.maximum(c_real, k_real)), 1, groups)
    # From here on a group is several narrow ones.
    c_group, k_group, groups = c_real * packed, k_real * packed, groups / packed
    in_positions = _column([prod(w.input_size) for w in works])
    out_positions = _column([prod(w.output_size) for w in works])
    taps = _column([prod(w.kernel_size) for w in works])
    strides = _column([prod(w.stride) for w in works])
    direction = np.array([w.direction for w in works])
    nhwc = np.array([w.channels_last for w in works], dtype=bool)
    depthwise = np.array([w.is_depthwise for w in works], dtype=bool)
    forward, dgrad = direction == "forward", direction == "dgrad"

    size = float(unit.element_bytes)
    grouped = (groups > 1) | (packed > 1)
    granularity = max(1.0, 16 / size) if unit.tensor_cores else 1.0
    special = unit.tensor_cores & nhwc & (c_group == SMALL_CHANNELS) & ~grouped & (size == 2)
    c_padded = np.where(special, c_group, np.ceil(c_group / granularity) * granularity)
    k_padded = np.ceil(k_group / granularity) * granularity
    padded = (c_padded != c_group) | (k_padded != k_group)

    m = np.select([forward, dgrad], [batch * out_positions, batch * in_positions], c_padded * taps)
    n = np.select([forward, dgrad], [k_padded, c_padded], k_padded)
    k = np.select(
        [forward, dgrad],
        [c_padded * taps, np.maximum(k_padded * taps / strides, k_padded)],
        batch * out_positions,
    )
    x_elements = batch * in_positions * c_group * groups
    y_elements = batch * out_positions * k_group * groups
    w_elements = taps * c_group * k_real * groups
    first = np.select([forward, dgrad], [x_elements, y_elements], x_elements)
    second = np.where(forward | dgrad, w_elements, y_elements)
    result = np.select([forward, dgrad], [y_elements, x_elements], w_elements)

    winograd = _winograd(works, unit)
    halo = 1 + c.halo_reread * (taps > 1)
    shapes = GemmShapes(
        m=m,
        n=n,
        k=k,
        batch=np.ceil(groups),
        contiguous_a=k,
        contiguous_b=k,
        contiguous_c=n,
        k_contiguous=np.zeros(len(works), dtype=bool),
        a_bytes=first * size * halo,
        b_bytes=second * size,
        # Padding has been counted in M, N and K; the small-C kernels fill a part of each K step only.
        rate_factor=np.select(
            [winograd, special, padded & (c_group <= TINY_CHANNELS)],
            [
                np.full(len(works), 1 / c.winograd_gain),
                np.full(len(works), c.small_c_factor),
                np.full(len(works), c.tiny_c_factor),
            ],
            1.0,
        ),
    )
    implicit = replace(
        gemm_constants,
        prologue_us=gemm_constants.prologue_us * c.prologue_ratio,
        epilogue_us=gemm_constants.epilogue_us * c.prologue_ratio,
        launch_us=c.launch_us,
        split_k_us=gemm_constants.split_k_us * c.split_k_ratio,
        sm_bandwidth_ratio=gemm_constants.sm_bandwidth_ratio * c.sm_bandwidth_factor,
    )
    gemm = gemm_times(shapes, gpu, unit, implicit)
    patches = _patches(works) & forward & padded & (c_group <= TINY_CHANNELS) & unit.tensor_cores
    rounds = np.ceil(np.ceil(m / PATCH_TILE[0]) * np.ceil(n / PATCH_TILE[1]) / gpu.sm_count)
    patch_us = np.where(patches, rounds * k * PATCH_K_NS / 1e3, 0.0)
    gemm = replace(gemm, latency_us=np.maximum(gemm.latency_us, patch_us))
    factor = np.select([forward, dgrad], [c.forward_factor, c.dgrad_factor], c.wgrad_factor)
    grouped_backward = np.where(nhwc, c.grouped_backward_nhwc_factor, c.grouped_backward_nchw_factor)
    factor = factor * np.where(grouped, np.where(forward, c.grouped_factor, grouped_backward), 1.0)
    undilated = np.array([all(step == 1 for step in w.dilation) for w in works], dtype=bool)
    tensor_nhwc = grouped & nhwc & unit.tensor_cores & (size == 2)
    fallback = tensor_nhwc & forward & ~(np.isin(wide, GROUP_CHANNELS) & undilated)
    direct = (
        tensor_nhwc
        & ~forward
        & ~(
            np.isin(wide, GROUPED_BACKWARD_CHANNELS)
            & (np.mod(given_groups, GROUPED_BACKWARD_GROUPS) == 0)
            & undilated
        )
    )
    bytes_per_us = 1e3 * gpu.dram_gb_per_s
    # Into NHWC and back: each of the two activations is read once and written once.
    transform = np.maximum(
        (x_elements + y_elements) * 2 * size / (bytes_per_us * c.transform_bandwidth_share),
        all_sms_us(conversion_cycles(x_elements + y_elements), gpu),
    )
    transform = transform * np.where(forward & (taps == 1), c.pointwise_transform_share, 1.0)
    # Padding channels copies the narrow activation into a wide one.
    pad_copy = (
        (c_group + c_padded) * batch * in_positions * groups * (c_padded != c_group)
        + (k_group + k_padded) * batch * out_positions * groups * (k_padded != k_group)
    ) * (size / (bytes_per_us * c.transform_bandwidth_share))
    # The conversion of an image writes the padded channels.
    transform = transform + np.where(patches, pad_copy, 0.0)
    needs_transform = unit.tensor_cores & ~nhwc
    copies_us = np.where(needs_transform, transform, np.where(padded, pad_copy, 0.0))
    # There and back again: into the layout that has a kernel.
    copies_us = copies_us + np.where(fallback, transform, 0.0)
    dense_us = gemm.time_us * factor * np.where(fallback, c.grouped_fallback_factor, 1.0)
    dense_us = np.maximum(dense_us, patch_us) + copies_us
    share = np.where(nhwc, c.depthwise_nhwc_share, c.depthwise_nchw_share)
    moved = (first + second + result) * size
    multiply_adds = 2 * batch * out_positions * k_real * c_real * groups * packed * taps
    cuda_cores_us = multiply_adds / (1e6 * gpu.peak_tflops["fp32"])
    direct_share = c.grouped_direct_share * np.where(wide >= WIDE_DIRECT_CHANNELS, 2.0, 1.0)
    direct_us = c.launch_us + moved / bytes_per_us + cuda_cores_us / direct_share
    dense_us = np.where(direct, direct_us, dense_us)
    compiled = np.array([is_compiled_depthwise(w) for w in works], dtype=bool)
    slower = np.where(nhwc, c.depthwise_backward_nhwc_factor, c.depthwise_backward_nchw_factor)
    slower = np.where(compiled, slower, c.depthwise_general_backward_factor)
    slower = np.where(forward, 1.0, slower)
    # Gradients multiply and add as often as the forward kernel, and move their bytes less well.
    depthwise_us = (
        c.launch_us
        + moved / (bytes_per_us * share) * slower
        + cuda_cores_us
        / np.where(compiled, c.depthwise_math_share, c.depthwise_general_share)
        * np.where(compiled, 1.0, slower)
    )
    return ConvolutionTimes(
        time_us=np.where(depthwise, depthwise_us, dense_us),
        gemm=replace(
            gemm, tile_efficiency=gemm.tile_efficiency * (c_group / c_padded) * (k_group / k_padded)
        ),
        depthwise=depthwise,
        direct=direct & ~depthwise,
        fallback=fallback & ~depthwise,
        padded=padded & ~depthwise,
        winograd=winograd,
        patches=patches,
        copies_us=np.where(depthwise | direct, 0.0, copies_us),
        bytes_read=(first + second) * size,
        bytes_written=result * size,
    )


def _patches(works: Sequence[Convolution]) -> BoolArray:
    """Convolutions whose windows do not overlap, of more than one tap."""
    return np.array([w.kernel_size == w.stride and max(w.stride) > 1 for w in works], dtype=bool)


def _winograd(works: Sequence[Convolution], unit: UnitClass) -> BoolArray:
    if unit.name != "fp32":
        return np.zeros(len(works), dtype=bool)
    return np.array(
        [
            w.kernel_size == (3, 3)
            and w.stride == (1, 1)
            and w.dilation == (1, 1)
            and w.groups == 1
            and w.in_channels >= WINOGRAD_LEAST_CHANNELS
            # cuDNN's tables of algorithms have implicit products alone for filters in NHWC.
            and not w.channels_last
            for w in works
        ],
        dtype=bool,
    )
