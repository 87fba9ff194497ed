"""What a model's forward calls its arguments, and which of them it needs."""

from __future__ import annotations

import inspect

from torch import nn


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
        required = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD][:1]
    return required
