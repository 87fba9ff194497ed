"""A rule on feed-forward widths of two thirds that no multiple divides."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import contains, names_in, words
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Choice,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    dotted,
    method_of,
    render,
)

_LAYERS = frozenset(
    ("torch.nn.Linear", "torch.nn.LazyLinear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d")
)
_ROUNDING = words("multiple multiples divisible round ceil floor align pad next")


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
    requires = ("torch",)
    # int(), a power of two in it, and a division by three.
    pattern = re.compile(
        rb"\bint\s*\((?=.{0,300}?(?<![\w.])(?:2|4|8|16)(?![\w]|\.0*[1-9])).{0,300}?/\s*3(?:\.0*)?(?![\w.])",
        re.DOTALL,
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for event in function.events:
                if isinstance(event, Assignment):
                    yield from self._assigned(context, function, event)
                elif isinstance(event, CallEvent):
                    yield from self._given(context, function, event.call)

    def _assigned(self, context: SourceContext, function: Function, event: Assignment) -> Iterator[Finding]:
        """`hidden = int(8 / 3 * dim)`, and layers of that size."""
        size = _two_thirds(event.value)
        if size is None or event.operator or len(event.targets) != 1:
            return
        name = event.targets[0]
        if _rounded(context, function, name, event) or _known_multiple(context, function, size):
            return
        used = [
            item.call
            for item in function.events
            if isinstance(item, CallEvent)
            and not context.program.mutually_exclusive(function, item.block, event.block)
            and _is_side(context, function, item.call, name)
        ]
        if used:
            fix = f"Round it up to a multiple of 256: `{name} = 256 * (({name} + 255) // 256)`."
            yield self._finding(context, function, event.node_id, size, used, fix, name)

    def _given(self, context: SourceContext, function: Function, call: Call) -> Iterator[Finding]:
        """`SwiGLU(dim, int(8 / 3 * dim))`."""
        for position, argument in enumerate(call.arguments):
            if argument.star or not (size := _two_thirds(argument.value)):
                continue
            if _known_multiple(context, function, size):
                continue
            if _is_layer(context, function, call) or _class_uses(context, function, call, position):
                fix = f"Round it up to a multiple of 256: `256 * (({render(size)} + 255) // 256)`."
                yield self._finding(context, function, call.node_id, size, [call], fix, render(call))

    def _finding(
        self,
        context: SourceContext,
        function: Function,
        node_id: int,
        size: Expression,
        used: list[Call],
        fix: str,
        identity: str,
    ) -> Finding:
        return self.finding(
            context.location(node_id),
            f"`{render(size)}` is rarely a multiple of 8, and it is a side of "
            f"{len(used)} linear layer{'s' if len(used) > 1 else ''}.",
            related=(context.related(used[0].node_id, "used here"),),
            evidence={"size": render(size), "layers": len(used)},
            fix=Fix(fix),
            identity=f"{function.qualified_name}:{identity}",
        )


def _two_thirds(value: Expression) -> Call | None:
    """`int(...)` around `2 * x / 3` or `8 / 3 * x`, in any order; also as what a given size defaults to."""
    if isinstance(value, Operation) and value.operator == "or":
        return _two_thirds(value.operands[-1])
    if isinstance(value, Choice):
        return _two_thirds(value.first) or _two_thirds(value.second)
    if not isinstance(value, Call) or dotted(value.function) != "int" or len(value.arguments) != 1:
        return None
    factors, divisors = _factors(value.arguments[0].value)
    numbers = [factor.value for factor in factors if isinstance(factor, Literal)]
    symbols = [factor for factor in factors if not isinstance(factor, Literal)]
    fits = divisors == [3] and any(number in (2, 4, 8, 16) for number in numbers) and bool(symbols)
    return value if fits and not contains(value, _divides_first) else None


def _divides_first(part: Expression) -> bool:
    """`dim / 3 * 8` is for sizes that three divides: a multiple of eight."""
    if (
        not isinstance(part, Operation)
        or part.operator != "*"
        or not {8, 16} & set(map(_number, part.operands))
    ):
        return False
    return any(
        isinstance(side, Operation)
        and side.operator == "/"
        and isinstance(side.operands[0], Name)
        and _number(side.operands[1]) == 3
        for side in part.operands
    )


def _number(value: Expression) -> object:
    return value.value if isinstance(value, Literal) else None


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


def _rounded(context: SourceContext, function: Function, name: str, made: Assignment | None) -> bool:
    """The size is changed again later, or handed to something that rounds."""
    for event in function.events:
        if isinstance(event, Assignment) and (made is None or event.node_id != made.node_id):
            if made is not None and context.program.mutually_exclusive(function, event.block, made.block):
                continue
            if name in event.targets and (made is None or event.node_id > made.node_id):
                return True
            if name in names_in(event.value) and "//" in render(event.value):
                return True
        elif isinstance(event, CallEvent):
            last = method_of(event.call)[1].lower()
            if any(word in last for word in _ROUNDING) and any(
                name in names_in(argument.value) for argument in event.call.arguments
            ):
                return True
    return False


def _is_layer(context: SourceContext, function: Function, call: Call) -> bool:
    return any(name in _LAYERS for name in context.resolver.called(function, call))


def _is_side(context: SourceContext, function: Function, call: Call, name: str) -> bool:
    """The size, or twice it, is a side of a layer, or goes to a class of the file that makes it one."""
    given = [
        position
        for position, argument in enumerate(call.arguments)
        if not argument.star and _is_multiple_of(argument.value, name)
    ]
    if not given:
        return False
    if _is_layer(context, function, call):
        return True
    return any(
        dotted(call.arguments[position].value) == name and _class_uses(context, function, call, position)
        for position in given
    )


def _is_multiple_of(value: Expression, name: str) -> bool:
    """The size itself or a number times it; times another size it is a factor."""
    factors, divisors = _factors(value)
    return not divisors and [dotted(part) for part in factors if not isinstance(part, Literal)] == [name]


def _class_uses(context: SourceContext, function: Function, call: Call, position: int) -> bool:
    """A class of the file builds linear layers of what it is given there, as it is."""
    for maker in context.resolver.local_functions(function, call.function):
        if maker.kind != "class":
            continue
        for member in context.values.members(maker):
            if member.name != "__init__":
                continue
            listed = context.resolver.parameters(member)
            keyword = call.arguments[position].keyword
            name = keyword or (listed[position] if position < len(listed) else "")
            if not name or _rounded(context, member, name, None):
                return False
            return any(
                _is_layer(context, member, event.call)
                and any(_is_multiple_of(argument.value, name) for argument in event.call.arguments)
                for event in member.calls
            )
    return False


def _known_multiple(context: SourceContext, function: Function, value: Call) -> bool:
    possible = context.resolver.evaluate(function, value.arguments[0].value)
    number = possible.only
    return isinstance(number, int | float) and int(number) % 64 == 0
