"""Constants that float16 cannot hold, in the source and in traced models."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from tclint.plugin import (
    Constant,
    Effect,
    Event,
    Finding,
    Fix,
    GraphContext,
    GraphRule,
    Op,
    SourceContext,
    SourceRule,
    distinct,
)
from tclint.plugin.source import HALVES, operator_of

_LARGEST = 65504.0
_SMALLEST = 2.0**-25
"""What is smaller rounds to zero: half of the smallest number above it (IEEE 754 binary16)."""
_FILLS = frozenset(
    {"masked_fill", "fill", "index_fill", "full", "full_like", "new_full", "clamp", "clamp_min", "clamp_max"}
    | {"clip", "pad", "constant_pad_nd"}
)
"""Operators that convert a number to the dtype of their tensor, and raise where that overflows."""
_GUARDS = frozenset({"add", "clamp", "clamp_min", "clip"})
_AT_ZERO = frozenset({"log", "log2", "log10", "rsqrt", "reciprocal"})
"""Operators that give an infinity for zero."""
_KEEPS = frozenset(
    {"view", "reshape", "unsqueeze", "squeeze", "expand", "contiguous", "permute", "transpose", "sqrt"}
)
_OF_FLOAT32 = 1e38
"""Larger numbers are torch.finfo(dtype).min of the dtype in which the model is traced."""


class Float16Constants(SourceRule):
    """A constant that float16 cannot hold meets a float16 tensor.

    What it does
    Finds numbers beyond 65504 that float16 tensors are filled with or clamped to, as in
    `masked_fill(mask, -1e9)`, and numbers below 3e-8 that are to keep a divisor or the argument of a
    logarithm away from zero, as in `x / (y + 1e-8)`, where autocast or a cast has made the tensor float16.

    Why it costs
    float16 ends at 65504: `masked_fill`, `fill_`, `full_like` and `clamp` raise "RuntimeError: value cannot
    be converted to type c10::Half without overflow". Its smallest number is 6e-8: 1e-8 is zero, and the
    division that it is to guard gives inf or NaN, which loss scaling then answers by skipping steps.

    Example
        with torch.autocast("cuda"):
            scores = q @ k.transpose(-2, -1)
            scores = scores.masked_fill(mask, -1e9)

    Use instead
        with torch.autocast("cuda"):
            scores = q @ k.transpose(-2, -1)
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)

    When it does not apply
    bfloat16 and float32, infinities, tensors that autocast computes in float32 (softmax, losses, norms,
    exponentials), and tensors whose dtype is not known. A mask that is added (`scores + mask * -1e9`) does
    not raise: it becomes minus infinity.
    """

    code = "AMP031"
    name = "float16-constants"
    level = "error"
    confidence = "high"
    sources = (
        "IEEE 754-2019: binary16 ends at 65504, and its smallest subnormal number is 2^-24",
        "PyTorch 2.13 c10/util/TypeCast.h, checked_convert: scalars that overflow a tensor's dtype raise",
    )
    triggers = (
        *("masked_fill", "fill_(", "full(", "full_like(", "clamp", ".clip(", "pad("),
        *("e-8", "e-9", "e-1"),
    )
    # Matches numbers that float16 cannot hold: beyond 65504, or below 3e-8. Searching for letters is fastest.
    pattern = re.compile(
        rb"e(?<=[0-9.]e)(?<![A-Za-z_].e)(?:[-+]?[1-9][0-9]|-[89]|\+?[5-9])|6553[56]|00000|99999"
    )
    program = HALVES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        events = (event for event in context.record.of("op", "factory") if _odd(event) is not None)
        for event in distinct(event for event in events if context.lints(event)):
            value = _odd(event)
            assert value is not None
            if context.dtypes.of(event.result) != "torch.float16":
                context.skip(event, "the tensor is not known to be float16")
            elif abs(value) > _LARGEST or self._guards(context, event):
                yield self._report(context, event, value)
            else:
                context.skip(event, "nothing divides by what it gives, or takes its logarithm")

    def _guards(self, context: SourceContext, event: Event) -> bool:
        """Whether a zero result of an event would cause an error, as in a division."""
        pending, seen = [event], {event}
        while pending:
            made = pending.pop()
            for reader in context.flow.readers(made.result):
                operator = operator_of(reader)
                if operator in _AT_ZERO or (operator == "div" and made.result is not reader.inputs[0]):
                    return True
                if (context.flow.keeps(reader) or operator == "sqrt") and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return False

    def _report(self, context: SourceContext, event: Event, value: float) -> Finding:
        region = context.dtypes.cast_by(event.result)
        entered = region.entered if region is not None else None
        says, advice = _in_words(value)
        return self.finding(
            context.at(event),
            f"`{context.code(event, 60)}`: {says}.",
            related=(context.also(entered, "autocast is on from here"),) if entered is not None else (),
            evidence={"call": context.code(event), "constant": value, "dtype": "float16"},
            fix=Fix(advice),
            level="error" if abs(value) > _LARGEST else "warning",
            identity=f"{event.place.function.qualified_name}:{context.code(event)}",
        )


def _odd(event: Event) -> float | None:
    """The constant of an event that float16 cannot hold."""
    arguments = {"": event.subject, **event.arguments}
    constants = {name: item.value for name, item in arguments.items() if isinstance(item, Constant)}
    return _lost(operator_of(event).removesuffix("_"), constants)


class Float16ConstantsInModel(GraphRule):
    __doc__ = Float16Constants.__doc__

    code = Float16Constants.code
    name = Float16Constants.name
    level = Float16Constants.level
    confidence = Float16Constants.confidence
    sources = Float16Constants.sources

    def check(self, context: GraphContext) -> Iterator[Finding]:
        runs = context.estimate(context.scenarios[0]).ops
        readers = context.graph.consumers()
        seen = set()
        for op in context.graph.ops:
            value = _lost(op.name, op.attributes)
            place = context.call_location(op)
            line = (place.path, place.line, place.column, value)
            if value is None or abs(value) > _OF_FLOAT32 or line in seen:
                continue
            if not any(spec.dtype == "float16" for spec in runs[op.index].outputs):
                continue
            if abs(value) > _LARGEST or _guards(op, readers):
                seen.add(line)  # reported once, however many blocks run it
                says, advice = _in_words(value)
                yield self.finding(
                    place,
                    f"`{op.name}`: {says}.",
                    effect=Effect(unknown="it is about the result, not the time"),
                    evidence={"operator": op.name, "constant": value, "dtype": "float16"},
                    fix=Fix(advice),
                    level="error" if abs(value) > _LARGEST else "warning",
                    identity=f"{op.name}:{value:g}",
                )


def _guards(op: Op, readers: Mapping[int, Sequence[Op]]) -> bool:
    """Whether a zero result of an op would cause an error, as in a division."""
    pending, seen = [op], {op.index}
    while pending:
        made = pending.pop()
        for reader in readers.get(made.index, ()):
            if reader.name in _AT_ZERO or (reader.name == "div" and reader.inputs[0].producer != made.index):
                return True
            if reader.name in _KEEPS and reader.index not in seen:
                seen.add(reader.index)
                pending.append(reader)
    return False


def _lost(operator: str, arguments: Mapping[str, object]) -> float | None:
    """The constant with which an operator raises on float16, or that is zero in it; None if there is none.

    Args:
        operator: by ATen's name.
        arguments: by parameter; a factor of what is added (`alpha`) is not converted.
    """
    for name, value in arguments.items():
        if (
            name == "alpha"
            or not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
        ):
            continue
        if operator in _FILLS and abs(value) > _LARGEST:
            return float(value)
        if operator in _GUARDS and 0 < abs(value) < _SMALLEST:
            return float(value)
    return None


def _in_words(value: float) -> tuple[str, str]:
    """What becomes of such a constant, and what to do."""
    if abs(value) > _LARGEST:
        return (
            f"{value:g} is beyond 65504, where float16 ends, which the tensor is: it raises RuntimeError",
            "Take torch.finfo(tensor.dtype).min (or .max), or an infinity.",
        )
    return (
        f"{value:g} is zero in float16, which the tensor is: it guards against nothing",
        "Take at least 1e-6, or compute in float32: `.float()` before it.",
    )
