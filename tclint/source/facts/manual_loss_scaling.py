"""Scaling of losses and gradients that a file does itself, without a scaler's methods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Name,
    Operation,
    Return,
    Tables,
    dotted,
    method_of,
    parts_of,
    render,
)

_PRODUCTS = ("*", "/", "//", "**")

_ARITHMETIC = (*_PRODUCTS, "+", "-")

_OTHER_FACTOR = re.compile(r"weight|coef|lambda|alpha|beta|gamma|world|size|steps|accum|mask|lr|(?:^|[._])n_")
"""In names of factors that are no loss scale."""

_RESCALING_WORDS = ("clip", "grad", "norm", "unscale", "mul", "div")
"""In the names of functions that may use a loss scale they are given as a factor."""


def rescales_gradients(tables: Tables) -> bool:
    """The file multiplies or divides `.grad`: scaling by hand."""
    return any(True for _ in _rescalings(tables))


def unscales_gradients(tables: Tables) -> bool:
    """The file multiplies or divides `.grad` by what may be a loss scale.

    A constant, a weight of a loss or a number of processes is none: `p.grad *= 1 / center_loss_weight`.
    """
    for function, factor in _rescalings(tables):
        text = render(factor).lower()
        if "scal" in text or "inv" in text or "scal" in function.name.lower():
            return True
        if isinstance(factor, Name) and not _OTHER_FACTOR.search(text):
            return True
    return False


def _rescalings(tables: Tables) -> Iterator[tuple[Function, Expression]]:
    """(function, factor) of each `p.grad *= factor` and `p.grad.div_(factor)`."""
    for function in tables.functions:
        for event in function.events:
            if isinstance(event, Assignment) and event.operator in ("*", "/"):
                if any(".grad" in "." + target for target in event.targets):
                    yield function, event.value
            elif isinstance(event, CallEvent):
                receiver, method = method_of(event.call)
                if method not in ("mul_", "div_", "mul", "div") or receiver is None:
                    continue
                if render(receiver).endswith((".grad", ".grad.data")) and event.call.arguments:
                    yield function, event.call.arguments[0].value


def computes_with_scale(tables: Tables) -> bool:
    """The file multiplies or divides by a scaler's scale, or hands it to what may: unscaling by hand.

    Comparing the scale before and after `update()`, to skip a scheduler's step, and logging it are
    neither.
    """
    held: set[str] = set()
    for _, made in tables.assignments:
        if not made.operator and _has_scale(made.value, held):
            held.update(made.targets)
    for function in tables.functions:
        for event in function.events:
            if isinstance(event, Assignment):
                if event.operator in _PRODUCTS and _has_scale(event.value, held):
                    return True
                if _is_factor(event.value, held):
                    return True
            elif isinstance(event, Return):
                if _has_scale(event.value, held):
                    return True
            elif isinstance(event, CallEvent):
                called = render(event.call.function).lower()
                rescales = any(word in called for word in _RESCALING_WORDS)
                for argument in event.call.arguments:
                    if rescales and _has_scale(argument.value, held):
                        return True
                    if _is_factor(argument.value, held):
                        return True
    return False


def _has_scale(expression: Expression, held: set[str]) -> bool:
    """Whether it contains `scaler.get_scale()` or a name that holds it, outside of comparisons."""
    if isinstance(expression, Call):
        if method_of(expression)[1] == "get_scale":
            return True
    elif isinstance(expression, Operation) and expression.operator not in _ARITHMETIC:
        return False
    elif dotted(expression) in held:
        return True
    return any(_has_scale(part, held) for part in parts_of(expression))


def _is_factor(expression: Expression, held: set[str]) -> bool:
    """Whether a product or a quotient in it has the scale as an operand."""
    if isinstance(expression, Operation) and expression.operator in _PRODUCTS:
        return any(_has_scale(operand, held) for operand in expression.operands)
    return any(_is_factor(part, held) for part in parts_of(expression))
