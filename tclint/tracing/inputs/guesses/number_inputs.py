"""Plain numbers among a forward's arguments: its annotations tell them, and what its source counts up to."""

from __future__ import annotations

import ast
import re

from torch import nn

from tclint.tracing.inputs.forward import called, function_of, parameters_of, required_arguments
from tclint.tracing.inputs.stated_sizes import IMAGE_SIZE, sequence_length

_KINDS: dict[object, type[bool | int | float]] = {
    kind: named for named in (bool, int, float) for kind in (named, named.__name__)
}
_COUNTING = frozenset({"arange", "range", "linspace"})
_ROUNDS = 4
"""Of a loop: more than one, so that what repeats is seen, and few, so that the trace stays short."""
_PATCH = 16
"""Pixels on a side of a vision transformer's patches, most often (ViT-B/16): the unit of a grid's height."""


def numbers_for(model: nn.Module) -> dict[str, bool | int | float]:
    """Values for those required arguments of the model's forward that are numbers, by name."""
    parameters, counted = parameters_of(model), _counted_in(model)
    found: dict[str, bool | int | float] = {}
    for name in required_arguments(model):
        annotation = parameters[name].annotation if name in parameters else None
        kind = _KINDS.get(annotation) if isinstance(annotation, (type, str)) else None
        if kind is not None or name in counted:
            found[name] = _value(name, kind or int, model)
    return found


def _counted_in(model: nn.Module) -> set[str]:
    """Names that the forward hands to range() or arange() as they are."""
    function = function_of(model.forward)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function else []
    return {
        argument.id
        for call in calls
        if called(call) in _COUNTING
        for argument in call.args
        if isinstance(argument, ast.Name)
    }


def _value(name: str, kind: type[bool | int | float], model: nn.Module) -> bool | int | float:
    if kind is not int:
        return 1.0 if kind is float else False
    if re.search(r"len|max|size", name.lower()):
        return sequence_length(model)
    if re.fullmatch(r"h|w|height|width", name.lower()):
        return IMAGE_SIZE // _PATCH
    return _ROUNDS
