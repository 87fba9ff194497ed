"""Arithmetic on what added entries may be: sets of 'zero', 'positive', 'negative' and 'not finite'."""

from __future__ import annotations

from collections.abc import Callable

from tclint.graph.weights.axis import Fill, Values

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
