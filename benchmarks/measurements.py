"""Published kernel times as tclint works: reading the CSV files, and what is known of their harnesses."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from traces import LEAST_US, precision_of, priced_rows

import tclint.cost.gpu
from tclint.config.settings import Precision
from tclint.core.toml import parse_toml
from tclint.cost.gpu import Calibration, Gpu, load_gpu
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work

FloatArray = npt.NDArray[np.float64]

DTYPES: dict[str, tuple[str, Precision]] = {
    "fp32": ("float32", "fp32"),
    "tf32": ("float32", "tf32"),
    "fp16": ("float16", "fp16"),
    "bf16": ("bfloat16", "bf16"),
    "fp64": ("float64", "fp32"),
    "int8": ("int8", "fp16"),
    "fp8": ("float8_e4m3fn", "fp16"),
}
"""A file's dtype as torch's, and the precision whose TF32 switches the measurement had."""

HELD_OUT_ONE_IN = 5
PADDED_SOURCES = frozenset({"deepbench"})
"""Campaigns whose library pads 16-bit sizes to 8 itself (CUDA 10)."""

SEARCHED_SOURCES = frozenset({"deepbench"})
"""Campaigns that time the fastest of all of cuDNN's algorithms, which in 16 bits are those that convert no
layout: 1x1 convolutions of NCHW tensors take as long as their product in all three directions. Steps of whole
networks in NCHW show the conversions that torch's choice takes. The rows count as kernels of NHWC."""

SERVING_SOURCES = frozenset({"vidur"})
"""Campaigns that time a serving engine's own kernels: priced with constants of their own ('vllm_*'), because
they stream at half of what torch's kernels reach and say nothing of those. Their sums are torch's."""
PHI_2_WIDTH = 2560
"""The one model of that campaign with parallel residuals: its 'add' is of three tensors, in two kernels, and
its norm is torch's LayerNorm (vidur/profiling/mlp/mlp_impl.py, _forward_without_post_attn_norm)."""

_SCHEMAS: dict[str, frozenset[str]] = {
    "gemm": frozenset({"gpu", "dtype", "op", "batch", "m", "n", "k", "transpose_b", "time_us"}),
    "conv": frozenset({"gpu", "dtype", "direction", "layout", "n", "c", "h", "w", "k", "r", "s", "time_us"}),
    "vector": frozenset({"gpu", "dtype", "op", "rows", "cols", "time_us"}),
    "attention": frozenset({"gpu", "dtype", "batch", "seq", "heads", "head_dim", "causal", "time_us"}),
    "traces": frozenset({"gpu", "tf32", "op", "dims", "types", "strides", "measured_us", "kernels"}),
    "models": frozenset({"gpu", "model", "phase", "amp", "layout", "batch", "samples_per_sec"}),
}


@dataclass(frozen=True)
class Group:
    """Rows of one file, GPU, dtype and kind."""

    file: str
    gpu: str
    dtype: str
    kind: str
    """The file's own name of the kind: 'linear', 'bmm', 'conv fwd', 'add', 'attention', ..."""
    source: str
    works: tuple[Work, ...]
    times_us: FloatArray
    held_out: npt.NDArray[np.bool_]
    """Rows that calibration never fits: a fifth of the shapes, chosen by a hash of (N, K)."""

    def __len__(self) -> int:
        return len(self.times_us)


@dataclass(frozen=True)
class Unhandled:
    """A file, or a part of it, that tclint cannot price, with the reason."""

    file: str
    gpu: str
    dtype: str
    kind: str
    n: int
    reason: str


@dataclass(frozen=True)
class WholeModels:
    """A file of throughput of whole models; model_accuracy.py reads it."""

    file: str


