"""Inputs with values, for models that really run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tclint.tracing.inputs.forward import parameters_of
from tclint.tracing.inputs.given import (
    CallInputs,
    given_inputs,
    input_sets,
    inputs_from_specs,
    inputs_of_module,
)
from tclint.tracing.inputs.specs import InputSpec

Traced = tuple[str, str, tuple[int, ...]]
"""Name, dtype and sizes of an input, as a traced model had it."""


def real_inputs(
    module: ModuleType,
    model: nn.Module,
    returned: Any,
    specs: Sequence[InputSpec],
    traced: Sequence[Traced],
) -> CallInputs:
    """What the forward is called with; what has no values yet is on meta.

    Args:
        module: the target's file, which may provide inputs.
        model: as it was built.
        returned: inputs that were returned with it; None: none were.
        specs: given by the user.
        traced: of a trace of the model; used where nothing gives inputs.
    """
    provided = inputs_of_module(module)
    if specs:
        return inputs_from_specs(specs, _random)
    if returned is not None:
        return given_inputs(returned, "the target")
    if provided is not None:
        name, make = provided
        return next(iter(input_sets(make(), name).values()))
    # What a star of the forward collects has no name that a call could use.
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    named = {name for name, one in parameters_of(model).items() if one.kind not in stars}
    return inputs_from_specs(
        [
            InputSpec(sizes, dtype, name if re.split(r"[\[.]", name)[0] in named else None)
            for name, dtype, sizes in traced
        ]
    )


def _random(spec: InputSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if spec.below is None:
        return torch.empty(spec.shape, dtype=dtype, device="meta")
    return torch.randint(spec.below, spec.shape, dtype=dtype)


def filled(tensor: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """Random values where there are none; integers that every embedding of the model has."""
    if tensor.device.type != "meta":
        return tensor
    if tensor.is_floating_point():
        real = torch.randn(tensor.shape, dtype=tensor.dtype)
    else:
        counts = [part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)]
        below = 2 if tensor.dtype == torch.bool else min(counts, default=2)
        real = torch.randint(below, tensor.shape).to(tensor.dtype)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(real)
