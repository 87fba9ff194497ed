"""Dims of layers that run in int8 or in fp8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tclint.plugin import (
    PRECISION_FACTS,
    Change,
    DimsUnresolved,
    Effect,
    Finding,
    Fix,
    GraphContext,
    GraphRule,
    Op,
    resize,
)
from tclint.plugin.graph import (
    OpDim,
    by_line,
    costliest,
    gain_phrase,
    indices_of,
    padded_sizes,
    related_sites,
    sizes_phrase,
    width_dims,
)

_REQUIRED = 16
"""One-byte elements in the 16 bytes that Tensor Cores load at once."""


def _is_meant(context: GraphContext, format_: str) -> bool:
    """Whether the linear layers are meant to run in that format."""
    settings = context.settings
    return settings.quantized == format_ or PRECISION_FACTS[settings.precision].linear == format_


def _in_format(op: Op, context: GraphContext, format_: str) -> bool:
    """Whether the op's weight has that format or is meant to."""
    if op.kind not in ("linear", "matmul"):
        return False
    prefix = "int8" if format_ == "int8" else "float8"
    if any(spec.dtype.startswith(prefix) for spec in op.inputs):
        return True
    has_weight = any(spec.parameter is not None and len(spec.shape) == 2 for spec in op.inputs)
    return _is_meant(context, format_) and has_weight


def _misaligned(context: GraphContext, format_: str) -> list[OpDim]:
    return [
        dim
        for op in context.graph.products
        if _in_format(op, context, format_)
        for dim in width_dims(op, context.dims)
        if dim.size % _REQUIRED
    ]


def _format_findings(
    rule: GraphRule, context: GraphContext, format_: str, consequence: str
) -> Iterator[Finding]:
    dims = _misaligned(context, format_)
    for ops in by_line({dim.op.index: dim.op for dim in dims}.values()).values():
        own = set(indices_of(ops))
        here = [dim for dim in dims if dim.op.index in own]
        sizes = sorted({(dim.role, dim.size) for dim in here})
        head = all(dim.group is not None and dim.group.is_output for dim in here)
        location = context.location(costliest(context, ops))
        listed = ", ".join(f"{role} {size}" for role, size in sizes[:4])
        keep = "Keep this layer in 16 bits" if head else "Pad the width"
        effect, padded, change = _padded(context, here, format_)
        words = f"; padding {padded} {gain_phrase(effect)} in {format_}" if padded else ""
        yield rule.finding(
            location,
            f"{listed}: {format_} products {consequence} multiples of {_REQUIRED}{words}.",
            effect=effect,
            evidence={"sizes": [list(size) for size in sizes], "format": format_},
            fix=Fix(f"{keep} (or {'pad its outputs' if head else 'keep the layer in 16 bits'})."),
            related=related_sites([op.construct_site for op in ops], location, "another such layer"),
            change=change,
        )


def _padded(context: GraphContext, dims: list[OpDim], format_: str) -> tuple[Effect, str, Change | None]:
    """The gain of padding these dims for a step in that format, the sizes in words, and the change of the
    model.

    Without padding, such layers stay in 16 bits (or run misaligned if the kernel accepts them). If the run
    has another precision, compiled steps are compared.
    """
    if format_ == "int8" and context.settings.mode == "train":
        return Effect(unknown="int8 products have no backward pass; --mode infer prices them"), "", None
    if any(dim.op.name != "linear" for dim in dims):
        return Effect(unknown="only nn.Linear layers are priced in 8 bits"), "", None
    groups = list({dim.group.id: dim.group for dim in dims if dim.group is not None}.values())
    sizes = padded_sizes(context, groups, _REQUIRED)
    if len(sizes) < len(groups) or not groups:
        reasons = [group.unresolved for group in groups if group.unresolved]
        reason = reasons[0] if reasons else f"no multiple of {_REQUIRED} fits these dims"
        return Effect(unknown=reason), "", None
    is_priced_so = PRECISION_FACTS[context.settings.precision].linear == format_
    change = resize(sizes)
    if not is_priced_so:
        # Conversions in separate kernels cost more than 8-bit products save, so torchao compiles them.
        change = replace(change, presupposes={"precision": format_, "compiled": True})
    try:
        effect = context.effect({dim.op.index for dim in dims}, change)
    except DimsUnresolved as error:
        return Effect(unknown=str(error)), "", None
    pairs = sorted({(group.size, size) for group, size in sizes.items()})
    # For a run priced in 16 bits, there is no step to which a gain in 8 bits could be added.
    return effect, sizes_phrase(tuple(pairs)), change if is_priced_so else None


