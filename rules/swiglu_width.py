"""A rule on feed-forward widths of two thirds that no multiple divides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.rule import Example, Rule, SourceRule
from tclint.source.queries import names_in, words
from tclint.source.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Operation,
    dotted,
    method_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
_ROUNDING = words("multiple multiples divisible round ceil floor align pad next")


class SwigluTwoThirds(SourceRule):
    """A gated feed-forward layer of 8/3 of the width, unrounded.

    What it does
    Finds hidden sizes computed as `int(2 * x / 3)` or `int(8 / 3 * x)` that are given to `nn.Linear` as they
    are.

    Why it costs
    Two thirds of a power of two is never a multiple of 8: 4096 becomes 10922. On an H100 the product ran at
    272 TFLOP/s, with 10944 at 398.

    Example
        hidden = int(8 * dim / 3)
        self.w1 = nn.Linear(dim, hidden)

    Use instead
        hidden = 256 * ((int(8 * dim / 3) + 255) // 256)

    When it does not apply
    Sizes that are rounded to a multiple afterwards, or known to be one.

    References
    Anthony et al., The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489), "SwiGLU".
    Bekman, Machine Learning Engineering, "SwiGLU-based MLP".
    """

    code = "DIM014"
    name = "swiglu-two-thirds"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = (
        "Anthony et al., The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489)",
    )
    triggers = ("int(",)
    requires = ("Linear",)
    # int(), a power of two in it, and a division by three.
    pattern = re.compile(
        rb"\bint\s*\((?=.{0,300}?(?<![\w.])(?:2|4|8|16)(?![\w]|\.0*[1-9])).{0,300}?/\s*3(?:\.0*)?(?![\w.])",
        re.DOTALL,
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, Assignment) or event.operator or len(event.targets) != 1:
                    continue
                if not _two_thirds(event.value) or _rounded(function, event):
                    continue
                name = event.targets[0]
                used = [
                    called
                    for called in program.calls("torch.nn.Linear")
                    if called.function.index == function.index
                    and any(dotted(argument.value) == name for argument in called.call.arguments)
                ]
                if not used or _known_multiple(context, function, event.value):
                    continue
                yield self.finding(
                    context.location(event.site),
                    f"`{render(event.value)}` is rarely a multiple of 8, and it is a side of "
                    f"{len(used)} linear layer{'s' if len(used) > 1 else ''}.",
                    related=(context.related(used[0].call.site, "used here"),),
                    evidence={"size": render(event.value), "layers": len(used)},
                    fix=Fix(f"Round it up to a multiple of 256: `{name} = 256 * (({name} + 255) // 256)`."),
                    identity=f"{function.qualified_name}:{name}",
                )

    valid = (
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim, multiple_of=256):
        super().__init__()
        hidden = int(2 * (4 * dim) / 3)
        hidden = multiple_of * ((hidden + multiple_of - 1) // multiple_of)
        self.w1 = nn.Linear(dim, hidden)
""",
            note="rounded afterwards",
        ),
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(8 * dim / 3) // 64 * 64
        self.w1 = nn.Linear(dim, hidden)
""",
            note="rounded at once",
        ),
        Example(
            source="""\
from torch import nn

def head(dim):
    third = int(dim / 3)
    return nn.Linear(dim, third)
""",
            note="not two thirds of a gated layer",
        ),
    )
    invalid = (
        Example(
            source="""\
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(2 * (4 * dim) / 3)
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
""",
            note="as in LLaMA, without its rounding",
        ),
        Example(
            source="""\
import torch.nn as nn

class SwiGLU(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        d_ff = int(8 / 3 * d_model)
        self.gate = nn.Linear(d_model, d_ff)
""",
            note="8/3 of the width",
        ),
        Example(
            source="""\
from torch import nn

class GLU(nn.Module):
    def __init__(self, dim, mult=4):
        super().__init__()
        inner = int(dim * mult * 2 / 3)
        self.proj = nn.Linear(dim, inner * 2)
        self.out = nn.Linear(inner, dim)
""",
            note="two thirds of a multiple",
        ),
    )


RULES: tuple[type[Rule], ...] = (SwigluTwoThirds,)


def _two_thirds(value: Expression) -> bool:
    """`int(...)` around `2 * x / 3` or `8 / 3 * x`, in any order."""
    if not isinstance(value, Call) or dotted(value.function) != "int" or len(value.arguments) != 1:
        return False
    factors, divisors = _factors(value.arguments[0].value)
    numbers = [factor.value for factor in factors if isinstance(factor, Literal)]
    symbols = [factor for factor in factors if not isinstance(factor, Literal)]
    return divisors == [3] and any(number in (2, 4, 8, 16) for number in numbers) and bool(symbols)


def _factors(expression: Expression) -> tuple[list[Expression], list[object]]:
    """The factors and the constant divisors of a product."""
    if isinstance(expression, Operation) and expression.operator == "*":
        left, right = (_factors(operand) for operand in expression.operands)
        return left[0] + right[0], left[1] + right[1]
    if isinstance(expression, Operation) and expression.operator == "/":
        top, bottom = expression.operands
        factors, divisors = _factors(top)
        return factors, [*divisors, bottom.value if isinstance(bottom, Literal) else None]
    return [expression], []


def _rounded(function: Function, made: Assignment) -> bool:
    """The size is changed again later, or handed to something that rounds."""
    name = made.targets[0]
    for event in function.events:
        if isinstance(event, Assignment) and event.site != made.site:
            if name in event.targets or (name in names_in(event.value) and "//" in render(event.value)):
                return True
        elif isinstance(event, CallEvent):
            last = method_of(event.call)[1].lower()
            if any(word in last for word in _ROUNDING) and any(
                name in names_in(argument.value) for argument in event.call.arguments
            ):
                return True
    return False


def _known_multiple(context: SourceContext, function: Function, value: Expression) -> bool:
    inner = value.arguments[0].value if isinstance(value, Call) else value
    possible = context.resolver.evaluate(function, inner)
    number = possible.values[0] if possible.certain else None
    return isinstance(number, int | float) and int(number) % 64 == 0
