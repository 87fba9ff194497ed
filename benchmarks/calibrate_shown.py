"""Which constants a set of measurements shows: those on which enough of its rows depend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tclint.cost.kernels.constants import GemmConstants
from tclint.cost.kernels.convolution import SMALL_CHANNELS, TINY_CHANNELS, is_compiled_depthwise
from tclint.cost.kernels.matmul import misalignment_factor
from tclint.cost.kernels.pricing import gemm_shapes
from tclint.cost.math_units import UnitClass
from tclint.graph.lowering.work import Convolution, Gemm

LEAST_SHOWN = 8
"""A constant is fitted where at least so many rows depend on it; the others keep their start."""
MISALIGNED = ("misaligned_4", "misaligned_2", "misaligned_1", "misaligned_1_tn")
MARKED = GemmConstants(misaligned_4=2.0, misaligned_2=3.0, misaligned_1=5.0, misaligned_1_tn=7.0)
"""Factors that tell which of them a product depends on."""


def not_shown(rows: Mapping[str, int]) -> set[str]:
    """Constants that too few rows depend on."""
    return {name for name, count in rows.items() if count < LEAST_SHOWN}


def gemm_rows(works: Sequence[Gemm], unit: UnitClass | None) -> dict[str, int]:
    """How many rows depend on each constant that not all depend on."""
    assert unit is not None
    vectors = sum(min(w.m, w.n) <= 1 and w.batch == 1 for w in works)
    factors = misalignment_factor(gemm_shapes(works), unit, MARKED)
    return {
        "gemv_launch_us": vectors,
        "gemv_memory_factor": vectors,
        **{name: int((factors == getattr(MARKED, name)).sum()) for name in MISALIGNED},
        "misaligned_memory": 0,
    }


def convolution_rows(works: Sequence[Convolution], unit: UnitClass | None) -> dict[str, int]:
    """How many rows depend on each constant that not all depend on."""
    assert unit is not None
    tensor = unit.tensor_cores
    dense = [w for w in works if w.groups == 1]
    depthwise = [w for w in works if w.is_depthwise]
    grouped = [w for w in works if w.groups > 1 and not w.is_depthwise]

    def count(chosen: Sequence[Convolution], wanted: Callable[[Convolution], bool] = lambda _: True) -> int:
        return sum(wanted(w) for w in chosen)

    def backward(w: Convolution) -> bool:
        return w.direction != "forward"

    # A copy between layouts shows beside kernels that need none.
    nhwc = count([*dense, *grouped], lambda w: w.channels_last)
    both = min(nhwc, len([*dense, *grouped]) - nhwc)
    return {
        "forward_factor": count(dense, lambda w: not backward(w)),
        "dgrad_factor": count(dense, lambda w: w.direction == "dgrad"),
        "wgrad_factor": count(dense, lambda w: w.direction == "wgrad"),
        "halo_reread": count(works, lambda w: max(w.kernel_size) > 1),
        "transform_bandwidth_share": both * tensor,
        "pointwise_transform_share": (both > 0)
        * tensor
        * count(dense, lambda w: not w.channels_last and max(w.kernel_size) == 1 and not backward(w)),
        "grouped_factor": count(grouped, lambda w: not backward(w)),
        "grouped_backward_nhwc_factor": count(grouped, lambda w: backward(w) and w.channels_last),
        "grouped_backward_nchw_factor": count(grouped, lambda w: backward(w) and not w.channels_last),
        "grouped_fallback_factor": tensor * count(grouped, lambda w: w.channels_last and not backward(w)),
        "grouped_direct_share": tensor * count(grouped, lambda w: w.channels_last and backward(w)),
        "winograd_gain": (not tensor) * count(dense, lambda w: w.kernel_size == (3, 3)),
        "depthwise_nhwc_share": count(depthwise, lambda w: w.channels_last),
        "depthwise_nchw_share": count(depthwise, lambda w: not w.channels_last),
        "depthwise_math_share": count(depthwise, is_compiled_depthwise),
        "depthwise_general_share": count(depthwise, lambda w: not is_compiled_depthwise(w)),
        "depthwise_backward_nhwc_factor": count(
            depthwise, lambda w: is_compiled_depthwise(w) and backward(w) and w.channels_last
        ),
        "depthwise_backward_nchw_factor": count(
            depthwise, lambda w: is_compiled_depthwise(w) and backward(w) and not w.channels_last
        ),
        "depthwise_general_backward_factor": count(
            depthwise, lambda w: not is_compiled_depthwise(w) and backward(w)
        ),
        "small_c_factor": tensor
        * count(dense, lambda w: w.in_channels == SMALL_CHANNELS and w.channels_last),
        "tiny_c_factor": tensor * count(dense, lambda w: w.in_channels <= TINY_CHANNELS),
    }
