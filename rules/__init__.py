"""tclint's own rules, one module per topic; registered through the entry-point group `tclint.rules`."""

from __future__ import annotations

from tclint.rule import Rule

from . import (
    activation,
    alignment,
    attention,
    autocast_regions,
    channels,
    convolution,
    cudnn_switches,
    early_stage,
    grouped_convolution,
    latency,
    layout,
    layout_breaks,
    loss_scaling,
    manual_attention,
    memory_bound,
    pointwise_chains,
    precision,
    projections,
    quantization,
    recurrent,
    reduced_precision,
    scaler_care,
    scaler_steps,
    small_gemm,
    superseded_amp,
    tokens,
    upsampling,
    vocabulary,
)

_TOPICS = (
    activation,
    alignment,
    attention,
    autocast_regions,
    channels,
    convolution,
    cudnn_switches,
    early_stage,
    grouped_convolution,
    latency,
    layout,
    layout_breaks,
    loss_scaling,
    manual_attention,
    memory_bound,
    precision,
    pointwise_chains,
    projections,
    quantization,
    recurrent,
    reduced_precision,
    scaler_care,
    scaler_steps,
    small_gemm,
    superseded_amp,
    tokens,
    upsampling,
    vocabulary,
)

RULES: tuple[type[Rule], ...] = tuple(rule for topic in _TOPICS for rule in topic.RULES)
