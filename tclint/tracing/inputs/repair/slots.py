"""The tensors among the arguments of a call, and the same call with some of them exchanged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn

from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.session.trace import argument_names

LARGEST = 1 << 20
"""Of one dim of an input that is tried."""
_MOST_ELEMENTS = 1 << 36
"""Of an input: more than any batch of videos has."""
_MOST_REAL = 4096
"""Elements of a copy that holds numbers, as the original does."""
_META = torch.device("meta")

Path = tuple[int | str, ...]
"""Where a tensor is: the argument's index or name, then the keys of dicts and attributes that lead to it."""

Change = dict[Path, Any]
"""New values by their place."""


class Slot(NamedTuple):
    """A tensor among the arguments of a call."""

    name: str
    """As the trace names the input: 'x', "batch['image']"."""
    path: Path
    tensor: torch.Tensor


def slots_of(inputs: CallInputs, model: nn.Module) -> list[Slot]:
    """Every tensor that is an argument, or part of one that is a dict or a plain object."""
    names = argument_names(model, len(inputs.args))
    found: list[Slot] = []
    for index, (name, value) in enumerate(zip(names, inputs.args, strict=True)):
        found += _slots_in(value, name, (index,))
    for name, value in inputs.kwargs.items():
        found += _slots_in(value, name, (name,))
    return found


def _slots_in(value: Any, name: str, path: Path) -> Iterator[Slot]:
    if isinstance(value, torch.Tensor):
        yield Slot(name, path, value)
    elif type(value) is dict:
        for key, item in value.items():
            yield from _slots_in(item, f"{name}[{key!r}]", (*path, key))
    elif isinstance(value, SimpleNamespace):
        for key, item in vars(value).items():
            yield from _slots_in(item, f"{name}.{key}", (*path, key))


def exchanged(inputs: CallInputs, change: Change) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the changed values in place of theirs; a new name is one more keyword."""
    args, kwargs = list(inputs.args), dict(inputs.kwargs)
    for (first, *rest), value in change.items():
        if isinstance(first, int):
            args[first] = _with(args[first], rest, value)
        else:
            kwargs[first] = _with(kwargs.get(first), rest, value)
    return tuple(args), kwargs


def _with(owner: Any, path: list[int | str], value: Any) -> Any:
    if not path:
        return value
    key, *rest = path
    if isinstance(owner, SimpleNamespace):
        return SimpleNamespace(**{**vars(owner), str(key): _with(getattr(owner, str(key)), rest, value)})
    return {**owner, key: _with(owner[key], rest, value)}


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