def read_folder(folder: Path) -> Iterator[Group | Unhandled | WholeModels]:
    """Every group of every CSV file in a folder, files in alphabetical order.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    for path in sorted(folder.glob("*.csv")):
        yield from read_file(path)


def read_file(path: Path) -> Iterator[Group | Unhandled | WholeModels]:
    """The groups of one CSV file; a file of another schema is one Unhandled."""
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        columns = frozenset(reader.fieldnames or ())
        rows = list(reader)
    schema = next((name for name, needed in _SCHEMAS.items() if needed <= columns), None)
    if schema is None:
        if "time_us" in columns or "samples_per_sec" in columns:
            yield Unhandled(path.name, "", "", "", len(rows), "unknown columns")
        return
    if schema == "models":
        yield WholeModels(path.name)
        return
    if schema == "traces":
        yield from _traced(path.name, rows)
        return
    groups: dict[tuple[str, str, str, str], list[dict[str, str]]] = {}
    for row in rows:
        kind = _KINDS[schema](row)
        groups.setdefault((row["gpu"], row["dtype"], kind, row.get("source", "")), []).append(row)
    for (gpu, dtype, kind, source), members in groups.items():
        yield _group(path.name, gpu, dtype, kind, source, schema, members)


def _group(
    file: str, gpu: str, dtype: str, kind: str, source: str, schema: str, rows: Sequence[dict[str, str]]
) -> Group | Unhandled:
    if dtype not in DTYPES:
        return Unhandled(file, gpu, dtype, kind, len(rows), f"unknown dtype {dtype!r}")
    torch_dtype, _ = DTYPES[dtype]
    try:
        works = tuple(_WORKS[schema](row, torch_dtype) for row in rows)
        times = np.array([float(row["time_us"]) for row in rows])
    except (KeyError, ValueError) as error:
        reason = f"a row cannot be read: {type(error).__name__} {error}"
        return Unhandled(file, gpu, dtype, kind, len(rows), reason)
    held_out = np.array([is_held_out(_HASHED[schema](row)) for row in rows], dtype=bool)
    return Group(file, gpu, dtype, kind, source, works, times, held_out)


def _traced(file: str, rows: Sequence[dict[str, str]]) -> Iterator[Group]:
    """The products among the operators of profiler traces."""
    groups: dict[tuple[str, str], list[tuple[Gemm, float]]] = {}
    for row, work in priced_rows(rows):
        if isinstance(work, Gemm) and float(row["measured_us"]) >= LEAST_US:
            key = (load_gpu(row["gpu"]).id, precision_of(row, work))
            groups.setdefault(key, []).append((work, float(row["measured_us"])))
    for (gpu, dtype), members in groups.items():
        works = tuple(work for work, _ in members)
        times = np.array([time_us for _, time_us in members])
        held_out = np.array([is_held_out((work.n, work.k)) for work in works], dtype=bool)
        yield Group(file, gpu, dtype, "product", "traces", works, times, held_out)


def is_held_out(shape: Sequence[int]) -> bool:
    """Whether a shape is in the fifth that is never fitted; stable across machines and row orders."""
    return zlib.crc32(",".join(str(size) for size in shape).encode()) % HELD_OUT_ONE_IN == 0


def _int(row: dict[str, str], name: str, default: int | None = None) -> int:
    value = row.get(name)
    if value in (None, "") and default is not None:
        return default
    return int(float(row[name]))


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes")


def _gemm(row: dict[str, str], dtype: str) -> Gemm:
    m, n, k = _int(row, "m"), _int(row, "n"), _int(row, "k")
    if row.get("source") in PADDED_SOURCES and dtype == "float16":
        m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
    a = "m" if _is_true(row.get("transpose_a") or "") else "k"
    b = "k" if _is_true(row["transpose_b"]) else "n"
    return Gemm(m, n, k, dtype, _int(row, "batch"), a, b, "n")  # type: ignore[arg-type]


def _convolution(row: dict[str, str], dtype: str) -> Convolution:
    size = (_int(row, "h"), _int(row, "w"))
    kernel = (_int(row, "r"), _int(row, "s"))
    padding = (_int(row, "pad_h", 0), _int(row, "pad_w", 0))
    stride = (_int(row, "stride_h", 1), _int(row, "stride_w", 1))
    output = tuple(
        (extent + 2 * pad - taps) // step + 1
        for extent, pad, taps, step in zip(size, padding, kernel, stride, strict=True)
    )
    direction = {"fwd": "forward"}.get(row["direction"], row["direction"])
    if direction not in ("forward", "dgrad", "wgrad"):
        raise ValueError(f"unknown direction {row['direction']!r}")
    return Convolution(
        batch=_int(row, "n"),
        in_channels=_int(row, "c"),
        out_channels=_int(row, "k"),
        input_size=size,
        output_size=output,
        kernel_size=kernel,
        stride=stride,
        padding=padding,
        dilation=(1, 1),
        groups=_int(row, "groups", 1),
        dtype=dtype,
        channels_last=row["layout"] == "nhwc"
        or (row.get("source") in SEARCHED_SOURCES and dtype == "float16"),
        direction=direction,  # type: ignore[arg-type]
    )


VECTOR_OPS: dict[str, tuple[str, str, int, int]] = {
    **{name: ("elementwise", name, 2, 1) for name in ("add", "sub", "mul", "div")},
    **{f"{name}u": ("elementwise", name, 1, 1) for name in ("add", "sub", "mul", "div", "pow")},
    **{name: ("elementwise", name, 1, 1) for name in ("relu", "gelu", "tanh", "sigmoid", "exp", "silu")},
    "pow": ("elementwise", "pow", 2, 1),
    "gelu_bwd": ("elementwise", "gelu_backward", 2, 1),
    "ln": ("norm", "layer_norm", 1, 1),
    "ln_bwd": ("norm", "layer_norm_backward", 4, 1),
    "rms": ("norm", "rms_norm", 1, 1),
    "gn": ("norm", "group_norm", 2, 1),
    "batch_norm": ("norm", "batch_norm", 2, 1),
    "batch_norm_bwd": ("norm", "batch_norm_backward", 4, 1),
    "softmax": ("softmax", "softmax", 1, 1),
    "softmax_bwd": ("softmax", "softmax_backward", 2, 1),
    "cross_entropy": ("softmax", "log_softmax", 1, 1),
    "cross_entropy_bwd": ("softmax", "log_softmax_backward", 2, 1),
    "max_pool": ("pool", "max_pool2d", 1, 0),
    "copy": ("copy", "clone", 1, 1),
    "cast": ("copy", "_to_copy", 1, 0),
    "embedding": ("embedding", "embedding", 1, 1),
    "embedding_bwd": ("scatter", "embedding_backward", 1, 0),
    "mlp_act": ("elementwise", "vllm_silu_and_mul", 2, 1),
    "input_layernorm": ("norm", "vllm_rms_norm", 1, 1),
    "post_attention_layernorm": ("norm", "vllm_rms_norm", 1, 1),
    "attn_rope": ("elementwise", "vllm_rotary_embedding", 1, 1),
}
"""Files' op names: class, operation, tensors of [rows, cols] read and written; see _written_besides too."""


