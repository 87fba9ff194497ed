"""What a model's forward calls its arguments, and which of them it needs."""

from __future__ import annotations

import inspect
import re

from torch import nn

_IMAGES = re.compile(r"imgs?|images?|pixel_values")


def are_texts(name: str) -> bool:
    """Whether an argument of that name holds the tokens of a text."""
    return re.fullmatch(r"texts?|captions?|tokens|input_ids", name) is not None


def parameters_of(model: nn.Module) -> dict[str, inspect.Parameter]:
    """The parameters of the model's forward by name; none where Python cannot tell."""
    try:
        return dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return {}


def required_arguments(model: nn.Module) -> list[str]:
    """Names of the arguments that an input has to be found for."""
    parameters = list(parameters_of(model).values())
    if not parameters:
        try:
            inspect.signature(model.forward)
        except (TypeError, ValueError):
            return ["input"]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        # `forward(self, *inputs)` and `forward(self, x=None)` mostly want an input all the same.
        names = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
        # The encoders of a model of pictures and texts, each of which may be left out.
        both = len(names) > 1 and _IMAGES.fullmatch(names[0]) and are_texts(names[1])
        required = names[: 2 if both else 1]
    return required
