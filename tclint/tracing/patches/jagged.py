"""Jagged nested tensors: what torch asks of a real device, or of lengths that a trace does not have.

torch wants the offsets of a nested tensor where its values are, on meta, where they hold no numbers. Equal
lengths stand in for them, and the user is told so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _python_dispatch

from tclint.tracing.meta_ops.meta_kernels import to_meta

_without_modes = getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)

_Assume = Callable[[str], None]


def make(_assume: _Assume, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the offsets and lengths follow the values to meta."""
    if not args[0].is_meta:
        return NotImplemented
    moved = [_to_meta(value) for value in args[1:]]
    return function(args[0], *moved, **{name: _to_meta(value) for name, value in kwargs.items()})


def attend(assume: _Assume, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attention as the one kernel that a GPU runs; torch would choose it by the device."""
    given = args[:3]
    if len(given) < 3 or not all(map(_is_jagged, given)):
        return NotImplemented
    assume("attention over jagged sequences: equal lengths assumed")
    query = given[0]
    dense = [_rows(tensor.transpose(1, 2)).transpose(1, 2) for tensor in given]
    made = function(*dense, *args[3:], **kwargs).transpose(1, 2).flatten(0, 1)
    values = query.transpose(1, 2).values()
    if missing := values.shape[0] - made.shape[0]:
        made = torch.cat([made, made.new_empty((missing, *made.shape[1:]))])
    known = {name: getattr(query, f"_maybe_{name}", None) for name in ("min_seqlen", "max_seqlen")}
    return torch.nested.nested_tensor_from_jagged(made, query.offsets(), **known).transpose(1, 2)


def separate(assume: _Assume, _function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sequences of a nested tensor, one by one."""
    if not _is_jagged(args[0]) or (args[1] if len(args) > 1 else kwargs.get("dim", 0)) != 0:
        return NotImplemented
    assume("the sequences of a jagged nested tensor: equal lengths assumed")
    return list(_rows(args[0]).unbind(0))


def _is_jagged(tensor: Any) -> bool:
    return bool(tensor.is_nested and tensor.layout is torch.jagged and tensor.is_meta)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """As many elements in each sequence, without the rest."""
    values, count = tensor.values(), tensor.shape[0]
    length = max(1, values.shape[0] // count)
    if values.shape[0] != length * count:
        values = values[: length * count]
    return values.unflatten(0, (-1, length))


def _to_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.is_nested:
        return value
    with _without_modes():  # the recorder would keep a small constant real
        return to_meta(value)
