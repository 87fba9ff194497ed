"""Transfer rules of elementwise ops: what a function makes of added entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tclint.graph.weights.axis import Axis, Fill, Pad, Run, Values
from tclint.graph.weights.step import Padded, Step, rule, values_of
from tclint.graph.weights.values import (
    NONZERO,
    NOT_FINITE,
    inverse,
    is_zero,
    mapped,
    negated,
    plus,
    times,
)

Combination = Callable[[Step, list[Values]], Values]
"""What an op makes of an added entry, from what its inputs hold there."""


def combined(step: Step, combine: Combination, inputs: Sequence[Padded] | None = None) -> Padded:
    """The broadcast result of an elementwise op.

    Raises:
        Inexact: entries of different places would be combined.
    """
    tensors = list(step.inputs if inputs is None else inputs)
    rank = max((len(tensor.axes) for tensor in tensors), default=0)
    one = Axis.kept(1)
    shapes = [(one,) * (rank - len(tensor.axes)) + tensor.axes for tensor in tensors]
    axes = []
    for position in range(rank):
        axis = one
        for shape in shapes:
            axis = step.meet(axis, shape[position])
        if axis.is_padded:
            axis = _combined_axis(step, combine, tensors, [shape[position] for shape in shapes], axis)
        axes.append(axis)
    infinite = any(tensor.is_infinite for tensor in tensors)
    # Old entries are finite, or the original has no result either.
    kept = combine(step, [tensor.kept for tensor in tensors]) & Fill.FINITE or Fill.FINITE
    return step.result(axes, is_infinite=infinite, kept=kept)


def _combined_axis(
    step: Step, combine: Combination, tensors: list[Padded], own: list[Axis], axis: Axis
) -> Axis:
    runs = []
    # Where the inputs' added entries differ, each piece has its own values.
    edges = {0}
    for one in own:
        end = 0
        for run in one.runs if one.new_size == axis.new_size else ():
            end += run.length
            edges.add(end)
    edges.add(axis.new_size)
    ordered = sorted(edges)
    cursors = [_Cursor(one) for one in own]
    shared = _Cursor(axis)
    for start, end in pairwise(ordered):
        pad = shared.at(start)
        if pad is None:
            runs.append(Run(end - start))
        else:
            here = []
            for cursor, tensor, one in zip(cursors, tensors, own, strict=True):
                found = cursor.at(start) if one.new_size == axis.new_size else None
                here.append(tensor.kept if found is None else found.values)
            runs.append(Run(end - start, Pad(combine(step, here), pad.groups)))
    return Axis.of(runs, axis.origin)


class _Cursor:
    """The runs of an axis, asked for at growing places."""

    def __init__(self, axis: Axis) -> None:
        self._runs = axis.runs
        self._index = 0
        self._start = 0

    def at(self, place: int) -> Pad | None:
        while place >= self._start + self._runs[self._index].length:
            self._start += self._runs[self._index].length
            self._index += 1
        return self._runs[self._index].pad


# ------------------------------------------------------------------------------ functions of one number


def _sign_kept(value: str) -> Values:
    return frozenset({value})


def _nonnegative(value: str) -> Values:
    return Fill.ZERO if value in ("zero", "negative") else Fill.POSITIVE


_FUNCTIONS: dict[str, Callable[[str], Values]] = {}

for _name in (
    "tanh", "sin", "erf", "sinh", "asinh", "atan", "elu", "selu", "celu", "leaky_relu", "softsign", "expm1",
    "sgn", "sign", "hardtanh", "nan_to_num", "positive", "rrelu", "tan",
):  # fmt: skip
    _FUNCTIONS[_name] = _sign_kept
_FUNCTIONS["sin"] = _FUNCTIONS["tan"] = lambda value: Fill.ZERO if value == "zero" else Fill.FINITE
for _name in ("relu", "relu6"):
    _FUNCTIONS[_name] = _nonnegative
for _name in ("abs", "absolute", "square"):
    _FUNCTIONS[_name] = lambda value: Fill.ZERO if value == "zero" else Fill.POSITIVE
for _name in ("gelu", "silu", "mish", "hardswish", "floor", "ceil", "round", "trunc", "frac", "softshrink",
              "hardshrink"):  # fmt: skip
    _FUNCTIONS[_name] = lambda value: Fill.ZERO if value == "zero" else Fill.FINITE
for _name in ("sigmoid", "special_expit", "softplus"):
    _FUNCTIONS[_name] = lambda _: Fill.POSITIVE
_FUNCTIONS["hardsigmoid"] = lambda value: Fill.FINITE if value == "negative" else Fill.POSITIVE
# exp overflows where the original does not have to: of an added entry that is not zero, nothing is known.
for _name in ("exp", "exp2", "cosh"):
    _FUNCTIONS[_name] = lambda value: Fill.POSITIVE if value in ("zero", "negative") else Fill.ANY
_FUNCTIONS["cos"] = lambda value: Fill.POSITIVE if value == "zero" else Fill.FINITE
_FUNCTIONS["log_sigmoid"] = _FUNCTIONS["logsigmoid"] = lambda _: Fill.FINITE
# Their derivative at zero is infinite, and a gradient of 0 * inf is none.
_FUNCTIONS["sqrt"] = _FUNCTIONS["rsqrt"] = lambda value: Fill.POSITIVE if value == "positive" else Fill.ANY
_FUNCTIONS["log"] = _FUNCTIONS["log2"] = _FUNCTIONS["log10"] = lambda value: (
    Fill.FINITE if value == "positive" else Fill.ANY
)
_FUNCTIONS["log1p"] = lambda value: Fill.ANY if value == "negative" else frozenset({value})
_FUNCTIONS["neg"] = _FUNCTIONS["negative"] = lambda value: negated(frozenset({value}))
_FUNCTIONS["reciprocal"] = lambda value: inverse(frozenset({value}))
_FUNCTIONS["logical_not"] = _FUNCTIONS["bitwise_not"] = lambda _: Fill.FINITE
_FUNCTIONS["isnan"] = _FUNCTIONS["isinf"] = _FUNCTIONS["isfinite"] = lambda _: Fill.FINITE

BOUNDED = frozenset({"sigmoid", "special_expit", "tanh", "hardsigmoid", "exp", "relu6", "nan_to_num"})
"""Functions of which the result is finite where a mask of -inf was added."""


@rule(*_FUNCTIONS)
def _function(step: Step) -> Sequence[Padded]:
    function = _FUNCTIONS[step.name]
    if step.name == "hardtanh" and not float(step.attribute("min_val", -1)) <= 0 <= float(
        step.attribute("max_val", 1)
    ):
        raise step.inexact("its bounds exclude zero")
    result = combined(step, lambda _, values: mapped(values[0], function), step.inputs[:1])
    if step.name in BOUNDED:
        result = replace(result, is_infinite=False)
    return [result] * len(step.old.outputs)


_IDENTITIES = (
    "_conj", "_to_copy", "alias", "clone", "contiguous", "detach", "data", "dropout", "_native_dropout",
    "native_dropout", "feature_dropout", "lift_fresh", "lift_fresh_copy", "to", "requires_grad", "type_as",
    "positive", "bfloat16", "float", "half", "double", "_autocast_to_reduced_precision",
)  # fmt: skip


@rule(*_IDENTITIES)
def _same(step: Step) -> Sequence[Padded]:
    tensor = step.inputs[0]
    return step.results(tensor.axes, is_infinite=tensor.is_infinite, kept=tensor.kept)


@rule("alpha_dropout", "feature_alpha_dropout")
def _alpha_dropout(step: Step) -> Sequence[Padded]:
    return step.results(step.inputs[0].axes)  # in evaluation it is the identity


# ------------------------------------------------------------------------------ functions of several


def _operands(step: Step, here: list[Values], *names: str) -> list[Values]:
    """What two operands hold, the second one perhaps a number."""
    if len(here) > 1:
        return here[:2]
    for name in names or ("other",):
        number = step.old.attributes.get(name)
        if isinstance(number, (int, float)):
            return [here[0], values_of(float(number))]
    return [here[0], Fill.FINITE]


def _scaled(step: Step, values: Values) -> Values:
    return times(values, values_of(float(step.attribute("alpha", 1))))


def _add(step: Step, here: list[Values]) -> Values:
    left, right = _operands(step, here)
    return plus(left, _scaled(step, right))


def _sub(step: Step, here: list[Values]) -> Values:
    left, right = _operands(step, here)
    return plus(left, negated(_scaled(step, right)))


def _rsub(step: Step, here: list[Values]) -> Values:
    left, right = _operands(step, here)
    return plus(right, negated(_scaled(step, left)))


def _mul(step: Step, here: list[Values]) -> Values:
    return times(*_operands(step, here))


def _div(step: Step, here: list[Values]) -> Values:
    left, right = _operands(step, here)
    return times(left, inverse(right))


def _pow(step: Step, here: list[Values]) -> Values:
    exponent = step.old.attributes.get("exponent")
    if not isinstance(exponent, (int, float)):
        return Fill.ANY
    whole = exponent == int(exponent)

    def of(value: str) -> Values:
        if value == "positive":
            return Fill.POSITIVE
        if value == "zero":
            return Fill.ZERO if exponent >= 1 else Fill.ANY
        return Fill.FINITE if whole and exponent >= 1 else Fill.ANY

    return mapped(here[0], of)


def _finite(step: Step, here: list[Values]) -> Values:
    """Comparisons and the like: whatever it is, it is finite."""
    del step, here
    return Fill.FINITE


def _either(step: Step, here: list[Values]) -> Values:
    found: Values = frozenset().union(*here)
    if len(here) < 2:
        found |= _operands(step, here)[1]
    return found


def _clamp(step: Step, here: list[Values]) -> Values:
    low, high = (_bound(step, name) for name in ("min", "max"))
    if len(here) > 1:
        return Fill.ANY if any(NOT_FINITE in values for values in here) else Fill.FINITE

    def of(value: str) -> Values:
        found = frozenset({value})
        if low is not None and (value == "negative" or (value == "zero" and low > 0)):
            found = values_of(low) if value == "zero" else values_of(low) | found
        if low is not None and low > 0:
            found = Fill.POSITIVE
        if high is not None and high <= 0 and value == "positive":
            found |= values_of(high)
        if high is not None and high < 0:
            found = frozenset({"negative"})
        return found

    return mapped(here[0], of)


def _bound(step: Step, name: str) -> float | None:
    value = step.old.attributes.get(name)
    return float(value) if isinstance(value, (int, float)) else None


_COMBINATIONS: dict[str, Combination] = {
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "multiply": _mul,
    "pow": _pow,
    "maximum": _either,
    "minimum": _either,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "clip": _clamp,
}
for _name in (
    "eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal", "not_equal",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "isclose",
):  # fmt: skip
    _COMBINATIONS[_name] = _finite


@rule(*_COMBINATIONS)
def _combination(step: Step) -> Sequence[Padded]:
    result = combined(step, _COMBINATIONS[step.name])
    return [_with_infinite_numbers(step, result)]


def _with_infinite_numbers(step: Step, result: Padded) -> Padded:
    numbers = [step.old.attributes.get(name) for name in ("other", "value")]
    if any(isinstance(n, float) and not abs(n) < float("inf") for n in numbers):
        return replace(result, is_infinite=True)
    return result


@rule("div", "divide", "true_divide", "floor_divide", "remainder", "fmod")
def _division(step: Step) -> Sequence[Padded]:
    # What the original divides by is not zero, or it has no result either.
    def divide(step: Step, here: list[Values]) -> Values:
        if len(here) > 1:
            divisor = step.inputs[1]
            if here[1] is divisor.kept:
                here = [here[0], here[1] & NONZERO or NONZERO]
        return _div(step, here)

    if step.name in ("remainder", "fmod", "floor_divide") and step.groups:
        raise step.inexact("no rule says what it makes of added entries")
    return [combined(step, divide)]


@rule("prelu", "_prelu_kernel")
def _prelu(step: Step) -> Sequence[Padded]:
    tensor, weight = step.inputs[:2]
    if len(weight.axes) == 1 and weight.axes[0].old_size > 1 and len(tensor.axes) > 1:
        ones = (Axis.kept(1),) * (len(tensor.axes) - 2)
        weight = Padded((*weight.axes, *ones), weight.touched)
    kept_sign: Combination = lambda _, here: here[0] if is_zero(here[0]) else here[0] | Fill.FINITE  # noqa: E731
    return [combined(step, kept_sign, (tensor, weight))]


@rule("where")
def _where(step: Step) -> Sequence[Padded]:
    if len(step.inputs) < 2 or len(step.old.outputs) != 1:
        raise step.inexact("what it finds depends on the data")
    numbers = [step.old.attributes.get(name) for name in ("self", "other")]
    given = [values_of(float(n)) for n in numbers if isinstance(n, (int, float))]

    def choose(_: Step, here: list[Values]) -> Values:
        return frozenset().union(*here[1:], *given)

    result = combined(step, choose)
    if any(NOT_FINITE in values for values in given):
        result = replace(result, is_infinite=True)
    return [result]


@rule("masked_fill")
def _masked_fill(step: Step) -> Sequence[Padded]:
    value: Any = step.old.attributes.get("value")
    number = values_of(float(value)) if isinstance(value, (int, float)) else None

    def fill(_: Step, here: list[Values]) -> Values:
        return here[0] | (here[2] if number is None else number & Fill.FINITE)

    # An infinite mask over added entries is one over old ones too; what it leads to is followed there.
    result = combined(step, fill)
    if (number is not None and NOT_FINITE in number) or any(t.is_infinite for t in step.inputs):
        finite = tuple(
            axis.filled(axis.values | Fill.FINITE) if axis.is_padded else axis for axis in result.axes
        )
        return [Padded(finite, result.touched, is_infinite=True)]
    return [result]


@rule("addcmul")
def _addcmul(step: Step) -> Sequence[Padded]:
    return [combined(step, lambda _, here: plus(here[0], times(here[1], here[2]) | Fill.ZERO))]


@rule("lerp")
def _lerp(step: Step) -> Sequence[Padded]:
    def lerp(_: Step, here: list[Values]) -> Values:
        if all(is_zero(values) for values in here[:2]):
            return Fill.ZERO
        return Fill.ANY if any(NOT_FINITE in values for values in here) else Fill.FINITE

    return [combined(step, lerp)]
