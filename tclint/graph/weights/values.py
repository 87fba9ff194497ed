"""What added entries may be, and numbers in a model's code that follow from its sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tclint.graph.weights.axis import Fill, Values

_FORMULAS: dict[str, Callable[[int], float]] = {
    "{n}": lambda n: n,
    "1/{n}": lambda n: 1 / n,
    "sqrt({n})": math.sqrt,
    "1/sqrt({n})": lambda n: 1 / math.sqrt(n),
    "{n}**0.25": lambda n: n**0.25,
    "{n}**-0.25": lambda n: n**-0.25,
    "{n}**2": lambda n: n * n,
    "1/{n}**2": lambda n: 1 / (n * n),
    "{n}-1": lambda n: n - 1,
    "1/({n}-1)": lambda n: 1 / (n - 1) if n > 1 else math.nan,
    "{n}/2": lambda n: n / 2,
    "2/{n}": lambda n: 2 / n,
    "log({n})": math.log,
    "1/log({n})": lambda n: 1 / math.log(n) if n > 1 else math.nan,
    "sqrt(log({n}))": lambda n: math.sqrt(math.log(n)),
    "log2({n})": math.log2,
}

_TOLERANCE = 1e-6
"""Numbers go through float32."""


def formulas(number: float, size: int) -> Iterator[str]:
    """How a number may follow from a size. 0, 1 and -1 follow from none."""
    value = abs(number)
    if value in (0, 1) or not math.isfinite(value):
        return
    for text, formula in _FORMULAS.items():
        wanted = formula(size)
        if wanted and math.isclose(value, wanted, rel_tol=_TOLERANCE):
            yield text.format(n=size)


NOT_FINITE = "not finite"
NONZERO: Values = frozenset({"positive", "negative"})


def times(left: Values, right: Values) -> Values:
    """Of products. Zero times anything finite is zero."""
    found = set()
    for one in left:
        for other in right:
            if NOT_FINITE in (one, other):
                found.add(NOT_FINITE)
            elif "zero" in (one, other):
                found.add("zero")
            else:
                found.add("positive" if one == other else "negative")
    return frozenset(found)


def plus(left: Values, right: Values) -> Values:
    """Of sums."""
    found = set()
    for one in left:
        for other in right:
            if NOT_FINITE in (one, other):
                found.add(NOT_FINITE)
            elif other in (one, "zero"):
                found.add(one)
            elif one == "zero":
                found.add(other)
            else:
                found |= Fill.FINITE
    return frozenset(found)


def negated(values: Values) -> Values:
    swapped = {"positive": "negative", "negative": "positive"}
    return frozenset(swapped.get(value, value) for value in values)


def inverse(values: Values) -> Values:
    """Of reciprocals; that of zero is not finite."""
    return frozenset(NOT_FINITE if value == "zero" else value for value in values)


def mapped(values: Values, function: Callable[[str], Values]) -> Values:
    """Of a function of one number, by the sign of its argument."""
    result: Values = frozenset()
    for value in values:
        result |= frozenset({NOT_FINITE}) if value == NOT_FINITE else function(value)
    return result


def is_zero(values: Values) -> bool:
    return values <= Fill.ZERO


def is_finite(values: Values) -> bool:
    return NOT_FINITE not in values
