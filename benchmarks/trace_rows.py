"""Operators of profiler traces as tclint's works: a table with one row per (trace, operator, sizes).

    python benchmarks/trace_rows.py FILE.csv

Columns: source, gpu, tf32 ('tf32' where matrix products may use it, 'tf32-cudnn' where convolutions alone),
op (ATen name), dims, types and strides (JSON lists, strides may be null), concrete (values of scalars), n,
measured_us, on_tensor_cores, kernels (names). Prints how often "runs on Tensor Cores" is right, by rows and
by time. Where a trace has no strides, the layout of a product is read from its kernel's name.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tclint.config.settings import Precision
from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.pricing import price_works
from tclint.graph.lowering.convolution import suggests_channels_last
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work
from tclint.graph.ops.spec import TensorSpec, itemsize_bytes

Row = Mapping[str, str]

TYPES = {
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "double": "float64",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "bool": "bool",
    "unsigned char": "uint8",
}
SHORT = {"float16": "fp16", "bfloat16": "bf16"}
LEAST_US = 8.0
"""Shorter kernels are within the resolution of older traces, which is a microsecond."""

VECTORS: dict[str, tuple[str, str]] = {
    **{
        name: ("elementwise", name)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "neg",
            "abs",
            "exp",
            "log",
            "log2",
            "sqrt",
            "tanh",
            "sigmoid",
            "gelu",
            "relu",
            "clamp",
            "clamp_min",
            "nan_to_num",
            "where",
            "sigmoid_backward",
            "tanh_backward",
            "threshold_backward",
            "ge",
            "le",
            "gt",
            "lt",
            "eq",
            "addcmul",
            "addcdiv",
            "masked_fill",
        ]
    },
    "copy": ("copy", "_to_copy"),
    "cat": ("copy", "cat"),
    "native_layer_norm": ("norm", "layer_norm"),
    "native_layer_norm_backward": ("norm", "layer_norm_backward"),
    "cudnn_batch_norm": ("norm", "batch_norm"),
    "cudnn_batch_norm_backward": ("norm", "batch_norm_backward"),
    "_softmax": ("softmax", "softmax"),
    "_log_softmax": ("softmax", "log_softmax"),
    "sum": ("reduction", "sum"),
    "mean": ("reduction", "mean"),
}
"""Operators, their in-place forms included, as traffic class and operation."""
READS = {
    "cudnn_batch_norm": 2,
    "cudnn_batch_norm_backward": 2,
    "native_layer_norm_backward": 2,
}
"""How often the activations are read; once where not listed."""
COMPARISONS = frozenset({"ge", "le", "gt", "lt", "eq"})


def specs(row: Row) -> list[TensorSpec]:
    """The tensors among an operator's arguments, lists of tensors included."""
    dims, types = json.loads(row["dims"]), json.loads(row["types"])
    strides = json.loads(row["strides"]) if row["strides"] not in ("", "null") else None
    found = []
    for index, (size, kind) in enumerate(zip(dims, types, strict=True)):
        given = strides[index] if strides else None
        if size and isinstance(size[0], list):
            members = zip(size, given or [None] * len(size), strict=True)
            found += [TensorSpec(tuple(s), "bfloat16", tuple(g) if g else None) for s, g in members]
        elif kind in TYPES and size:
            found.append(TensorSpec(tuple(size), TYPES[kind], tuple(given) if given else None))
    return found


def _letter(spec: TensorSpec, row: Row, position: int, letters: str) -> str:
    """Which of a matrix's two dims is contiguous; `letters` names them, rows first."""
    if spec.strides is not None:
        return letters[0] if spec.strides[-2] == 1 and spec.shape[-2] > 1 else letters[1]
    # cuBLAS counts columns first, so that its operands are B and A.
    name = re.search(r"_([nt])([nt])(?:_|\b)", row["kernels"])
    transposed = name is not None and name[2 - position] == "t"
    return letters[0] if transposed else letters[1]


def gemm(row: Row) -> Gemm:
    """mm, addmm, bmm, baddbmm."""
    a, b = specs(row)[-2:]
    return Gemm(
        a.shape[-2],
        b.shape[-1],
        a.shape[-1],
        a.dtype,
        a.shape[0] if len(a.shape) == 3 else 1,
        _letter(a, row, 0, "mk"),  # type: ignore[arg-type]
        _letter(b, row, 1, "kn"),  # type: ignore[arg-type]
        "n",
    )


def convolution(row: Row) -> Convolution:
    """A forward convolution whose stride and padding were recorded.

    Raises:
        ValueError: they were not.
    """
    x, w = specs(row)[:2]
    concrete = [json.loads(value) for value in (json.loads(row["concrete"] or "null") or [])[2:5] if value]
    if len(concrete) != 3:
        raise ValueError("no stride recorded")
    padding, stride, dilation = (tuple(value) for value in concrete)
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
        groups=x.shape[1] // w.shape[1],
        dtype=x.dtype,
        channels_last=suggests_channels_last(x),
    )


