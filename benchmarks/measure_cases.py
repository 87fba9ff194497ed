"""What measure.py measures: the shapes that no public data covers, one Case each.

A case is a row of a CSV file without its time. `build` makes one set of random inputs on the device and
`call` runs the operator on them once. torch is imported only when a case is built.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DTYPES = ("fp16", "bf16", "tf32", "fp32")
HALF_TYPES = ("fp16", "bf16")
KINDS = ("gemm", "conv", "vector", "attention")

Row = dict[str, str | int | bool]


@dataclass(frozen=True)
class Case:
    """One operator with its sizes."""

    kind: str
    row: Row
    """Columns of the file in the order of COLUMNS[kind], gpu and time_us left out."""
    bytes: int
    """The bytes of one set of inputs and outputs, about."""
    build: Callable[[Any], Any] = field(repr=False)
    """(device) -> inputs."""
    call: Callable[[Any], Any] = field(repr=False)


COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": ("dtype", "op", "batch", "m", "n", "k", "transpose_b", "transpose_a"),
    "conv": (
        "dtype", "direction", "layout", "n", "c", "h", "w", "k", "r", "s",
        "pad_h", "pad_w", "stride_h", "stride_w", "groups",
    ),
    "vector": ("dtype", "op", "rows", "cols", "layout", "table"),
    "attention": ("dtype", "batch", "seq", "heads", "kv_heads", "head_dim", "causal"),
}  # fmt: skip
"""Columns per kind that say what was measured; `transpose_a` (A stored [k,m]), `layout` of vectors (rows are
N*H*W, cols C) and `table` (rows of an embedding) are additions to the published schema."""


def torch_dtype(name: str) -> Any:
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)


def _itemsize(dtype: str) -> int:
    return 2 if dtype in HALF_TYPES else 4


def _random(device: Any, dtype: str, *shape: int) -> Any:
    import torch

    return torch.randn(shape, device=device, dtype=torch.float32).to(torch_dtype(dtype))


# --- products

GEMM_BASES = (
    (1024, 1024, 1024),
    (4096, 1024, 1024),
    (4096, 4096, 1024),
    (2048, 2048, 4096),
    (8192, 3072, 768),
    (512, 4096, 4096),
    (16384, 256, 1024),
)
OFFSETS = (1, 2, 4, 8, 16, -1)
VOCABULARIES = (50257, 50264, 50304, 30522, 30528, 32001, 33278)
BATCHED = (
    (96, 512, 512, 64),
    (96, 512, 64, 512),
    (64, 197, 197, 64),
    (64, 197, 64, 197),
    (16, 1000, 1000, 80),
)


def gemms(dtypes: tuple[str, ...] = DTYPES, scale: int = 1) -> Iterator[Case]:
    """Aligned and misaligned products in every layout of A and B; vocabularies; batched products."""
    bases = [(m // scale, n // scale, k // scale) for m, n, k in GEMM_BASES]
    shapes = dict.fromkeys(bases)
    for m, n, k in bases:
        for offset in OFFSETS:
            shapes.update(dict.fromkeys(((m + offset, n, k), (m, n + offset, k), (m, n, k + offset))))
    shapes.update(dict.fromkeys((8192 // scale, size, 768 // scale) for size in VOCABULARIES))
    for dtype in dtypes:
        for m, n, k in shapes:
            for transpose_a in (False, True):
                for transpose_b in (False, True):
                    yield _gemm(dtype, 1, m, n, k, transpose_a, transpose_b)
        for batch, m, n, k in BATCHED:
            for transpose_b in (False, True):
                yield _gemm(dtype, max(batch // scale, 2), m, n, k, False, transpose_b)


def _gemm(dtype: str, batch: int, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> Case:
    def build(device: Any) -> Any:
        lead = (batch,) if batch > 1 else ()
        a = _random(device, dtype, *lead, *((k, m) if transpose_a else (m, k)))
        b = _random(device, dtype, *lead, *((n, k) if transpose_b else (k, n)))
        return a.transpose(-1, -2) if transpose_a else a, b.transpose(-1, -2) if transpose_b else b

    def call(inputs: Any) -> Any:
        return inputs[0] @ inputs[1]

    row: Row = {
        "dtype": dtype,
        "op": "bmm" if batch > 1 else "linear" if transpose_b and not transpose_a else "matmul",
        "batch": batch,
        "m": m,
        "n": n,
        "k": k,
        "transpose_b": transpose_b,
        "transpose_a": transpose_a,
    }
    return Case("gemm", row, batch * (m * k + k * n + m * n) * _itemsize(dtype), build, call)


# --- convolutions

NETWORKS = ("resnet50", "mobilenet_v2", "unet", "densenet121", "resnext101_32x4d")
"""Fixtures whose layers are measured; the last one for its grouped convolutions."""
FIRST_LAYER_CHANNELS = (1, 3, 4, 8)
DEPTHWISE = (
    (96, 56, 7, 1), (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1),
    (240, 28, 5, 1), (240, 28, 5, 2), (672, 14, 5, 1), (144, 56, 3, 2), (256, 14, 31, 1),
)  # fmt: skip
"""(channels, edge, kernel, stride) beyond MobileNetV2's 3x3: EfficientNet's, ConvNeXt's and larger."""
GROUPED = ((216, 28, 9), (576, 14, 24), (232, 28, 2), (696, 14, 6), (1024, 14, 64))
"""(channels, edge, groups) of 3x3: RegNet's wide groups."""
DIRECTIONS = ("forward", "dgrad", "wgrad")


