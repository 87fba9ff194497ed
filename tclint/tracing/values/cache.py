"""Key-value caches as inputs of a model: objects of any class with tensors in them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch


class Cache:
    """An object whose tensors are inputs: the key-value cache of earlier tokens."""

    def __init__(self, content: Any) -> None:
        self.content = content


def filled(
    value: Any, make: Callable[[torch.Tensor, str], Any], place: str = "", known: dict[int, Any] | None = None
) -> Any:
    """A copy of containers and plain objects with other tensors in them.

    Args:
        make: what takes the place of a tensor, given that place: '.layers[0].keys'.
        known: copies by the ids of what they are of.
    """
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        return make(value, place)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(filled(item, make, f"{place}[{i}]", known) for i, item in enumerate(value)))
    if isinstance(value, (list, tuple)):
        return type(value)(filled(item, make, f"{place}[{i}]", known) for i, item in enumerate(value))
    if type(value) is dict:
        return {key: filled(item, make, f"{place}[{key!r}]", known) for key, item in value.items()}
    if isinstance(value, (torch.nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return value
    if id(value) not in known:
        made = known[id(value)] = copy.copy(value)
        for name, item in list(vars(value).items()):
            made.__dict__[name] = filled(item, make, f"{place}.{name}", known)
    return known[id(value)]
