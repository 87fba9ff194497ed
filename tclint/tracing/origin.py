"""What the recorder remembers about a tensor: who made it, whether it is a weight, what it may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx import Node

_ATTRIBUTE = "_tclint_origin"


@dataclass(slots=True)
class Origin:
    """Kept on the tensor object itself, so that it lives exactly as long as the tensor."""

    node: Node | None = None
    """The fx node that made the tensor; None for constants that were never recorded."""
    output_index: int = 0
    """Which of the node's outputs the tensor is, where it has several."""
    parameter: str | None = None
    """The parameter or buffer that the tensor is, or is computed from alone."""
    input_name: str | None = None
    """The model input that the tensor is."""
    truth: bool | None = None
    """What a Boolean computed from data most likely is (`isnan(...).any()` is False)."""
    choices: int | None = None
    """The tensor holds indices below this number (top-k experts, argmax)."""
    density: float | None = None
    """Share of elements expected to be True, for masks such as `expert_index == 3`."""
    is_match: bool = False
    """Made by comparing data with a value for equality: rarely true everywhere."""
    mean: float | None = None
    """Expected mean of a tensor of counts (tokens per expert)."""
    is_running_sum: bool = False
    """The tensor holds the running sums of counts with that mean."""
    writes_seen: int = 0
    """In-place writes to the tensor's memory that its node accounts for (memory.py)."""


def origin_of(tensor: torch.Tensor) -> Origin | None:
    """What is known about the tensor, or None."""
    found: Origin | None = tensor.__dict__.get(_ATTRIBUTE) if hasattr(tensor, "__dict__") else None
    return found


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor is, or is computed from, an input of the model or what the model computed."""
    origin = origin_of(tensor)
    return origin is not None and origin.node is not None and origin.node.op != "get_attr"


def ensure_origin(tensor: torch.Tensor) -> Origin:
    """The tensor's origin, created empty where there is none."""
    found = origin_of(tensor)
    if found is None:
        found = Origin()
        setattr(tensor, _ATTRIBUTE, found)
    return found


def set_origin(tensor: torch.Tensor, origin: Origin) -> None:
    """Replace what is known about the tensor."""
    setattr(tensor, _ATTRIBUTE, origin)


def clear_origin(tensor: torch.Tensor) -> None:
    """Forget what is known about the tensor."""
    tensor.__dict__.pop(_ATTRIBUTE, None)


def map_tensors(value: Any, function: Any) -> Any:
    """Apply `function` to every tensor in a value nested in plain lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map_tensors(item, function) for item in value)
    if kind is dict:
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensor arguments of an operator call, lists one level deep included, in order."""
    found = []
    for argument in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple)):
            found.extend(item for item in argument if isinstance(item, torch.Tensor))
    return found
