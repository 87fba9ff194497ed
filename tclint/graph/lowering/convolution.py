"""Convolutions of one to three dims, plain and transposed, forward, dgrad and wgrad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tclint.graph.lowering.kernels import Lowering, LoweringRule, NoFormulaError, dense_bytes, gemm
from tclint.graph.lowering.work import Convolution
from tclint.graph.ops.op_tables import operators
from tclint.graph.ops.spec import TensorSpec, channels_last_strides


def lies_channels_last(spec: TensorSpec) -> bool:
    """Whether the channels are innermost; true as well for tensors that are contiguous in both senses."""
    if spec.strides is None or len(spec.shape) not in (4, 5):
        return False
    expected = channels_last_strides(spec.shape)
    return all(
        s == 1 or have == want for s, have, want in zip(spec.shape, spec.strides, expected, strict=True)
    )


def _per_dim(value: Any, dims: int, default: int) -> tuple[int, ...]:
    if value is None:
        return (default,) * dims
    if isinstance(value, int):
        return (value,) * dims
    values = tuple(int(item) for item in value)
    return values * dims if len(values) == 1 else values


def _padding(value: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Padding per side; 'same' pads dilation * (kernel - 1) in all, the odd one at the end."""
    if value == "valid":
        return (0,) * len(kernel)
    if value == "same":
        return tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
    return _per_dim(value, len(kernel), 0)


def convolution(low: Lowering) -> None:
    """conv1d-3d, conv_transpose1d-3d and convolution(transposed=...)."""
    x, w = low.position("input", "self"), low.position("weight")
    x_spec, w_spec, y_spec = low.op.inputs[x], low.op.inputs[w], low.output
    transposed = _is_transposed(low)
    work = _work(low, x_spec, w_spec, y_spec)
    if not work.flops:
        return
    for spec in (x_spec, w_spec):
        lies = lies_channels_last(spec) if work.channels_last else spec.memory_format == "contiguous"
        if not lies:
            low.copy(spec)
    low.run(work)
    bias = low.find("bias")
    if bias is not None:
        # cuDNN convolves without bias; torch adds it in a pass of its own (aten/src/ATen/native/
        # Convolution.cpp, ConvBackend::Cudnn). Its own depthwise kernel adds it on the way.
        if not work.is_depthwise:
            low.traffic("elementwise", dense_bytes(y_spec), dense_bytes(y_spec), operation="add")
        low.bias_gradient(bias, y_spec)
    if low.needed(x):
        low.run_backward(replace(work, direction="forward" if transposed else "dgrad"), "dgrad")
    if low.needed(w):
        low.run_backward(replace(work, direction="wgrad"), "wgrad")


def convolution_backward(low: Lowering) -> None:
    """The gradients that a model's own forward asks for (`torch.autograd.grad`, `torch.func.grad`)."""
    gradient, x, w = (low.op.inputs[low.position(name)] for name in ("grad_output", "input", "weight"))
    work = _work(low, x, w, gradient)
    for_input, for_weight, for_bias = low.attribute("output_mask", (True, True, False))
    if work.flops and for_input:
        low.run(replace(work, direction="forward" if _is_transposed(low) else "dgrad"), "dgrad")
    if work.flops and for_weight:
        low.run(replace(work, direction="wgrad"), "wgrad")
    if for_bias:
        low.traffic("reduction", dense_bytes(gradient), low.op.outputs[-1].bytes, operation="sum")
    if low.any_needed:
        raise NoFormulaError("no formula for the gradient of convolution_backward")


def _is_transposed(low: Lowering) -> bool:
    return "transpose" in low.op.name or bool(low.attribute("transposed", False))


