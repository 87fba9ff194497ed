"""Linear layers in fp8 and int8: which ones the kernels take, and what they cost beside their products.

`torch._scaled_mm` and `torch._int_mm` are what torch has; torchao puts them under nn.Linear, and the recipes
of low_precision.toml follow it. Everything but the chosen linear layers stays in 16 bits. Times of 8-bit
products rest on no measurement: the constants are those of 16 bits, and every price says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, NamedTuple

from tclint.config.precisions import LinearFormat
from tclint.config.settings import Mode
from tclint.core.toml import packaged_toml
from tclint.graph.lowering.work import Gemm, Kernel, Phase, Traffic, TrafficClass
from tclint.graph.ops import Graph, Op, TensorSpec, itemsize_bytes


class _Pass(NamedTuple):
    """One kernel over a tensor."""

    what: str
    traffic_class: TrafficClass
    sources_read: float
    bytes_read: float
    sources_written: float
    bytes_written: float
    launches: int


class _Step(NamedTuple):
    tensor: str
    phase: Phase
    passes: tuple[_Pass, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one format is run."""

    title: str
    operand: str
    """dtype of both operands."""
    result: str
    """dtype that the product writes; empty: the layer's own."""
    features: int
    """in_features and out_features must be multiples of it."""
    rows_training: int
    """So must the rows (batch times positions) in training."""
    rows_above: int
    """The rows must be more than these."""
    steps: Mapping[tuple[str, bool], tuple[_Step, ...]]
    """By mode and whether compiled."""


@cache
def recipe(format_: LinearFormat) -> Recipe:
    """The recipe of a format."""
    table: dict[str, Any] = packaged_toml("tclint.cost.transforms", "low_precision.toml")[format_]
    passes = {name: tuple(_Pass(*row) for row in rows) for name, rows in table["passes"].items()}
    steps = {
        (mode, how == "compiled"): tuple(_Step(tensor, phase, passes[name]) for tensor, phase, name in rows)
        for mode in ("train", "infer")
        for how, rows in table.get(mode, {}).items()
    }
    names = ("title", "operand", "result", "features", "rows_training", "rows_above")
    return Recipe(**{name: table[name] for name in names}, steps=steps)


def why_not(op: Op, graph: Graph, format_: LinearFormat, mode: Mode) -> str | None:
    """Why an op does not run in that format; None where it does.

    Only nn.Linear layers are converted, and of those the ones whose dims the kernel takes.
    """
    weight = _own_weight(op, _names(graph))
    if weight is None:
        return "not an nn.Linear layer"
    known = recipe(format_)
    out_features, in_features = weight.shape
    for role, size in (("in_features", in_features), ("out_features", out_features)):
        if size % known.features:
            return f"{role} {size} is not a multiple of {known.features}"
    rows = prod(_input(op).shape[:-1])
    if mode == "train" and rows % known.rows_training:
        return f"{rows} rows are not a multiple of {known.rows_training}, which its weight gradient needs"
    if rows <= known.rows_above:
        return f"{rows} rows: torch._int_mm takes more than {known.rows_above}"
    return None


def converted_layers(
    graph: Graph, format_: LinearFormat, mode: Mode
) -> tuple[frozenset[int], dict[str, int]]:
    """Indices of the ops that run in that format, and how many linear layers do not, by reason."""
    names = _names(graph)
    chosen, left = set(), dict[str, int]()
    for op in graph.ops:
        if _own_weight(op, names) is None:
            continue
        reason = why_not(op, graph, format_, mode)
        if reason is None:
            chosen.add(op.index)
        else:
            left[reason] = left.get(reason, 0) + 1
    return frozenset(chosen), left


def _names(graph: Graph) -> dict[str, frozenset[str]]:
    return {p.name: frozenset((p.name, *p.aliases)) for p in graph.parameters if not p.is_buffer}


def _own_weight(op: Op, names: Mapping[str, frozenset[str]]) -> TensorSpec | None:
    """The weight of an nn.Linear: the parameter `weight` of the module that runs the op."""
    weight = op.input("weight")
    if op.name != "linear" or weight is None or weight.parameter is None or len(weight.shape) != 2:
        return None
    wanted = f"{op.module_path}.weight" if op.module_path else "weight"
    return weight if wanted in names.get(weight.parameter, ()) and weight.producer is None else None


def _input(op: Op) -> TensorSpec:
    found = op.input("input")
    return op.inputs[0] if found is None else found


