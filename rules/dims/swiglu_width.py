"""A rule on feed-forward widths of two thirds that are not rounded to a multiple."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import (
    Constant,
    Event,
    Finding,
    Fix,
    SourceContext,
    SourceRule,
    Thing,
    distinct,
    options_of,
)
from tclint.plugin.source import TRAINS, Place, Value, constant_of

_LAYERS = frozenset(
    ("torch.nn.Linear", "torch.nn.LazyLinear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d")
)
_SIDES = ("in_features", "out_features", "in_channels", "out_channels")
_POWERS = frozenset({2, 4, 8, 16})
_EXACT = 1e-6


class SwigluTwoThirds(SourceRule):
    """A gated feed-forward layer with 8/3 of the model's width, unrounded.

    What it does
    Finds hidden sizes computed as `int(2 * x / 3)` or `int(8 / 3 * x)` that are given to `nn.Linear` or a
    convolution as they are, directly or through a class of the file.

    Why it costs
    Two thirds of a power of two is never a multiple of 8: 4096 becomes 10922. On an H100 that product ran
    at 272 TFLOP/s; with 10944 it ran at 398.

    Example
        hidden = int(8 * dim / 3)
        self.w1 = nn.Linear(dim, hidden)

    Use instead
        hidden = 256 * ((int(8 * dim / 3) + 255) // 256)

    When it does not apply
    Sizes that are rounded to a multiple afterwards, or known to be one.
    """

    code = "DIM014"
    name = "swiglu-two-thirds"
    level = "warning"
    confidence = "high"
    sources = (
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489), SwiGLU: why 8/3 "
        "of a width is misaligned",
        "Machine Learning Engineering (Bekman), SwiGLU-based MLP: measured rates of rounded widths",
    )
    triggers = ("int(",)
    program = TRAINS
    # Matches int() around a power of two and a division by three.
    pattern = re.compile(
        rb"int(?<!\wint)\s*\((?=.{0,300}?/\s*3(?:\.0*)?(?![\w.]))"
        rb"(?=.{0,300}?(?<![\w.])(?:2|4|8|16)(?![\w]|\.0*[1-9]))",
        re.DOTALL,
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        flow, layers = context.flow, list(_layers(context))
        for event in distinct(context.record.of("truncate")):
            size, places = event.result, set[Place]()
            if size is None or not _is_two_thirds(event.first) or not context.lints(event):
                continue
            used = [
                layer
                for layer, sides in layers
                if layer.run == event.run and layer.index > event.index and size in sides
            ]
            used = [layer for layer in used if flow.together(event, layer) and layer.place not in places]
            if not used:
                continue
            code, name = context.code(event), event.assigned_name
            made = f"{name} = " if name else ""
            count = len({layer.place for layer in used})
            yield self.finding(
                context.at(event),
                f"`{code}` is rarely a multiple of 8, and it is a side of {count} linear "
                f"layer{'s' if count > 1 else ''}.",
                related=(context.also(used[0], "used here"),),
                evidence={"size": code, "layers": count},
                fix=Fix(f"Round it up to a multiple of 256: `{made}256 * (({name or code} + 255) // 256)`."),
                identity=f"{event.place.function.qualified_name}:{name or code}",
            )


def _layers(context: SourceContext) -> Iterator[tuple[Event, frozenset[Value]]]:
    """(event that makes a layer with a matrix product, sizes of its sides)."""
    for event in context.record.of("make"):
        if event.name in _LAYERS:
            given = [event.arguments[name] for name in _SIDES if name in event.arguments]
            yield event, frozenset(side for value in given for side in _factors_of_side(value))


def _factors_of_side(value: Value) -> Iterator[Value]:
    """A size and the sizes that it is a multiple of: the alternatives of an `or`, and x in a number times x.
    A product of two sizes is not taken apart."""
    for option, _ in options_of(value):
        yield option
        operator, operands = option.operation or ("", ()) if isinstance(option, Thing) else ("", ())
        sizes = [operand for operand in operands if not isinstance(operand, Constant)]
        if operator == "or" or (operator == "*" and len(sizes) == 1):
            for operand in sizes:
                yield from _factors_of_side(operand)
        if isinstance(option, Constant) and isinstance(option.value, int) and option.value % 2 == 0:
            yield Constant(option.value // 2)


def _is_two_thirds(value: Value | None) -> bool:
    """Whether a value is `2 * x / 3` or `8 / 3 * x`, in any order, or such a number."""
    if isinstance(value, Constant) and isinstance(value.value, float):
        # Three times the number gives the dividend: 32768 for 10922.67.
        whole = value.value * 3
        return abs(whole - round(whole)) < _EXACT and round(whole) % 16 == 0 and round(whole) % 3 != 0
    numbers, divisors, sizes = _factors(value)
    eighths = any(abs(number * 3 - twice) < _EXACT for number in numbers for twice in _POWERS)
    fits = (divisors == [3] and not _POWERS.isdisjoint(numbers)) or (not divisors and eighths)
    return fits and sizes > 0 and not _divides_first(value)


def _factors(value: Value | None) -> tuple[list[float], list[object], int]:
    """The numbers and the constant divisors of a product, and the number of its other factors."""
    number = constant_of(value)
    if isinstance(number, int | float):
        return [number], [], 0
    operator, operands = value.operation or ("", ()) if isinstance(value, Thing) else ("", ())
    if operator == "*":
        left, right = (_factors(operand) for operand in operands)
        return left[0] + right[0], left[1] + right[1], left[2] + right[2]
    if operator == "/":
        numbers, divisors, sizes = _factors(operands[0])
        return numbers, [*divisors, constant_of(operands[1])], sizes
    return [], [], 1


def _divides_first(value: Value | None) -> bool:
    """Whether the division comes first, as in `dim / 3 * 8`, which is meant for sizes divisible by three and
    gives a multiple of eight."""
    operator, operands = value.operation or ("", ()) if isinstance(value, Thing) else ("", ())
    if operator != "*" or not {8, 16} & {constant_of(operand) for operand in operands}:
        return False
    return any(
        isinstance(side, Thing)
        and side.operation is not None
        and side.operation[0] == "/"
        and _factors(side.operation[1][0]) == ([], [], 1)
        for side in operands
    )