def _written_besides(row: dict[str, str], elements: int, itemsize: int) -> int:
    """Bytes of outputs of another shape or dtype than [rows, cols]."""
    if row["op"] == "max_pool":  # 3x3, stride 2: a quarter, with int64 indices
        return elements // 4 * (itemsize + 8)
    if row["op"] == "cast":
        return elements * (2 if itemsize == 4 else 4)
    if row["op"] == "embedding_bwd":
        return _int(row, "table") * _int(row, "cols") * itemsize
    return 0


def _vector(row: dict[str, str], dtype: str) -> Traffic:
    traffic_class, operation, read, written = VECTOR_OPS[row["op"]]
    launches = 1
    if row.get("source") in SERVING_SOURCES and _int(row, "cols") == PHI_2_WIDTH:
        if row["op"] == "add":
            read, written, launches = 4, 2, 2
        elif row["op"] == "input_layernorm":
            operation = "layer_norm"
    rows, columns = _int(row, "rows"), _int(row, "cols")
    itemsize = {"float64": 8, "float32": 4}.get(dtype, 2)
    size = rows * columns * itemsize
    by_row = traffic_class != "elementwise" or operation.startswith("vllm_")
    return Traffic(
        traffic_class,  # type: ignore[arg-type]
        operation,
        read * size,
        written * size + _written_besides(row, rows * columns, itemsize),
        rows=rows if by_row else 0,
        columns=columns,
        dtype=dtype,
        channels_last=row.get("layout") == "nhwc",
        launches=launches,
    )


