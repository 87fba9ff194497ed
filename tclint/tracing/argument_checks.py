"""Refuses calls that torch's kernels refuse, where its meta kernels and our shape rules are less strict.

The complaints are worded as torch words them. Mixed float32, float16 and bfloat16 pass: autocast around the
model, which a trace does not see, would convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tclint.tracing.origin import is_traced

_AUTOCAST_MIXES = frozenset({torch.float32, torch.float16, torch.bfloat16})
_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_MASK_DTYPES = frozenset({torch.bool, torch.uint8})
_TYPE_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def check_arguments(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
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


def _list(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _type_name(tensor: torch.Tensor) -> str:
    return _TYPE_NAMES.get(tensor.dtype, str(tensor.dtype))


def _mix(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype or {left.dtype, right.dtype} <= _AUTOCAST_MIXES


def _same_dtype(left: torch.Tensor, right: torch.Tensor) -> None:
    if not _mix(left, right):
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {_type_name(left)} and {_type_name(right)}"
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


def _convolution(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> None:
    del stride, padding, dilation
    _check_convolution(tensor, weight, bias, groups, transposed=False)


def _transposed_convolution(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> None:
    del stride, padding, output_padding, dilation
    _check_convolution(tensor, weight, bias, groups, transposed=True)


def _any_convolution(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> None:
    del stride, padding, dilation, output_padding
    _check_convolution(tensor, weight, bias, groups, transposed=transposed)


def _check_convolution(
    tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, groups: int, *, transposed: bool
) -> None:
    for what, other in (("weight", weight), ("bias", bias)):
        if other is not None and not _mix(tensor, other):
            raise RuntimeError(
                f"Input type (torch.{_type_name(tensor)}Tensor) and {what} type "
                f"(torch.{_type_name(other)}Tensor) should be the same"
            )
    rank = weight.dim()
    if tensor.dim() not in (rank, rank - 1):
        raise RuntimeError(
            f"Expected {rank}-dimensional input for {rank}-dimensional weight {_list(weight.shape)}, "
            f"but got {tensor.dim()}-dimensional input of size {_list(tensor.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{_list(weight.shape)}] instead"
        )
    given = f"Given transposed=1, weight of size {_list(weight.shape)}" if transposed else ""
    channels, expected = tensor.shape[1 - rank], weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != expected:
        given = given or f"Given groups={groups}, weight of size {_list(weight.shape)}"
        raise RuntimeError(
            f"{given}, expected input{_list(tensor.shape)} to have {expected} channels, "
            f"but got {channels} channels instead"
        )
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (made,):
        raise RuntimeError(
            f"{given or f'Given weight of size {_list(weight.shape)}'}, expected bias to be 1-dimensional "
            f"with {made} elements, but got bias of size {_list(bias.shape)} instead"
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
                f"{_list(affine.shape)} and normalized_shape = {_list(normalized)}"
            )
    if tuple(tensor.shape[max(0, tensor.dim() - len(normalized)) :]) != tuple(normalized):
        raise RuntimeError(
            f"Given normalized_shape={_list(normalized)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized))}], but got input of size{_list(tensor.shape)}"
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
            f"{_list(tensor.shape)} and num_groups={groups}"
        )
    for what, affine in (("weight", weight), ("bias", bias)):
        if affine is not None and tuple(affine.shape) != (channels,):
            raise RuntimeError(
                f"Expected {what} to be a vector of size equal to the number of channels in input, but got "
                f"{what} of shape {_list(affine.shape)} and input of shape {_list(tensor.shape)}"
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
        raise RuntimeError(f'"{kernel}" not implemented for {_type_name(tensor)!r}')


def _norm_dtypes(kernel: str, tensor: torch.Tensor, *parameters: torch.Tensor | None) -> None:
    _floating(kernel, tensor)
    if any(parameter is not None and not _mix(tensor, parameter) for parameter in parameters):
        raise RuntimeError("mixed dtype: all inputs must share same datatype.")


def _needs_floating(name: str) -> Callable[..., None]:
    def check(tensor: torch.Tensor, *args: Any, dtype: Any = None, **_: Any) -> None:
        if dtype is None and not any(isinstance(value, torch.dtype) for value in args):
            _floating(name, tensor)

    return check


def _cell(tensor: torch.Tensor, state: Any, weight: torch.Tensor, *_: Any) -> None:
    for given in (tensor, *state) if isinstance(state, (list, tuple)) else (tensor, state):
        _same_dtype(given, weight)


def _recurrent(tensor: torch.Tensor, state: Any, weights: Any, last: Any, *_: Any) -> None:
    if isinstance(last, (list, tuple)):  # packed sequences: the second argument is their batch sizes
        state, weights = weights, last
    if weights:
        _cell(tensor, state, weights[0])


def _nll_loss(tensor: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> None:
    _floating("nll_loss_out_frame", tensor)
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {_type_name(target)}")


def _cross_entropy(tensor: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> None:
    if not target.is_floating_point():  # else they are probabilities
        _nll_loss(tensor, target)


def _embedding(weight: torch.Tensor, indices: torch.Tensor, *_: Any, **__: Any) -> None:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got torch.{_type_name(indices)}Tensor instead (while checking arguments for embedding)"
        )


def check_constant_rows(weight: torch.Tensor, indices: torch.Tensor) -> None:
    """Raise what torch raises where constants, such as positions, look up more rows than a table has."""
    if indices.is_meta or is_traced(indices) or not indices.numel() or indices.is_floating_point():
        return
    highest = int(indices.max())
    if highest >= weight.shape[0]:
        raise IndexError(f"index out of range in self: {highest} in a table of {weight.shape[0]} rows")


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    *_: Any,
    enable_gqa: bool = False,
    **__: Any,
) -> None:
    if not (_mix(query, key) and _mix(query, value)):
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{_type_name(query)} key.dtype: {_type_name(key)} and value.dtype: {_type_name(value)} instead."
        )
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "The sizes of query, key and value do not fit: query "
            f"{_list(query.shape)}, key {_list(key.shape)}, value {_list(value.shape)}"
        )
    leading = -3 if enable_gqa else -2  # grouped heads differ in number
    batch = torch.broadcast_shapes(*(tensor.shape[:leading] for tensor in (query, key, value)))
    if mask is not None and not enable_gqa:
        torch.broadcast_shapes(mask.shape, (*batch, query.shape[-2], key.shape[-2]))


def _index(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: Any, **__: Any) -> None:
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype in _MASK_DTYPES:
            for offset, size in enumerate(index.shape):
                if axis + offset >= tensor.dim() or tensor.shape[axis + offset] != size:
                    raise IndexError(
                        f"The shape of the mask {_list(index.shape)} at index {offset} does not match the "
                        f"shape of the indexed tensor {_list(tensor.shape)} at index {axis + offset}"
                    )
            axis += index.dim()
        elif index.dtype in _INDEX_DTYPES:
            axis += 1
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")


def _index_put(
    tensor: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, *_: Any, **__: Any
) -> None:
    _index(tensor, indices)
    if not _mix(tensor, values):
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{_type_name(tensor)} for the destination and {_type_name(values)} for the source."
        )
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if any(index is not None and index.dtype in _MASK_DTYPES for index in indices):
        return  # how many elements they select depends on their values
    picked = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    rest = [size for axis, size in enumerate(tensor.shape) if axis not in given]
    first = given[0] if given[-1] - given[0] + 1 == len(given) else 0
    result = [*rest[:first], *picked, *rest[first:]]
    sizes = list(values.shape)
    missing = len(result) - len(sizes)
    if missing < 0 or any(size not in (1, result[missing + axis]) for axis, size in enumerate(sizes)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {_list(sizes)} cannot be broadcast to indexing result of "
            f"shape {_list(result)}"
        )


def _one_hot(indices: torch.Tensor, *_: Any) -> None:
    if indices.dtype != torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")


def _bincount(tensor: torch.Tensor, *_: Any, **__: Any) -> None:
    if tensor.dim() != 1 or tensor.dtype not in (*_INDEX_DTYPES, torch.uint8):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")


def _index_select(_tensor: torch.Tensor, _dim: int, index: torch.Tensor) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")


def _index_add(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *_: Any, **__: Any
) -> None:
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"index_add_(): Expected dtype int32/int64 for index but got: {_type_name(index)}")
    if not _mix(tensor, source):
        raise RuntimeError(
            f"index_add_(): self ({_type_name(tensor)}) and source ({_type_name(source)}) must have the same "
            "scalar type"
        )
    if tensor.dim() == 0 or source.dim() == 0:
        return
    rest = [list(shape) for shape in (tensor.shape, source.shape)]
    fits = len(rest[0]) == len(rest[1]) and rest[1].pop(dim) == index.numel()
    rest[0].pop(dim)
    if not fits or rest[0] != rest[1]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {_list(tensor.shape)} source.shape = {_list(source.shape)}"
        )


_CHECKS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_product),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    **dict.fromkeys(("batch_norm", "instance_norm", "native_batch_norm"), _channel_norm),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "index_put_"), _index_put),
    **dict.fromkeys(("gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"), _cell),
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), _recurrent),
    **dict.fromkeys(("nll_loss", "nll_loss2d", "nll_loss_nd"), _nll_loss),
    "cross_entropy_loss": _cross_entropy,
    **{
        name: _needs_floating(name)
        for name in (
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "gelu",
            "glu",
            "hardsigmoid",
            "hardswish",
            "log_softmax",
            "mish",
            "silu",
            "softmax",
            "softplus",
            "std",
            "var",
        )
    },
    "bincount": _bincount,
    **dict.fromkeys(("index_add", "index_add_"), _index_add),
    "convolution": _any_convolution,
    "embedding": _embedding,
    "group_norm": _group_norm,
    "index_select": _index_select,
    "linear": _linear,
    "one_hot": _one_hot,
    "scaled_dot_product_attention": _attention,
}
