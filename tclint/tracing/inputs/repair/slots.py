"""The tensors among the arguments of a call, and the same call with some of them exchanged."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.session.trace import argument_names

LARGEST = 1 << 20
"""The largest size that is tried for one dim of an input."""
_MOST_ELEMENTS = 1 << 36
"""The most elements of an input: more than any batch of videos has."""
_MOST_REAL = 4096
"""Elements of a copy that holds numbers, as the original does."""
_META = torch.device("meta")

SlotKey = int | str | tuple[int | str, int]
"""The index or name of an argument, with the index in it if it is a list."""

Change = dict[SlotKey, Any]
"""New values by their place."""


class Slot(NamedTuple):
    """A tensor among the arguments of a call."""

    name: str
    """As the trace names the input."""
    place: SlotKey
    tensor: torch.Tensor


def slots_of(inputs: CallInputs, model: nn.Module) -> list[Slot]:
    """Every tensor that is an argument, or in a list that is one."""
    names = argument_names(model, len(inputs.args))
    placed = [*zip(names, range(len(names)), inputs.args, strict=True)]
    placed += [(name, name, value) for name, value in inputs.kwargs.items()]  # type: ignore[misc]
    slots: list[Slot] = []
    for name, place, value in placed:
        if isinstance(value, torch.Tensor):
            slots.append(Slot(name, place, value))
        elif isinstance(value, list):
            items = enumerate(value)
            slots += [
                Slot(f"{name}[{at}]", (place, at), one) for at, one in items if isinstance(one, torch.Tensor)
            ]
    return slots


def exchanged(inputs: CallInputs, change: Change) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the changed values in place of theirs; a new name is one more keyword."""

    def changed(place: int | str, value: Any) -> Any:
        if isinstance(value, list) and place not in change:
            return [change.get((place, at), one) for at, one in enumerate(value)]
        return change.get(place, value)

    args = tuple(changed(index, value) for index, value in enumerate(inputs.args))
    named = {name: changed(name, value) for name, value in inputs.kwargs.items()}
    added = {name: value for name, value in change.items() if isinstance(name, str)}
    return args, {**named, **added}


def like(
    tensor: torch.Tensor, *, shape: Iterable[int] | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor of that shape and type, with numbers where the given one has some and it is small; the given
    one itself for a shape that no input has."""
    sizes = tuple(tensor.shape if shape is None else shape)
    if math.prod(sizes) > _MOST_ELEMENTS:
        return tensor
    if tensor.is_meta or math.prod(sizes) > _MOST_REAL:
        return torch.empty(sizes, dtype=dtype or tensor.dtype, device=_META)
    return torch.ones(sizes, dtype=dtype or tensor.dtype)


def with_size(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    """The same with other sizes, by axis; those that no input has are left out."""
    shape = list(tensor.shape)
    for axis, size in sizes.items():
        if 0 < size <= LARGEST:
            shape[axis] = size
    return like(tensor, shape=shape)


def permuted(tensor: torch.Tensor, one: int, other: int) -> torch.Tensor:
    """The same with two axes exchanged."""
    shape = list(tensor.shape)
    shape[one], shape[other] = shape[other], shape[one]
    return like(tensor, shape=shape)