def _misaligned_rows(rule: GraphRule, context: GraphContext) -> Iterator[Finding]:
    """Report numbers of rows, over which weight gradients sum, that fp8 products refuse."""
    layers = [
        op
        for op in context.graph.products
        # Layers whose widths do not fit stay in 16 bits.
        if op.name == "linear"
        and _in_format(op, context, "fp8")
        and not any(size % _REQUIRED for size in op.inputs[1].shape)
    ]
    for rows in sorted({prod(op.inputs[0].shape[:-1]) for op in layers}):
        if rows % _REQUIRED:
            yield rule.finding(
                context.root_location(),
                f"{rows} rows (samples times tokens): the weight gradient of an fp8 layer sums over them, "
                f"and fp8 products take that dim only in multiples of {_REQUIRED}.",
                effect=Effect(unknown="the product is refused, so there is nothing to compare with"),
                evidence={"rows": rows, "format": "fp8"},
                fix=Fix(
                    f"Make samples times tokens a multiple of {_REQUIRED}, or pad (torchao: pad_inner_dim)."
                ),
                identity=f"rows {rows}",
            )


class Fp8Dims(GraphRule):
    """A layer that runs in fp8 has a width that is not a multiple of 16.

    What it does
    With --quantized fp8, or where the traced weights are fp8, checks in_features and out_features of every
    linear layer and, in training, the number of rows of its input. Also says when none of the chosen GPUs has
    fp8 Tensor Cores.

    Why it costs
    fp8 products accept both dims only in multiples of 16: Transformer Engine and torch._scaled_mm raise
    an error otherwise. The gradient of a weight sums over the rows, samples times tokens. MXFP8 scales blocks
    of 32.

    Example
        te.Linear(1000, 4096)

    Use instead
        te.Linear(1008, 4096)

    When it does not apply
    Layers kept in 16 bits, usually the first and the last: leave them out of the conversion.
    """

    code = "PRC008"
    name = "fp8-dims"
    level = "error"
    confidence = "medium"
    sources = ("NVIDIA Transformer Engine documentation, FP8: both dims divisible by 16",)

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if _is_meant(context, "fp8"):
            gpus = [context.estimate(scenario).gpu for scenario in context.scenarios]
            if not any(gpu.supports("fp8") for gpu in gpus):
                yield self.finding(
                    context.root_location(),
                    f"No fp8 Tensor Cores on {', '.join(gpu.id for gpu in gpus)}.",
                    effect=Effect(unknown="there is nothing to compare with on these GPUs"),
                    evidence={"gpus": [gpu.id for gpu in gpus]},
                    fix=Fix("Run in bf16, or choose a GPU of compute capability 8.9 or above."),
                    identity="fp8",
                )
                return
        yield from _format_findings(self, context, "fp8", "take both dims only in")
        if context.settings.mode == "train":
            yield from _misaligned_rows(self, context)


class Int8Dims(GraphRule):
    """A layer that runs in int8 has a width that is not a multiple of 16.

    What it does
    With --quantized int8, or where the traced weights are int8, checks in_features and out_features of
    every linear layer.

    Why it costs
    Tensor Cores load 16 bytes, 16 int8 values, at once. cuBLAS 11 and later run other dims on slower
    kernels, and cuBLASLt's int8 layouts refuse them; on A100 multiples of 128 are best.

    Example
        nn.Linear(1000, 4096)      # quantized to int8

    Use instead
        nn.Linear(1008, 4096)      # or 1024

    When it does not apply
    Weight-only quantization, whose products run in 16 bits. Layers left in 16 bits.
    """

    code = "PRC009"
    name = "int8-dims"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Matrix Multiplication Background User's Guide, Table 1: int8 in multiples of 16, of 128 "
        "on A100",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from _format_findings(self, context, "int8", "want")