def attention(row: Row) -> Attention:
    """A fused forward attention of [batch, length, heads, head_dim] tensors."""
    q, k, v = specs(row)[:3]
    return Attention(
        q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3], q.dtype
    )


def vector(row: Row) -> Traffic:
    """A memory-bound operator: tensors read and written once, unless READS says otherwise."""
    name = row["op"].removeprefix("aten::").removesuffix("_") if row["op"] != "aten::_softmax" else "_softmax"
    traffic_class, operation = VECTORS[name]
    found = specs(row)
    first = max(found, key=lambda spec: spec.numel)
    if traffic_class == "elementwise" and len(found) > 1 and "[], [" in row["dims"]:
        found = found[:1]  # x, a number, and the tensor that is written
    size, read = first.bytes, sum(spec.bytes for spec in found)
    if name == "cat":
        dtype = "float32" if "float" in row["kernels"] else "bfloat16"
        read = size = sum(spec.numel for spec in found) * itemsize_bytes(dtype)
    elif name == "copy":
        size, read = found[0].bytes, found[1].bytes if len(found) > 1 else found[0].bytes
        if found[0].dtype == found[1].dtype:
            operation = "clone"
    elif name in COMPARISONS:
        size = first.numel
    elif name in READS:
        read *= READS[name]
    elif traffic_class == "reduction":
        size = 0
    columns = first.shape[-1] if traffic_class in ("norm", "softmax") else 0
    return Traffic(
        traffic_class,  # type: ignore[arg-type]
        operation,
        read,
        size,
        rows=first.numel // max(columns, 1) if columns else 0,
        columns=columns,
        dtype=first.dtype,
    )


CONVERTERS: dict[str, Callable[[Row], Work]] = {
    **dict.fromkeys(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"), gemm),
    "aten::cudnn_convolution": convolution,
    "aten::_flash_attention_forward": attention,
    **{f"aten::{name}": vector for name in VECTORS},
    **{f"aten::{name}_": vector for name in VECTORS},
}


def precision_of(row: Row, work: Work) -> Precision:
    """The switches that the trace ran with."""
    if work.dtype in SHORT:
        return SHORT[work.dtype]  # type: ignore[return-value]
    return "tf32" if row["tf32"] == "tf32" else "fp32"


def priced_rows(rows: Sequence[Row]) -> list[tuple[Row, Work]]:
    """Rows that tclint can price, with their works.

    Products that were copied first are left out: the copies are operators of their own.
    """
    found = []
    for row in rows:
        convert = CONVERTERS.get(row["op"])
        product = convert is gemm
        if convert is None or (product and "elementwise" in row["kernels"]):
            continue
        try:
            work = convert(row)
        except (ValueError, IndexError):
            continue
        found.append((row, work))
    return found


def main() -> int:
    with Path(sys.argv[1]).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    right: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    verbose = "-v" in sys.argv
    counted: dict[tuple[bool, bool], int] = defaultdict(int)
    errors: dict[str, list[float]] = defaultdict(list)
    for row, work in priced_rows(rows):
        gpu = load_gpu(row["gpu"])
        price = price_works([work], gpu, precision_of(row, work))[0]
        if price is None:
            continue
        measured = float(row["measured_us"])
        if measured >= LEAST_US:
            errors[f"{gpu.id} {row['op']}"].append(100 * (price.time_us / measured - 1))
        if verbose:
            print(f"{row['source'][:14]} {row['op']} {row['dims']} {price.time_us:.1f} / {measured}")
        if not isinstance(work, (Gemm, Convolution)):
            continue
        truth = row["on_tensor_cores"] == "True"
        counted[truth, price.uses_tensor_cores] += 1
        for key, weight in (("rows", 1.0), ("time", float(row["sum_us"]))):
            right[key][0] += weight * (truth == price.uses_tensor_cores)
            right[key][1] += weight
        if truth != price.uses_tensor_cores and verbose:
            print(f"  wrong: {price.uses_tensor_cores}, {row['kernels'][:80]}")
    for key, (good, total) in right.items():
        print(f"Tensor Cores or not, right by {key}: {100 * good / total:.1f} %")
    for key, values in sorted(errors.items()):
        absolute = sorted(abs(value) for value in values)
        mean, bias = sum(absolute) / len(values), sum(values) / len(values)
        median = absolute[len(values) // 2]
        print(f"{key:45} n {len(values):3} mean {mean:6.1f} median {median:6.1f} bias {bias:6.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
