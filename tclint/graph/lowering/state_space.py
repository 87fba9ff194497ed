"""Selective scans of state-space models, as one fused kernel has them."""

from __future__ import annotations

from tclint.graph.lowering.kernels import Lowering, LoweringRule, dense_bytes

_FLOPS_PER_STATE = 9
"""For each position, channel and state: as VMamba counts them, after the authors' answer in issue 110 of
state-spaces/mamba."""


def selective_scan(low: Lowering) -> None:
    """u, delta, z of [B, D, L], A of [D, N], B and C of [B, N, L]: each read once, states stay on the chip.

    Backward runs the recurrence again and reads everything with the output's gradient.
    """
    u, states = low.op.inputs[0], low.op.inputs[2].shape[-1]
    read, flops = sum(spec.bytes for spec in low.op.inputs), _FLOPS_PER_STATE * u.numel * states
    low.traffic("elementwise", read, dense_bytes(low.output), flops=flops)
    if low.any_needed:
        written = sum(dense_bytes(spec) for spec, need in zip(low.op.inputs, low.needs, strict=True) if need)
        low.traffic("elementwise", read + dense_bytes(low.output), written, flops=3 * flops, backward=True)


RULES: dict[str, LoweringRule] = {"selective_scan": selective_scan}