def without_weight_casts(graph: Graph, chosen: frozenset[int], format_: LinearFormat, mode: Mode) -> Graph:
    """The graph with the weights of converted layers read as they are stored.

    In training they are converted from their own dtype, past autocast; for inference they are stored in the
    format.
    """
    if not chosen:
        return graph
    stored: set[str] = set()
    ops = list(graph.ops)
    for index in chosen:
        op = ops[index]
        weight = op.input("weight")
        assert weight is not None
        stored.add(weight.parameter or "")
        ops[index] = replace(op, casts=tuple(c for c in op.casts if c.parameter != weight.parameter))
    if mode == "train":
        return replace(graph, ops=tuple(ops))
    read_otherwise = {
        spec.parameter for op in ops if op.index not in chosen for spec in op.inputs if spec.parameter
    }
    operand = recipe(format_).operand
    parameters = tuple(
        replace(p, dtype=operand) if p.name in stored - read_otherwise else p for p in graph.parameters
    )
    return replace(graph, ops=tuple(ops), parameters=parameters)


def in_format(
    graph: Graph,
    kernels: Sequence[Kernel],
    chosen: frozenset[int],
    format_: LinearFormat,
    mode: Mode,
    *,
    compiled: bool,
) -> list[Kernel]:
    """Kernels with the products of the chosen layers in the format, and the conversions around them."""
    known = recipe(format_)
    steps = known.steps[mode, compiled]
    stored = {p.name: p.dtype for p in graph.parameters}
    result: list[Kernel] = []
    begun: set[tuple[int, str]] = set()
    for kernel in kernels:
        if kernel.op_index not in chosen or not isinstance(kernel.work, Gemm):
            result.append(kernel)
            continue
        op = graph.ops[kernel.op_index]
        # What a checkpointed region runs again is its forward, in the backward phase.
        again = kernel.role == "recompute"
        key = (kernel.op_index, "recompute" if again else kernel.phase)
        like: Phase = "forward" if again else kernel.phase
        if key not in begun:
            begun.add(key)
            before = [step for step in steps if step.phase == like and step.tensor != "output"]
            result += _conversions(op, before, stored, kernel.phase)
        result.append(replace(kernel, work=_product(op, kernel, known)))
        if like == "forward":
            after = [step for step in steps if step.tensor == "output"]
            result += _conversions(op, after, stored, kernel.phase)
        if kernel.role == "wgrad":
            result += _gradient_cast(op, stored)
    return result


def _product(op: Op, kernel: Kernel, known: Recipe) -> Gemm:
    """The product in 8 bits; both operands with K contiguous, the only layout that the kernels take."""
    work = kernel.work
    assert isinstance(work, Gemm)
    out_dtype = known.result or op.outputs[0].dtype
    m, n, k = work.m * work.batch, work.n, work.k
    return Gemm(m, n, k, known.operand, a_contiguous="k", b_contiguous="k", out_dtype=out_dtype)


def _conversions(op: Op, steps: Iterable[_Step], stored: Mapping[str, str], phase: Phase) -> list[Kernel]:
    kernels = []
    for tensor, _, passes in steps:
        spec = _tensor(op, tensor)
        dtype = stored.get(spec.parameter or "", spec.dtype) if tensor == "weight" else spec.dtype
        size = itemsize_bytes(dtype)
        for item in passes:
            if item.what == f"to {dtype}":
                continue
            work = Traffic(
                item.traffic_class,
                f"{tensor}: {item.what}",
                bytes_read=round(spec.numel * (item.sources_read * size + item.bytes_read)),
                bytes_written=round(spec.numel * (item.sources_written * size + item.bytes_written)),
                flops=spec.numel,
                dtype=dtype,
                launches=item.launches,
            )
            kernels.append(Kernel(op.index, phase, "cast", work))
    return kernels


def _tensor(op: Op, name: str) -> TensorSpec:
    if name == "input":
        return _input(op)
    if name == "weight":
        weight = op.input("weight")
        assert weight is not None
        return weight
    return op.outputs[0]  # the output, or its gradient


def _gradient_cast(op: Op, stored: Mapping[str, str]) -> list[Kernel]:
    """The weight's gradient from the product's dtype to the weight's own."""
    weight = _tensor(op, "weight")
    before, after = op.outputs[0].dtype, stored.get(weight.parameter or "", weight.dtype)
    if before == after:
        return []
    read, written = (weight.numel * itemsize_bytes(dtype) for dtype in (before, after))
    return [Kernel(op.index, "backward", "cast", Traffic("copy", "_to_copy", read, written, dtype=after))]
