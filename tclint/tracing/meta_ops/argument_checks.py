"""Refuses calls that torch's kernels refuse, where its meta kernels and our shape rules are less strict.

The complaints are worded as torch words them. Mixed float32, float16 and bfloat16 pass: autocast around the
model, which a trace does not see, would convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tclint.tracing.meta_ops.index_checks import INDEX_CHECKS, listed, may_mix, type_name
from tclint.tracing.values.operators import Kwargs


def check_arguments(name: str, args: Sequence[Any], kwargs: Kwargs) -> None:
    """Raise what torch would raise for a call of operator `name`; silent where nothing is known against it.

    Args:
        name: ATen name without overload, with the underscore of in-place operators.

    Raises:
        RuntimeError: shapes or dtypes do not fit each other.
        IndexError: an index is of no dtype or shape to index with.
    """
    check = _CHECKS.get(name)
    if check is not None:
        check(*args, **kwargs)


def _same_dtype(left: torch.Tensor, right: torch.Tensor) -> None:
    if not may_mix(left, right):
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {type_name(left)} and {type_name(right)}"
        )


def _product(left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> None:
    _same_dtype(left, right)


def _linear(tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    _same_dtype(tensor, weight)
    if bias is not None:
        _same_dtype(bias, weight)


def _added_product(added: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> None:
    _same_dtype(left, right)
    _same_dtype(added, right)


def _convolution(*, transposed: bool) -> Callable[..., None]:
    def check(
        tensor: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *others: Any,
        groups: int = 1,
        **_: Any,
    ) -> None:
        # Of both, the groups are the fourth of the other arguments.
        groups = others[3] if len(others) > 3 else groups
        _check_convolution(tensor, weight, bias, groups, transposed=transposed)

    return check


def _any_convolution(tensor: torch.Tensor, weight: torch.Tensor, bias: Any, *others: Any) -> None:
    _, _, _, transposed, _, groups = others
    _check_convolution(tensor, weight, bias, groups, transposed=transposed)


def _check_convolution(
    tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, groups: int, *, transposed: bool
) -> None:
    for what, other in (("weight", weight), ("bias", bias)):
        if other is not None and not may_mix(tensor, other):
            raise RuntimeError(
                f"Input type (torch.{type_name(tensor)}Tensor) and {what} type "
                f"(torch.{type_name(other)}Tensor) should be the same"
            )
    rank = weight.dim()
    if tensor.dim() not in (rank, rank - 1):
        raise RuntimeError(
            f"Expected {rank}-dimensional input for {rank}-dimensional weight {listed(weight.shape)}, "
            f"but got {tensor.dim()}-dimensional input of size {listed(tensor.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{listed(weight.shape)}] instead"
        )
    given = f"Given transposed=1, weight of size {listed(weight.shape)}" if transposed else ""
    channels, expected = tensor.shape[1 - rank], weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != expected:
        given = given or f"Given groups={groups}, weight of size {listed(weight.shape)}"
        raise RuntimeError(
            f"{given}, expected input{listed(tensor.shape)} to have {expected} channels, "
            f"but got {channels} channels instead"
        )
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (made,):
        raise RuntimeError(
            f"{given or f'Given weight of size {listed(weight.shape)}'}, expected bias to be 1-dimensional "
            f"with {made} elements, but got bias of size {listed(bias.shape)} instead"
        )


def _layer_norm(
    tensor: torch.Tensor,
    normalized: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *_: Any,
    **__: Any,
) -> None:
    _norm_dtypes("LayerNormKernelImpl", tensor, weight, bias)
    for what, affine in (("weight", weight), ("bias", bias)):
        if affine is not None and tuple(affine.shape) != tuple(normalized):
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{listed(affine.shape)} and normalized_shape = {listed(normalized)}"
            )
    if tuple(tensor.shape[max(0, tensor.dim() - len(normalized)) :]) != tuple(normalized):
        raise RuntimeError(
            f"Given normalized_shape={listed(normalized)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized))}], but got input of size{listed(tensor.shape)}"
        )


def _group_norm(
    tensor: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *_: Any,
    **__: Any,
) -> None:
    _norm_dtypes("GroupNormKernelImpl", tensor, weight, bias)
    channels = tensor.shape[1] if tensor.dim() > 1 else 0
    if channels % groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{listed(tensor.shape)} and num_groups={groups}"
        )
    for what, affine in (("weight", weight), ("bias", bias)):
        if affine is not None and tuple(affine.shape) != (channels,):
            raise RuntimeError(
                f"Expected {what} to be a vector of size equal to the number of channels in input, but got "
                f"{what} of shape {listed(affine.shape)} and input of shape {listed(tensor.shape)}"
            )


def _channel_norm(
    tensor: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    mean: torch.Tensor | None = None,
    variance: torch.Tensor | None = None,
    *_: Any,
    **__: Any,
) -> None:
    _norm_dtypes("batch_norm", tensor, weight, bias, mean, variance)
    if tensor.dim() < 2:
        return
    for what, values in (
        ("running_mean", mean),
        ("running_var", variance),
        ("weight", weight),
        ("bias", bias),
    ):
        if values is not None and values.numel() != tensor.shape[1]:
            raise RuntimeError(f"{what} should contain {tensor.shape[1]} elements not {values.numel()}")


def _floating(kernel: str, tensor: torch.Tensor) -> None:
    if not tensor.is_floating_point() and not tensor.is_complex():
        raise RuntimeError(f'"{kernel}" not implemented for {type_name(tensor)!r}')


def _norm_dtypes(kernel: str, tensor: torch.Tensor, *parameters: torch.Tensor | None) -> None:
    _floating(kernel, tensor)
    if any(parameter is not None and not may_mix(tensor, parameter) for parameter in parameters):
        raise RuntimeError("mixed dtype: all inputs must share same datatype.")


def _needs_floating(name: str) -> Callable[..., None]:
    def check(tensor: torch.Tensor, *args: Any, dtype: Any = None, **_: Any) -> None:
        if dtype is None and not any(isinstance(value, torch.dtype) for value in args):
            _floating(name, tensor)

    return check


def _needs_dim(name: str) -> Callable[..., None]:
    is_floating = _needs_floating(name)

    def check(tensor: torch.Tensor, dim: int, *args: Any, **kwargs: Any) -> None:
        rank = max(tensor.dim(), 1)
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            )
        is_floating(tensor, *args, **kwargs)

    return check


def _cell(tensor: torch.Tensor, state: Any, weight: torch.Tensor, *_: Any) -> None:
    for given in (tensor, *state) if isinstance(state, (list, tuple)) else (tensor, state):
        _same_dtype(given, weight)


def _recurrent(tensor: torch.Tensor, state: Any, weights: Any, last: Any, *_: Any) -> None:
    if isinstance(last, (list, tuple)):  # packed sequences: the second argument is their batch sizes
        state, weights = weights, last
    if weights:
        _cell(tensor, state, weights[0])
        if tensor.shape[-1] != weights[0].shape[-1]:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {weights[0].shape[-1]}, got {tensor.shape[-1]}"
            )


def _nll_loss(tensor: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> None:
    _floating("nll_loss_out_frame", tensor)
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {type_name(target)}")


def _cross_entropy(tensor: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> None:
    if not target.is_floating_point():  # else they are probabilities
        _nll_loss(tensor, target)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    *_: Any,
    enable_gqa: bool = False,
    **__: Any,
) -> None:
    if not (may_mix(query, key) and may_mix(query, value)):
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{type_name(query)} key.dtype: {type_name(key)} and value.dtype: {type_name(value)} instead."
        )
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "The sizes of query, key and value do not fit: query "
            f"{listed(query.shape)}, key {listed(key.shape)}, value {listed(value.shape)}"
        )
    leading = -3 if enable_gqa else -2  # grouped heads differ in number
    batch = torch.broadcast_shapes(*(tensor.shape[:leading] for tensor in (query, key, value)))
    if mask is not None and not enable_gqa:
        torch.broadcast_shapes(mask.shape, (*batch, query.shape[-2], key.shape[-2]))


_CHECKS: dict[str, Callable[..., None]] = {
    **INDEX_CHECKS,
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_product),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution(transposed=False)),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution(transposed=True)
    ),
    **dict.fromkeys(("batch_norm", "instance_norm", "native_batch_norm"), _channel_norm),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"), _cell),
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), _recurrent),
    **dict.fromkeys(("nll_loss", "nll_loss2d", "nll_loss_nd"), _nll_loss),
    "cross_entropy_loss": _cross_entropy,
    **{
        name: _needs_floating(name)
        for name in (
            "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "gelu", "glu", "hardsigmoid",
            "hardswish", "mish", "silu", "softplus", "std", "var",
        )
    },
    **{name: _needs_dim(name) for name in ("log_softmax", "softmax")},
    "convolution": _any_convolution,
    "group_norm": _group_norm,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
}  # fmt: skip
