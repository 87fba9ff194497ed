"""Whether a value is a module, and what its class is called."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def is_module(value: Any) -> bool:
    """Whether the value is an nn.Module, whatever it says of its class."""
    return issubclass(type(value), nn.Module)


def class_name(model: Any) -> str:
    """The name of a model's class; of a scripted module, that of the class it was made from."""
    name = getattr(model, "original_name", None) if isinstance(model, torch.jit.ScriptModule) else None
    return name if isinstance(name, str) else type(model).__name__
