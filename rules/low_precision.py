"""Dims of layers that run in int8, in fp8, or with 2:4 sparse weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tclint.advice.layers import by_line, costliest, indices_of, related_sites, worth_pricing
from tclint.advice.op_dims import OpDim, leaf_ops, width_dims
from tclint.advice.sharing import share_finding
from tclint.context import GraphContext
from tclint.finding import Effect, Finding, Fix
from tclint.graph import Op
from tclint.precisions import PRECISION_FACTS
from tclint.rule import Example, GraphRule

_REQUIRED = 16
"""Elements of one byte in the 16 bytes that Tensor Cores load at once."""

_UNPRICED = "times of int8 and fp8 products have not been measured"


def _in_format(op: Op, context: GraphContext, format_: Literal["int8", "fp8"]) -> bool:
    """Whether the op's weight is of the format, or meant to be."""
    if op.kind not in ("linear", "matmul"):
        return False
    prefix = "int8" if format_ == "int8" else "float8"
    if any(spec.dtype.startswith(prefix) for spec in op.inputs):
        return True
    has_weight = any(spec.parameter is not None and len(spec.shape) == 2 for spec in op.inputs)
    return context.settings.quantized == format_ and has_weight


def _misaligned(context: GraphContext, format_: Literal["int8", "fp8"]) -> list[OpDim]:
    return [
        dim
        for op in leaf_ops(context.graph)
        if _in_format(op, context, format_)
        for dim in width_dims(op, context.dims)
        if dim.size % _REQUIRED
    ]


def _format_findings(
    rule: GraphRule, context: GraphContext, format_: Literal["int8", "fp8"], consequence: str
) -> Iterator[Finding]:
    dims = _misaligned(context, format_)
    for ops in by_line({dim.op.index: dim.op for dim in dims}.values()).values():
        own = set(indices_of(ops))
        sizes = sorted({(dim.role, dim.size) for dim in dims if dim.op.index in own})
        head = all(dim.group is not None and dim.group.is_output for dim in dims if dim.op.index in own)
        location = context.location(costliest(context, ops))
        listed = ", ".join(f"{role} {size}" for role, size in sizes[:4])
        keep = "Keep this layer in 16 bits" if head else "Pad the width"
        yield rule.finding(
            location,
            f"{listed}: {format_} products {consequence} multiples of {_REQUIRED}.",
            effect=Effect(unknown=_UNPRICED),
            evidence={"sizes": [list(size) for size in sizes], "format": format_},
            fix=Fix(f"{keep} (or {'pad its outputs' if head else 'keep the layer in 16 bits'})."),
            related=related_sites([op.construct_site for op in ops], location, "another such layer"),
        )


_HEAD = "from torch import empty, nn\n\n\ndef build_model():\n    return nn.Sequential("
_TAIL = ")\n\n\ndef example_inputs():\n    return empty("


def _example(layers: str, inputs: str, note: str, **settings: object) -> Example:
    return Example(f"\n{_HEAD}{layers}{_TAIL}{inputs})\n", note, settings)


