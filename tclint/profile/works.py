"""Operators of a trace as the works that tclint prices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tclint.graph.lowering.convolution import suggests_channels_last
from tclint.graph.lowering.walks import concatenation, walk
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, TrafficClass, Walk, Work
from tclint.graph.ops.spec import TensorSpec, contiguous_strides, itemsize_bytes
from tclint.profile.kernel_names import kernel_name
from tclint.profile.sizes import DTYPES, OPERATORS, product_sizes
from tclint.profile.trace import Operator

_CLASSES: dict[str, TrafficClass] = {
    name: traffic_class for traffic_class, names in OPERATORS["traffic"].items() for name in names
}
_OPERATIONS: dict[str, str] = OPERATORS["operations"]
_READS = {"cudnn_batch_norm": 2, "cudnn_batch_norm_backward": 2, "native_layer_norm_backward": 2}
"""How often the activations are read; once where not listed."""
_COMPARISONS = frozenset({"ge", "le", "gt", "lt", "eq"})
_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})


def work_of(operator: Operator, kernels: Sequence[str]) -> Work | None:
    """What an operator made the GPU do; None where tclint cannot tell from what the trace recorded.

    Args:
        kernels: names of the kernels that it launched. Where no strides were recorded, they tell the layout.
    """
    try:
        if operator.name in _PRODUCTS:
            return gemm_of(operator, kernels)
        if operator.name == "aten::cudnn_convolution":
            return _convolution(operator)
        if operator.name == "aten::_flash_attention_forward":
            return _attention(operator)
        return _traffic(operator, kernels)
    except (IndexError, ValueError):
        return None


def specs_of(operator: Operator) -> list[TensorSpec]:
    """The tensors among an operator's arguments, those of lists included (whose dtype was not recorded)."""
    found = []
    for index, (size, kind) in enumerate(zip(operator.dims, operator.dtypes, strict=False)):
        given = operator.strides[index] if index < len(operator.strides) else ()
        if size and isinstance(size[0], tuple):
            members = zip(size, given or (None,) * len(size), strict=True)
            found += [TensorSpec(shape, "bfloat16", strides or None) for shape, strides in members]  # type: ignore[arg-type]
        elif kind in DTYPES and size:
            found.append(TensorSpec(size, DTYPES[kind], given or None))  # type: ignore[arg-type]
    return found


def gemm_of(operator: Operator | None, kernels: Sequence[str]) -> Gemm | None:
    """The sizes of a matrix product, and which of its dims are contiguous; None for other operators."""
    sizes = product_sizes(operator)
    if operator is None or sizes is None or operator.name not in _PRODUCTS:
        return None
    a, b = specs_of(operator)[-2:]
    layout = next((found for name in kernels if (found := kernel_name(name).layout)), None)
    a_rows, b_rows = _rows_contiguous(a, layout, 1), _rows_contiguous(b, layout, 0)
    a_letter: Literal["m", "k"] = "m" if a_rows else "k"
    b_letter: Literal["k", "n"] = "k" if b_rows else "n"
    return Gemm(sizes.m, sizes.n, sizes.k, a.dtype, sizes.batch, a_letter, b_letter, "n")


def _rows_contiguous(spec: TensorSpec, layout: str | None, position: int) -> bool:
    """Whether a matrix lies column by column.

    Args:
        layout: as BLAS counts, columns first: its operands are B and A, and 't' is what lies that way.
        position: of the operand there.
    """
    if spec.strides is not None:
        return spec.strides[-2] == 1 and spec.shape[-2] > 1
    return layout is not None and layout[position : position + 1] == "t" and len(layout) == 2


def _convolution(operator: Operator) -> Convolution | None:
    """A forward convolution whose padding, stride and dilation were recorded."""
    x, w = specs_of(operator)[:2]
    values = [_numbers(text) for text in operator.concrete[2:5] if text]
    if len(values) != 3:
        return None
    padding, stride, dilation = values
    extents = zip(x.shape[2:], w.shape[2:], padding, stride, dilation, strict=True)
    return Convolution(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=w.shape[0],
        input_size=x.shape[2:],
        output_size=tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, p, s, d in extents),
        kernel_size=w.shape[2:],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=x.shape[1] // max(w.shape[1], 1),
        dtype=x.dtype,
        channels_last=suggests_channels_last(x),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.strip("[]()").split(","))