def _work(low: Lowering, x_spec: TensorSpec, w_spec: TensorSpec, y_spec: TensorSpec) -> Convolution:
    """The convolution of an input and a weight that makes an output, in its forward's direction.

    Raises:
        NoFormulaError: of more than three spatial dims.
    """
    dims = len(w_spec.shape) - 2
    if dims not in (1, 2, 3):
        raise NoFormulaError(f"{low.op.name} of {dims} spatial dims")
    transposed = _is_transposed(low)
    groups = int(low.attribute("groups", 1))
    kernel = w_spec.shape[2:]
    dilation = _per_dim(low.attribute("dilation"), dims, 1)
    return Convolution(
        batch=x_spec.shape[0] if len(x_spec.shape) == dims + 2 else 1,
        in_channels=w_spec.shape[1] * groups,
        out_channels=w_spec.shape[0],
        input_size=y_spec.shape[-dims:] if transposed else x_spec.shape[-dims:],
        output_size=x_spec.shape[-dims:] if transposed else y_spec.shape[-dims:],
        kernel_size=kernel,
        stride=_per_dim(low.attribute("stride"), dims, 1),
        padding=_padding(low.attribute("padding"), kernel, dilation),
        dilation=dilation,
        groups=groups,
        dtype=x_spec.dtype,
        # cuDNN runs NHWC when either operand lies so (cudnn_conv_suggest_memory_format in
        # aten/src/ATen/native/ConvUtils.h).
        channels_last=suggests_channels_last(x_spec) or suggests_channels_last(w_spec),
        direction="dgrad" if transposed else "forward",
    )


def suggests_channels_last(spec: TensorSpec) -> bool:
    """torch's own reading of the strides, which decides even where a tensor is contiguous in both senses
    (`is_channels_last_strides_2d` in c10/core/MemoryFormat.h)."""
    if spec.strides is None or len(spec.shape) not in (4, 5) or spec.strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(spec.shape) - 1, 1, -1), 0):
        size, stride = spec.shape[dim], spec.strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == spec.strides[1]):
            return False
        least = stride * max(size, 1)
    return True


def deformable(low: Lowering) -> None:
    """torchvision's deform_conv2d: sampled columns written out, then one product per group and image block.

    The columns ([C * taps, positions]) go through memory, forward and backward
    (torchvision/csrc/ops/cuda/deform_conv2d_kernel.cu).
    """
    x, w = low.position("input"), low.position("weight")
    x_spec, w_spec, y_spec = low.op.inputs[x], low.op.inputs[w], low.output
    out_channels, channels_per_group, *kernel = w_spec.shape
    positions = y_spec.numel // max(out_channels, 1)
    k = channels_per_group * prod(kernel)
    groups = max(x_spec.shape[1] // max(channels_per_group, 1), 1)
    n = out_channels // groups
    itemsize = dense_bytes(x_spec) // max(x_spec.numel, 1)
    columns = positions * k * groups * itemsize
    given = [low.find(name) for name in ("offset", "mask")]
    offsets = sum(low.op.inputs[position].bytes for position in given if position is not None)
    low.traffic("copy", x_spec.bytes + offsets, columns, operation="deformable_im2col")
    low.run(gemm(n, positions, k, x_spec.dtype, groups, layout="knn"))
    bias = low.find("bias")
    if bias is not None:
        low.traffic("elementwise", dense_bytes(y_spec), dense_bytes(y_spec), operation="add")
        low.bias_gradient(bias, y_spec)
    if low.needed(w):
        low.run_backward(gemm(n, k, positions, x_spec.dtype, groups, layout="kkn"), "wgrad")
    if any(need for position, need in enumerate(low.needs) if position not in (w, bias)):
        low.run_backward(gemm(k, positions, n, x_spec.dtype, groups, layout="mnn"), "dgrad")
        low.traffic(
            "scatter", columns + offsets + x_spec.bytes, x_spec.bytes + offsets, backward=True, launches=2
        )


RULES: dict[str, LoweringRule] = {
    **dict.fromkeys(operators("products", "convolutions"), convolution),
    "convolution_backward": convolution_backward,
    "deform_conv2d": deformable,
}