def _attention(row: dict[str, str], dtype: str) -> Attention:
    length, head_dim = _int(row, "seq"), _int(row, "head_dim")
    return Attention(
        batch=_int(row, "batch"),
        heads=_int(row, "heads"),
        kv_heads=_int(row, "kv_heads", _int(row, "heads")),
        query_length=length,
        key_length=length,
        head_dim=head_dim,
        value_head_dim=head_dim,
        dtype=dtype,
        is_causal=_is_true(row["causal"]),
        kernel="serving",
    )


_KINDS: dict[str, Callable[[dict[str, str]], str]] = {
    "gemm": lambda row: row["op"],
    "conv": lambda row: f"conv {row['direction']}",
    "vector": lambda row: row["op"],
    "attention": lambda _: "attention",
}
_WORKS: dict[str, Callable[[dict[str, str], str], Work]] = {
    "gemm": _gemm,
    "conv": _convolution,
    "vector": _vector,
    "attention": _attention,
}
_HASHED: dict[str, Callable[[dict[str, str]], Sequence[int]]] = {
    "gemm": lambda row: (_int(row, "n"), _int(row, "k")),
    "conv": lambda row: (_int(row, "k"), _int(row, "c"), _int(row, "h")),
    "vector": lambda row: (_int(row, "rows"), _int(row, "cols")),
    "attention": lambda row: (_int(row, "seq"), _int(row, "heads"), _int(row, "head_dim")),
}


@cache
def _harnesses() -> dict[str, Any]:
    text = Path(__file__).with_name("harnesses.toml").read_text(encoding="utf-8")
    return parse_toml(text)


@dataclass(frozen=True)
class Harness:
    """What a campaign's clock makes of a kernel's own time: max(floor_us, added_us + kernel).

    A campaign that times from the host sees at least the host's own work, behind which a short kernel
    hides, and something fixed on top of a long one.
    """

    floor_us: float = 0.0
    added_us: float = 0.0

    def measured_us(self, kernel_us: FloatArray) -> FloatArray:
        """The time that the campaign would report."""
        result: FloatArray = np.maximum(self.floor_us, self.added_us + kernel_us)
        return result


def harness_of(group: Group) -> Harness:
    """The harness of a campaign on a GPU, else of its other GPUs on average; neutral where not listed."""
    campaign: dict[str, Any] = _harnesses().get(group.source, {})
    for table in (campaign.get(group.gpu, {}), campaign.get("default", {})):
        if group.kind in table:
            return Harness(**table[group.kind])
    return Harness()


def timed_alone(gpu: Gpu) -> Gpu:
    """A GPU as campaigns on kernels see it: one kernel over and over, not a step."""
    return replace(gpu, id=f"{gpu.id} timed alone", step_slowdown={})


def as_unmeasured(gpu: Gpu) -> Gpu:
    """A GPU as if nothing had been measured on it: its datasheet row, and the constants of GPUs like it."""
    document = parse_toml(
        (Path(tclint.cost.gpu.__file__).parent / f"{gpu.id}.toml").read_text(encoding="utf-8")
    )
    calibrations: dict[tuple[str, str], Calibration] = {}
    for donor in document.get("inherit", ()):
        for key, calibration in load_gpu(donor).calibrations.items():
            if calibration.inherited_from is None:
                calibrations.setdefault(key, calibration.inherited(donor))
    return replace(gpu, id=f"{gpu.id} as unmeasured", calibrations=calibrations, sustained={})


def oracle_errors(keys: Sequence[Hashable], measured: FloatArray) -> FloatArray:
    """Absolute errors in percent, of rows that share a key with others, against the median of their key."""
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    found = [measured[members] for members in groups.values() if len(members) > 1]
    return np.concatenate([100 * np.abs(np.median(times) / times - 1) for times in found] or [np.zeros(0)])