class Fp8Dims(GraphRule):
    """A layer that runs in fp8 has a width that is not a multiple of 16.

    What it does
    With --quantized fp8, or where the traced weights are fp8, checks in_features and out_features of every
    linear layer. Also says when none of the chosen GPUs has fp8 Tensor Cores.

    Why it costs
    fp8 products take both dims in multiples of 16 only: Transformer Engine and torch._scaled_mm raise an
    error otherwise. MXFP8 scales blocks of 32.

    Example
        te.Linear(1000, 4096)

    Use instead
        te.Linear(1008, 4096)

    When it does not apply
    Layers kept in 16 bits, usually the first and the last: leave them out of the conversion.

    References
    NVIDIA, Transformer Engine: both dimensions divisible by 16.
    """

    code = "PRC008"
    name = "fp8-dims"
    since = "0.1.0"
    level = "error"
    confidence = "medium"
    sources = ("NVIDIA Transformer Engine, quantization: dimensions divisible by 16",)
    invalid = (
        _example(
            "nn.Linear(1024, 1000), nn.ReLU(), nn.Linear(1000, 1024)",
            "4096, 1024",
            "1000 is a multiple of 8 only",
            quantized="fp8",
            gpus=("h100",),
        ),
        _example(
            "nn.Linear(72, 4096), nn.ReLU(), nn.Linear(4096, 64)",
            "4096, 72",
            "input features count, too",
            quantized="fp8",
            gpus=("h100",),
        ),
        _example("nn.Linear(1024, 1024)", "4096, 1024", "no fp8 on an A100", quantized="fp8", gpus=("a100",)),
    )
    valid = (
        _example(
            "nn.Linear(1024, 1008), nn.ReLU(), nn.Linear(1008, 1024)",
            "4096, 1024",
            "multiples of 16",
            quantized="fp8",
            gpus=("h100",),
        ),
        _example("nn.Linear(1024, 1000), nn.ReLU()", "4096, 1024", "16 bits", gpus=("h100",)),
        _example("nn.Linear(1024, 1000), nn.ReLU()", "4096, 1024", "int8", gpus=("h100",), quantized="int8"),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if context.settings.quantized == "fp8":
            gpus = [context.estimate(scenario).gpu for scenario in context.scenarios]
            if not any(gpu.supports("fp8") for gpu in gpus):
                yield self.finding(
                    context.root_location(),
                    f"No fp8 Tensor Cores on {', '.join(gpu.id for gpu in gpus)}.",
                    effect=Effect(unknown=_UNPRICED),
                    evidence={"gpus": [gpu.id for gpu in gpus]},
                    fix=Fix("Run in bf16, or choose a GPU of compute capability 8.9 or above."),
                    identity="fp8",
                )
                return
        yield from _format_findings(self, context, "fp8", "take both dims only in")


class Int8Dims(GraphRule):
    """A layer that runs in int8 has a width that is not a multiple of 16.

    What it does
    With --quantized int8, or where the traced weights are int8, checks in_features and out_features of
    every linear layer.

    Why it costs
    Tensor Cores load 16 bytes, 16 int8 values, at once. cuBLAS 11 and later run other dims on slower
    kernels, cuBLASLt's int8 layouts refuse them; on A100 multiples of 128 are best.

    Example
        nn.Linear(1000, 4096)      # quantized to int8

    Use instead
        nn.Linear(1008, 4096)      # or 1024

    When it does not apply
    Weight-only quantization, whose products run in 16 bits. Layers left in 16 bits.

    References
    NVIDIA, Matrix Multiplication Background User's Guide, Table 1: int8 in multiples of 16, 128 on A100.
    """

    code = "PRC009"
    name = "int8-dims"
    since = "0.1.0"
    level = "warning"
    confidence = "medium"
    sources = ("NVIDIA Matrix Multiplication Background User's Guide, Table 1",)
    invalid = (
        _example(
            "nn.Linear(1024, 1000), nn.ReLU(), nn.Linear(1000, 1024)",
            "4096, 1024",
            "1000 is a multiple of 8 only",
            quantized="int8",
        ),
        _example(
            "nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 10)",
            "512, 768",
            "ten classes: leave the head in 16 bits",
            quantized="int8",
        ),
        _example("*[nn.Linear(200, 200) for _ in range(4)]", "512, 200", "a loop", quantized="int8"),
    )
    valid = (
        _example(
            "nn.Linear(1024, 1008), nn.ReLU(), nn.Linear(1008, 1024)",
            "4096, 1024",
            "multiples of 16",
            quantized="int8",
        ),
        _example("nn.Linear(1024, 1000), nn.ReLU()", "4096, 1024", "16 bits"),
        _example(
            "nn.Conv2d(3, 60, 3), nn.ReLU()",
            "8, 3, 64, 64",
            "convolutions are quantized by other kernels",
            quantized="int8",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from _format_findings(self, context, "int8", "want")


_SPARSE_TILES = {"float16": (32, 64), "bfloat16": (32, 64), "float32": (32, 32)}
"""By dtype: rows and columns of a weight, torch.sparse semi-structured tensors on CUTLASS kernels."""


class Sparse24Shape(GraphRule):
    """A linear layer's weight does not have the shape that 2:4 sparsity needs.

    What it does
    On GPUs of compute capability 8.0 and above, finds linear layers whose weight is not a multiple of 32
    rows by 64 columns (fp16, bf16; 32 by 32 in TF32) and whose share of the step is worth it: they cannot
    be pruned to two of four weights with torch.sparse.to_sparse_semi_structured.

    Why it costs
    Two zeros in every four weights double the peak of the Tensor Cores. A layer whose shape the kernels do
    not take stays dense.

    Example
        nn.Linear(1000, 4096)

    Use instead
        nn.Linear(1024, 4096)

    When it does not apply
    Models that nobody means to prune: the rule is off unless selected. Heads, whose outputs are classes.

    References
    PyTorch, torch.sparse semi-structured sparsity: shape constraints per dtype.
    """

    code = "ARC015"
    name = "sparse-24-shape"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch, torch/sparse/semi_structured.py, shape constraints",)
    invalid = (
        _example("nn.Linear(1024, 1000), nn.ReLU(), nn.Linear(1000, 1024)", "4096, 1024", "1000 by 1024"),
        _example("*[nn.Linear(1040, 1040) for _ in range(4)]", "4096, 1040", "1040 is no multiple of 64"),
        _example(
            "nn.Linear(1024, 4112), nn.ReLU(), nn.Linear(4112, 1024)",
            "4096, 1024",
            "4112 rows",
            precision="tf32",
            gpus=("a100",),
        ),
    )
    valid = (
        _example("nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)", "4096, 1024", "eligible"),
        _example(
            "nn.Linear(1024, 1000), nn.ReLU()", "4096, 1024", "V100 has no sparse kernels", gpus=("v100",)
        ),
        _example("nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)", "4096, 1024", "classes"),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        facts = PRECISION_FACTS[context.settings.precision]
        if facts.linear is not None or facts.dtype not in _SPARSE_TILES:
            return
        rows, columns = _SPARSE_TILES[facts.dtype]
        gpus = (context.estimate(scenario).gpu for scenario in context.scenarios)
        if not any(gpu.compute_capability >= (8, 0) for gpu in gpus):
            return
        outside = []
        for op in leaf_ops(context.graph):
            weight = op.input("weight")
            if (
                op.name != "linear"
                or weight is None
                or not (weight.shape[0] % rows or weight.shape[1] % columns)
            ):
                continue
            if not any(dim.group is not None and dim.group.is_output for dim in width_dims(op, context.dims)):
                outside.append(op)
        for ops in by_line(outside).values():
            if worth_pricing(context, indices_of(ops)):
                yield share_finding(
                    self,
                    context,
                    ops,
                    "linear layer",
                    f", with weights that are no multiples of {rows} x {columns} and cannot be 2:4 sparse",
                    effect=Effect(unknown="sparse products have not been measured"),
                    advice=f"Choose widths that are multiples of {columns}.",
                )


RULES = (Fp8Dims, Int8Dims, Sparse24Shape)