def convolutions(
    batch: int, dtypes: tuple[str, ...] = DTYPES, scale: int = 1, networks: tuple[str, ...] = NETWORKS
) -> Iterator[Case]:
    """Every distinct layer of the networks, and those listed above, in three directions and both layouts.

    Args:
        batch: images.
        dtypes: of the tensors.
        scale: divides the images' sizes, for trying the script out.
        networks: fixtures to take layers from.
    """
    layers: dict[tuple[int, ...], None] = {}
    for network in networks:
        layers.update(dict.fromkeys(_layers_of(network, scale)))
    for channels in FIRST_LAYER_CHANNELS:
        for filters, size, stride in ((64, 7, 2), (32, 3, 2), (64, 3, 1)):
            edge = 224 // scale
            layer = (channels, edge, edge, filters, size, size, size // 2, size // 2, stride, stride, 1)
            layers[layer] = None
    for channels, size, taps, stride in DEPTHWISE:
        edge = max(size // scale, 4)
        layers[channels, edge, edge, channels, taps, taps, taps // 2, taps // 2, stride, stride, channels] = (
            None
        )
    for channels, size, groups in GROUPED:
        edge = max(size // scale, 4)
        layers[channels, edge, edge, channels, 3, 3, 1, 1, 1, 1, groups] = None
    for dtype in dtypes:
        for layout in ("nhwc", "nchw"):
            for direction in DIRECTIONS:
                for layer in layers:
                    yield _convolution(dtype, direction, layout, batch, layer)


def _layers_of(network: str, scale: int) -> list[tuple[int, ...]]:
    """(c, h, w, k, r, s, pad_h, pad_w, stride_h, stride_w, groups) of a fixture's 2-D convolutions."""
    import tclint

    path = Path(__file__).parents[1] / "fixtures" / f"{network}.py"
    spec = importlib.util.spec_from_file_location(network, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph = tclint.trace(module.build_model, module.example_inputs(batch=1))
    found = []
    for op in graph.ops:
        if op.name != "conv2d":
            continue
        source, weight = op.input("input"), op.input("weight")
        assert source is not None
        assert weight is not None
        padding, stride = op.attributes["padding"], op.attributes["stride"]
        if not isinstance(padding, (list, tuple)) or any(d != 1 for d in op.attributes["dilation"]):
            continue
        _, channels, height, width = source.shape
        filters, _, rows, columns = weight.shape
        size = (max(height // scale, rows), max(width // scale, columns))
        groups = op.attributes["groups"]
        found.append((channels, *size, filters, rows, columns, *_pair(padding), *_pair(stride), groups))
    return found


def _pair(values: Any) -> tuple[int, int]:
    return (int(values[0]), int(values[-1]))


def _convolution(dtype: str, direction: str, layout: str, batch: int, layer: tuple[int, ...]) -> Case:
    c, h, w, k, r, s, pad_h, pad_w, stride_h, stride_w, groups = layer
    out_h, out_w = (h + 2 * pad_h - r) // stride_h + 1, (w + 2 * pad_w - s) // stride_w + 1

    def build(device: Any) -> Any:
        import torch

        form = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        x = _random(device, dtype, batch, c, h, w).contiguous(memory_format=form)
        weight = _random(device, dtype, k, c // groups, r, s).contiguous(memory_format=form)
        gradient = _random(device, dtype, batch, k, out_h, out_w).contiguous(memory_format=form)
        return x, weight, gradient

    def call(inputs: Any) -> Any:
        import torch

        x, weight, gradient = inputs
        if direction == "forward":
            return torch.nn.functional.conv2d(
                x, weight, None, (stride_h, stride_w), (pad_h, pad_w), 1, groups
            )
        mask = (direction == "dgrad", direction == "wgrad", False)
        return torch.ops.aten.convolution_backward(
            gradient,
            x,
            weight,
            None,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (1, 1),
            False,
            (0, 0),
            groups,
            mask,
        )

    row: Row = {
        "dtype": dtype,
        "direction": {"forward": "fwd"}.get(direction, direction),
        "layout": layout,
        "n": batch,
        "c": c,
        "h": h,
        "w": w,
        "k": k,
        "r": r,
        "s": s,
        "pad_h": pad_h,
        "pad_w": pad_w,
        "stride_h": stride_h,
        "stride_w": stride_w,
        "groups": groups,
    }
    size = (batch * (c * h * w + k * out_h * out_w) + k * (c // groups) * r * s) * _itemsize(dtype)
    return Case("conv", row, size, build, call)


# --- memory-bound operators

IMAGES = ((64, 64, 112), (64, 256, 56), (64, 512, 28), (64, 2048, 7), (64, 72, 28), (8, 24, 56))
"""(N, C, H) of square images."""
MATRICES = tuple((rows, cols) for rows in (512, 4096, 16384) for cols in (129, 768, 1024, 4096))
TOKENS = ((8192, 768, 50257), (4096, 1024, 30522), (2048, 4096, 32000))
LOGITS = ((8192, 50257), (8192, 50304), (4096, 30522), (1024, 1000))


def vectors(dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16"), scale: int = 1) -> Iterator[Case]:
    """Elementwise operators and norms in both layouts, then on matrices; embedding and cross entropy."""
    for dtype in dtypes:
        for op in ("add", "mul", "relu", "silu", "batch_norm", "batch_norm_bwd", "max_pool", "gn"):
            for layout in ("nchw", "nhwc"):
                for batch, channels, size in IMAGES:
                    yield _image_op(dtype, op, layout, max(batch // scale, 1), channels, size)
        for op in (
            "add",
            "mul",
            "addu",
            "mulu",
            "relu",
            "gelu",
            "silu",
            "tanh",
            "ln",
            "rms",
            "softmax",
            "copy",
        ):
            for rows, cols in MATRICES:
                yield _matrix_op(dtype, op, max(rows // scale, 1), cols)
        for op in ("ln_bwd", "softmax_bwd", "gelu_bwd", "cast"):
            for rows, cols in MATRICES:
                yield _matrix_op(dtype, op, max(rows // scale, 1), cols)
        for rows, cols, table in TOKENS:
            for op in ("embedding", "embedding_bwd"):
                yield _embedding(dtype, op, max(rows // scale, 1), cols, table)
        for rows, cols in LOGITS:
            for op in ("cross_entropy", "cross_entropy_bwd"):
                yield _matrix_op(dtype, op, max(rows // scale, 1), cols)


def _vector_row(dtype: str, op: str, rows: int, cols: int, layout: str = "", table: int | str = "") -> Row:
    return {"dtype": dtype, "op": op, "rows": rows, "cols": cols, "layout": layout, "table": table}


def _image_op(dtype: str, op: str, layout: str, batch: int, channels: int, size: int) -> Case:
    def build(device: Any) -> Any:
        import torch

        form = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        x = _random(device, dtype, batch, channels, size, size).contiguous(memory_format=form)
        other = torch.empty_like(x).normal_()
        parameters = [torch.rand(channels, device=device) + 0.5 for _ in range(4)]
        # cuDNN's or torch's own kernel, as F.batch_norm would choose, and what its backward reads.
        saved = _batch_norm(x, parameters)[1:] if op == "batch_norm_bwd" else ()
        return x, other, parameters, saved

    def call(inputs: Any) -> Any:
        import torch
        from torch.nn import functional as F

        x, other, parameters, saved = inputs
        match op:
            case "batch_norm":
                return _batch_norm(x, parameters)
            case "batch_norm_bwd":
                weight, _, mean, variance = parameters
                saved_mean, saved_deviation, reserve, kernel = saved
                return torch.ops.aten._batch_norm_impl_index_backward(
                    kernel, x, other, weight, mean, variance, saved_mean, saved_deviation,
                    True, 1e-5, (True, True, True), reserve,
                )  # fmt: skip
            case "gn":
                return F.group_norm(x, 8)
            case "max_pool":
                return torch.ops.aten.max_pool2d_with_indices(x, (3, 3), (2, 2), (1, 1))
        return _pointwise(op, x, other)

    elements = batch * channels * size * size
    row = _vector_row(dtype, op, batch * size * size, channels, layout)
    return Case("vector", row, 3 * elements * _itemsize(dtype), build, call)


def _batch_norm(x: Any, parameters: Any) -> Any:
    import torch

    weight, bias, mean, variance = parameters
    return torch.ops.aten._batch_norm_impl_index(x, weight, bias, mean, variance, True, 0.1, 1e-5, True)


def _matrix_op(dtype: str, op: str, rows: int, cols: int) -> Case:
    def build(device: Any) -> Any:
        import torch

        x, other = (_random(device, dtype, rows, cols) for _ in range(2))
        y = torch.softmax(x.float(), -1).to(x.dtype)
        target = torch.randint(cols, (rows,), device=device)
        statistics = [torch.rand(rows, 1, device=device) + 0.5 for _ in range(2)]
        return x, other, y, target, _random(device, dtype, cols), statistics

    def call(inputs: Any) -> Any:
        import torch
        from torch.nn import functional as F

        x, other, y, target, weight, (mean, deviation) = inputs
        match op:
            case "ln":
                return F.layer_norm(x, (cols,), weight, weight)
            case "ln_bwd":
                return torch.ops.aten.native_layer_norm_backward(
                    other, x, (cols,), mean.to(x.dtype) if x.device.type == "cpu" else mean,
                    deviation.to(x.dtype) if x.device.type == "cpu" else deviation,
                    weight, weight, (True, True, True),
                )  # fmt: skip
            case "rms":
                return F.rms_norm(x, (cols,), weight)
            case "softmax":
                return torch.softmax(x, -1)
            case "softmax_bwd":
                return torch.ops.aten._softmax_backward_data(other, y, -1, y.dtype)
            case "gelu_bwd":
                return torch.ops.aten.gelu_backward(other, x)
            case "copy":
                return x.clone()
            case "cast":
                return x.to(torch.float32 if x.dtype != torch.float32 else torch.float16)
            case "cross_entropy":
                return F.cross_entropy(x, target)
            case "cross_entropy_bwd":
                return torch.ops.aten._log_softmax_backward_data(other, y, -1, y.dtype)
        return _pointwise(op, x, other)

    return Case("vector", _vector_row(dtype, op, rows, cols), 3 * rows * cols * _itemsize(dtype), build, call)


def _pointwise(op: str, x: Any, other: Any) -> Any:
    import torch
    from torch.nn import functional as F

    match op:
        case "add":
            return x + other
        case "mul":
            return x * other
        case "addu":
            return x + 1.5
        case "mulu":
            return x * 1.5
        case "relu":
            return torch.relu(x)
        case "gelu":
            return F.gelu(x)
        case "silu":
            return F.silu(x)
        case "tanh":
            return torch.tanh(x)
    raise ValueError(f"unknown operator {op!r}")


def _embedding(dtype: str, op: str, rows: int, cols: int, table: int) -> Case:
    def build(device: Any) -> Any:
        import torch

        indices = torch.randint(table, (rows,), device=device)
        return _random(device, dtype, table, cols), indices, _random(device, dtype, rows, cols)

    def call(inputs: Any) -> Any:
        import torch

        weight, indices, gradient = inputs
        if op == "embedding":
            return torch.nn.functional.embedding(indices, weight)
        return torch.ops.aten.embedding_dense_backward(gradient, indices, table, -1, False)

    size = (table + 2 * rows) * cols * _itemsize(dtype)
    return Case("vector", _vector_row(dtype, op, rows, cols, "", table), size, build, call)


# --- attention

ATTENTION = tuple(
    (batch, length, heads, kv_heads, head_dim)
    for batch, length in ((1, 512), (8, 512), (8, 1024), (4, 2048), (2, 4096), (64, 197))
    for heads, kv_heads, head_dim in ((12, 12, 64), (16, 16, 128), (32, 8, 128), (12, 12, 72))
)


def attentions(dtypes: tuple[str, ...] = HALF_TYPES, scale: int = 1) -> Iterator[Case]:
    """Fused forward attention, with and without a causal mask."""
    for dtype in dtypes:
        for batch, length, heads, kv_heads, head_dim in ATTENTION:
            for causal in (False, True):
                yield _attention(dtype, batch, max(length // scale, 8), heads, kv_heads, head_dim, causal)


def _attention(
    dtype: str, batch: int, length: int, heads: int, kv_heads: int, head_dim: int, causal: bool
) -> Case:
    def build(device: Any) -> Any:
        counts = (heads, kv_heads, kv_heads)
        return tuple(_random(device, dtype, batch, count, length, head_dim) for count in counts)

    def call(inputs: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=heads != kv_heads)

    row: Row = {
        "dtype": dtype,
        "batch": batch,
        "seq": length,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "causal": causal,
    }
    size = 2 * batch * length * head_dim * (heads + kv_heads) * _itemsize(dtype)
    return Case("attention", row, size, build, call)


def all_cases(kinds: tuple[str, ...], conv_batch: int, scale: int) -> Iterator[Case]:
    """Every case of these kinds."""
    if "gemm" in kinds:
        yield from gemms(scale=scale)
    if "vector" in kinds:
        yield from vectors(scale=scale)
    if "attention" in kinds:
        yield from attentions(scale=scale)
    if "conv" in kinds:
        yield from convolutions(conv_batch, scale=scale)
