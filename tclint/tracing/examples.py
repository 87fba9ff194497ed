"""Inputs for a model: as the caller gave them, or inferred from the model's first layers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tclint.graph import Assumption

_META = torch.device("meta")
_BATCH = 8
_LENGTH = 128
_IMAGE = 224


class InferenceFailed(ValueError):
    """The model's first layers do not tell what it takes."""


def call_inputs(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from a tensor, a tuple or list of arguments, or a dict of keywords."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return (), dict(value)
    if isinstance(value, (tuple, list)):
        return tuple(value), {}
    return (value,), {}


def infer_inputs(model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any], Assumption]:
    """Inputs that fit the first layer with weights, for a forward with one required argument.

    Raises:
        InferenceFailed: with the reason.
    """
    required = _required_arguments(model)
    if len(required) > 1:
        raise InferenceFailed(f"the forward takes {len(required)} arguments ({', '.join(required)})")
    if not required:
        return (), {}, Assumption("the forward was called without inputs: it requires none")
    for layer in _leaves(model):
        tensor = _input_of(layer)
        if tensor is not None:
            shape = ",".join(str(size) for size in tensor.shape)
            dtype = str(tensor.dtype).removeprefix("torch.")
            what = f"input {required[0]}={dtype}[{shape}], inferred from the first {type(layer).__name__}"
            return (tensor,), {}, Assumption(what)
    raise InferenceFailed("no layer tells the shape of the input")


def _required_arguments(model: nn.Module) -> list[str]:
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ["input"]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if not required and any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        return ["input"]
    if not required and parameters:
        return [next(iter(parameters)).name]
    return required


def _leaves(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        if next(module.children(), None) is None or isinstance(module, nn.RNNBase):
            yield module


def _input_of(layer: nn.Module) -> torch.Tensor | None:
    """An input for the layer: batch 8, images 224x224, sequences 128 long."""

    def floats(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=_META)

    if isinstance(layer, nn.Embedding):
        return torch.empty((_BATCH, _LENGTH), dtype=torch.int64, device=_META)
    if isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d)):
        return floats(_BATCH, layer.in_channels, 16, 112, 112)
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        return floats(_BATCH, layer.in_channels, _IMAGE, _IMAGE)
    if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d)):
        return floats(_BATCH, layer.in_channels, 1024)
    if isinstance(layer, nn.RNNBase):
        return floats(*((_BATCH, _LENGTH) if layer.batch_first else (_LENGTH, _BATCH)), layer.input_size)
    if isinstance(layer, nn.RNNCellBase):
        return floats(_BATCH, layer.input_size)
    if isinstance(layer, nn.Linear):
        return floats(_BATCH, layer.in_features)
    return None
