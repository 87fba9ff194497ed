"""Whether a value is a module."""

from __future__ import annotations

from typing import Any

from torch import nn


def is_module(value: Any) -> bool:
    """Whether the value is an nn.Module, whatever it says of its class."""
    return issubclass(type(value), nn.Module)