def _attention(operator: Operator) -> Attention:
    """A fused forward attention of [batch, length, heads, head_dim] tensors."""
    q, k, v = specs_of(operator)[:3]
    return Attention(
        *(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3], q.dtype),
        kernel="FlashAttention 2",
    )


def _traffic(operator: Operator, kernels: Sequence[str]) -> Traffic | None:
    """A memory-bound operator: tensors read and written once, unless _READS says otherwise."""
    name = operator.name.removeprefix("aten::")
    name = name if name in _CLASSES else name.removesuffix("_")
    if name not in _CLASSES or not operator.name.startswith("aten::"):
        return None
    traffic_class, operation = _CLASSES[name], _OPERATIONS.get(name, name)
    found = specs_of(operator)
    if not found:
        return None
    first = max(found, key=lambda spec: spec.numel)
    has_number = any(not a and b for a, b in zip(operator.dims, operator.dims[1:], strict=False))
    if traffic_class == "elementwise" and len(found) > 1 and has_number:
        found = found[:1]  # x, a number, and the tensor that is written
    size, read = first.bytes, sum(spec.bytes for spec in found)
    walked = None
    if name == "cat":
        dtype = "float32" if any("float" in kernel for kernel in kernels) else "bfloat16"
        read = size = sum(spec.numel for spec in found) * itemsize_bytes(dtype)
        walked = _concatenation(found, dtype)
    elif name == "copy":
        size, read = found[0].bytes, found[1].bytes if len(found) > 1 else found[0].bytes
        if found[0].dtype == found[-1].dtype:
            operation = "clone"
    elif name in _COMPARISONS:
        size = first.numel
    elif name in _READS:
        read *= _READS[name]
    elif traffic_class == "reduction":
        size = 0
    columns = first.shape[-1] if traffic_class in ("norm", "softmax") else 0
    rows = first.numel // max(columns, 1) if columns else 0
    # Several results in a thread: they lie beside each other, and what is summed up does not.
    is_by_column = traffic_class == "reduction" and any(map(_COLUMNS.search, kernels))
    summed = first.numel // first.shape[-1] if is_by_column and first.numel else 0
    if name != "cat" and traffic_class in ("elementwise", "copy") and "Memcpy" not in kernels[0]:
        walked = _walk(found, kernels, in_place=name == "copy" or operator.name.endswith("_"))
    return Traffic(
        traffic_class,
        operation,
        read,
        size,
        rows=rows,
        columns=columns,
        dtype=first.dtype,
        summed=summed,
        walk=walked,
    )


def _walk(found: Sequence[TensorSpec], kernels: Sequence[str], *, in_place: bool) -> Walk | None:
    """How an elementwise kernel walks through its tensors; by its name where no strides were recorded."""
    first = max(found, key=lambda spec: spec.numel)
    if any(spec.strides is None for spec in found):
        one_by_one = any(re.search(r"::elementwise_kernel<", name) for name in kernels)
        return Walk(first.numel, len(found) + (not in_place), 2, 0) if one_by_one else None
    return walk(found[0] if in_place else _result(first), found[in_place:] or found)


def _result(spec: TensorSpec) -> TensorSpec:
    """What an elementwise operation makes of a tensor: dense, its dims in the order that they had."""
    assert spec.strides is not None
    order = sorted(range(len(spec.shape)), key=lambda dim: -spec.strides[dim])  # type: ignore[index]
    dense = contiguous_strides(tuple(spec.shape[dim] for dim in order))
    return replace(spec, strides=tuple(dense[order.index(dim)] for dim in range(len(order))))


def _concatenation(parts: Sequence[TensorSpec], dtype: str) -> Walk | None:
    """Along the dim in which the parts differ, else the last one."""
    extents = enumerate(zip(*(part.shape for part in parts), strict=True))
    axis = next((dim for dim, sizes in extents if len({*sizes}) > 1), -1)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return concatenation(TensorSpec(tuple(shape), dtype, contiguous_strides(tuple(shape))), parts, axis)


_COLUMNS = re.compile(r"reduce_kernel<\d+, [24],")
