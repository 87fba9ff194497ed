"""What operators of a trace asked for: their sizes, and the works that tclint prices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tclint.core.toml import packaged_toml
from tclint.graph.lowering.convolution import suggests_channels_last
from tclint.graph.lowering.walks import concatenation, walk
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, TrafficClass, Walk, Work
from tclint.graph.ops.spec import TensorSpec, contiguous_strides, itemsize_bytes
from tclint.profile.kernel_names import kernel_name
from tclint.profile.trace import Operator, Shape

OPERATORS = packaged_toml("tclint.profile", "operators.toml")
DTYPES: dict[str, str] = OPERATORS["dtypes"]
"""torch's names of what the profiler records in C++'s."""
_PRODUCTS, _CONVOLUTIONS = (
    frozenset(f"aten::{name}" for name in names) for names in OPERATORS["matrix_work"].values()
)


@dataclass(frozen=True, slots=True)
class ProductSizes:
    """C[M,N] = A[M,K] B[K,N], `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def dims(self) -> dict[str, int]:
        return {"M": self.m, "N": self.n, "K": self.k}

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def text(self) -> str:
        """'M 4096, N 1024, K 3137', with the batch where there is one."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return batch + ", ".join(f"{name} {size}" for name, size in self.dims.items())


def dtype_of(operator: Operator | None) -> str | None:
    """The operands' dtype: that of the last of the operator's floating-point tensors; None where unknown.

    The last, since a product's first argument may be a bias, and under autocast operators that own casts come
    before those that run.
    """
    found = None
    for kind, shape in zip(operator.dtypes, operator.dims, strict=False) if operator else ():
        name = DTYPES.get(kind) if isinstance(kind, str) else None
        if name is not None and shape and name.startswith(("float", "bfloat")):
            found = name
    return found


def tensor_shapes(operator: Operator) -> list[Shape]:
    """The shapes of its tensors, those of lists included; scalars and other arguments left out."""
    shapes: list[Shape] = []
    for shape in operator.dims:
        if shape and isinstance(shape[0], tuple):
            shapes += [inner for inner in shape if inner]
        elif shape:
            shapes.append(shape)  # type: ignore[arg-type]
    return shapes


def product_sizes(operator: Operator | None) -> ProductSizes | None:
    """The sizes of a matrix product; None for other operators, or where sizes were not recorded."""
    if operator is None or operator.name not in _PRODUCTS:
        return None
    shapes = tensor_shapes(operator)
    if operator.name == "aten::linear":
        if len(shapes) < 2 or len(shapes[1]) != 2:
            return None
        x, weight = shapes[0], shapes[1]
        return ProductSizes(prod(x[:-1]), weight[0], weight[1])
    if operator.name == "aten::_addmm_activation":
        shapes = shapes[:3]
    if len(shapes) < 2:
        return None
    a, b = shapes[-2:]
    if len(b) == 1:
        return ProductSizes(prod(a[:-1]), 1, a[-1])
    if len(a) < 2:
        return None
    batch = prod(a[:-2]) if len(a) > 2 else 1
    return ProductSizes(a[-2], b[-1], a[-1], batch)


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """Channels and taps of a convolution."""

    in_channels: int
    out_channels: int
    per_group: int
    """Input channels of one group."""
    taps: tuple[int, ...]

    @property
    def is_depthwise(self) -> bool:
        return self.per_group == 1 and self.in_channels > 1

    @property
    def text(self) -> str:
        """'3 -> 64 channels, 7x7'."""
        taps = "x".join(map(str, self.taps))
        groups = (
            f", {self.in_channels // max(self.per_group, 1)} groups"
            if self.per_group < self.in_channels
            else ""
        )
        return f"{self.in_channels} -> {self.out_channels} channels, {taps}{groups}"


def convolution_sizes(operator: Operator | None) -> ConvolutionSizes | None:
    """The sizes of a convolution or its gradient; None for other operators, or where sizes were not
    recorded."""
    if operator is None:
        return None
    shapes = tensor_shapes(operator)
    if operator.name in _CONVOLUTIONS and len(shapes) >= 2:
        x, weight = shapes[0], shapes[1]
    elif operator.name == "aten::convolution_backward" and len(shapes) >= 3:
        x, weight = shapes[1], shapes[2]  # behind the gradient of the output
    elif operator.name == "aten::cudnn_convolution_backward" and len(shapes) >= 3:
        x, weight = shapes[0], shapes[2]
    elif operator.name == "aten::cudnn_convolution_backward_input" and len(shapes) == 2:
        weight = shapes[1]  # the input's own size is a list of numbers, which are not recorded
        depthwise = weight[1:2] == (1,)
        x = (0, weight[0] if depthwise else weight[1], *weight[2:]) if len(weight) > 2 else ()
    else:
        return None
    if len(weight) < 3 or len(x) != len(weight):
        return None
    return ConvolutionSizes(x[1], weight[0], weight[1], weight[2:])


def sizes_text(operator: Operator) -> str:
    """'M 4096, N 1024, K 3137' of matrix work, else the shapes of at most three arguments."""
    known = product_sizes(operator) or convolution_sizes(operator)
    if known is not None:
        return known.text
    shapes = [
        str([list(one) if isinstance(one, tuple) else one for one in shape])
        for shape in operator.dims
        if shape
    ]
    return ", ".join(shapes[:3]) + (", ..." if len(shapes) > 3 else "")


_CLASSES: dict[str, TrafficClass] = {
    name: traffic_class for traffic_class, names in OPERATORS["traffic"].items() for name in names
}
_OPERATIONS: dict[str, str] = OPERATORS["operations"]
_READS = {"cudnn_batch_norm": 2, "cudnn_batch_norm_backward": 2, "native_layer_norm_backward": 2}
"""How often the activations are read; once where not listed."""
_COMPARISONS = frozenset({"ge", "le", "gt", "lt", "eq"})
_PLAIN_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})


def work_of(operator: Operator, kernels: Sequence[str]) -> Work | None:
    """What an operator made the GPU do; None where tclint cannot tell from what the trace recorded.

    Args:
        kernels: names of the kernels that it launched. Where no strides were recorded, they tell the layout.
    """
    try:
        if operator.name in _PLAIN_PRODUCTS:
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
    if operator is None or sizes is None or operator.name not in _PLAIN_PRODUCTS:
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
