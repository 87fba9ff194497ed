"""Keeps large constants once that every layer computes again: index tables and masks."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_MIN_BYTES = 4096
_clone_on_write: Any = getattr(torch, "_lazy_clone", None)
_is_clone_on_write: Any = getattr(torch._C, "_is_cow_tensor", None)
_CAN_SHARE = _clone_on_write is not None and _is_clone_on_write is not None


def lazy_clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that takes memory only when one of the two is written to (torch >= 2.3)."""
    try:
        made: torch.Tensor = tensor.clone() if _clone_on_write is None else _clone_on_write(tensor)
    except RuntimeError:  # memory that is not torch's own, such as numpy's
        made = tensor.clone()
    return made


def make_resizable(tensor: torch.Tensor) -> None:
    """Give the tensor memory of its own, if it shares some: that could not be resized."""
    if _CAN_SHARE and not tensor.is_meta and tensor.layout == torch.strided and _is_clone_on_write(tensor):
        tensor.set_(tensor.clone())


class EqualConstants:
    """The large constants of a model, as long as anything else keeps them.

    Each stays a tensor of its own: what writes to one of them, or takes its address, makes a copy first.
    """

    def __init__(self) -> None:
        self._known: dict[Any, StorageWeakRef] = {}

    def share(self, made: Any) -> Any:
        """A tensor that was just computed, in the memory of an earlier one that is equal, if there is one."""
        if (
            not _CAN_SHARE
            or type(made) is not torch.Tensor
            or made.is_meta
            or made.layout is not torch.strided
            or made.is_quantized
            or made.nbytes < _MIN_BYTES
            or made.requires_grad
            or not made.is_contiguous()
        ):
            return made
        try:
            checksum = zlib.crc32(made.view(torch.uint8).numpy())
        except (RuntimeError, TypeError):  # conjugated, or no numpy
            return made
        key = made.dtype, made.shape, checksum
        known = self._known.get(key)
        memory = None if known is None else torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        if memory is not None and memory.nbytes() >= made.nbytes:
            earlier = torch.empty(0, dtype=made.dtype).set_(memory, 0, made.shape, made.stride())
            # Otherwise it was written to, or somebody has its address.
            if _is_clone_on_write(earlier) and torch.equal(earlier, made):
                return _clone_on_write(earlier)
        shared = lazy_clone(made)
        self._known[key] = StorageWeakRef(shared.untyped_storage())
        return shared
