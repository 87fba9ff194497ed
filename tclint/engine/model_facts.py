"""Facts about a traced model that dashboards track: its hash, and the aligned share of its FLOPs."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tclint.analysis.widths.alignment import efficient_multiple
from tclint.config.settings import Precision
from tclint.cost.estimate import Estimate
from tclint.graph.lowering.work import Attention, Convolution, Gemm, Traffic, Work
from tclint.graph.ops import Graph, TensorSpec

_PRECISIONS: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


def graph_hash(graph: Graph) -> str:
    """A hash, of 16 hex digits, of the model's computation: operators, shapes, dtypes, parameters, in order.

    Files, lines, timings and versions do not enter, so an edit that changes no computation keeps the hash.
    """
    document = {
        "ops": [
            {
                "name": op.name,
                "inputs": [_spec(spec) for spec in op.inputs],
                "outputs": [_spec(spec) for spec in op.outputs],
                "attributes": dict(op.attributes),
                "module_path": op.module_path,
            }
            for op in graph.ops
        ],
        "parameters": [[p.name, p.shape, p.dtype, p.trainable, p.is_buffer] for p in graph.parameters],
        "inputs": [_spec(spec) for spec in graph.inputs],
    }
    text = json.dumps(document, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.shape, spec.dtype, spec.strides, spec.parameter, spec.producer, spec.output_index]


def aligned_flops_percent(estimate: Estimate) -> float | None:
    """The percentage of the step's matrix-product FLOPs whose contiguous dims are aligned for Tensor Cores.

    A dim is aligned if it is a multiple of 8 for fp16 and bf16, of 4 for tf32 (NVIDIA, Matrix Multiplication
    Background, Table 1). Kernels that autocast leaves in fp32 and depthwise convolutions have no such
    multiple and do not count. None if nothing counts.
    """
    aligned = counted = 0
    for kernel in estimate.kernels:
        work = kernel.work
        if isinstance(work, Traffic) or (isinstance(work, Convolution) and work.is_depthwise):
            continue
        multiple = _multiple(work.dtype, estimate.scenario.precision)
        if multiple is None:
            continue
        counted += work.flops
        if all(size % multiple == 0 for size in _contiguous_sizes(work)):
            aligned += work.flops
    return 100.0 * aligned / counted if counted else None


def _multiple(dtype: str, precision: Precision) -> int | None:
    if dtype == "float32":
        return efficient_multiple("tf32") if precision == "tf32" else None
    if dtype == "int8" or dtype.startswith("float8_"):
        return efficient_multiple("int8")
    return efficient_multiple(_PRECISIONS[dtype]) if dtype in _PRECISIONS else None


def _contiguous_sizes(work: Work) -> tuple[int, ...]:
    """The sizes of the contiguous dims of both operands and of the result."""
    if isinstance(work, Gemm):
        return tuple(size for _, size in work.contiguous)
    if isinstance(work, Convolution):
        return (work.in_channels // work.groups, work.out_channels // work.groups)
    if isinstance(work, Attention):
        return (work.head_dim, work.value_head_dim)
    return ()
