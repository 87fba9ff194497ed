"""Which tensors share memory, and what was written through one of them and is read through another.

A recorded graph links an input to the op that made the tensor. After `out[t] = x` the tensor `out` still
looks untouched, because the write went to another tensor object (a view). Such a write is made visible, when
`out` is read, as an `as_strided_scatter` of the view into it, which costs nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tclint.tracing.values.origin import ValueOrigin, ensure_origin, set_origin

_META = torch.device("meta")

_FEW = 16
"""Written memory below this number of pieces is not searched for what has gone."""

# Without the Python object that a storage is given, and keeps, when it is asked for (torch >= 2.6).
_address: Callable[[torch.Tensor], int] = getattr(
    torch._C, "_storage_id", lambda tensor: tensor.untyped_storage()._cdata
)


def storage_key(tensor: torch.Tensor) -> int | None:
    """Identifies the memory of a dense tensor while it lives; None for sparse ones."""
    if tensor.layout != torch.strided:
        return None
    try:
        return _address(tensor)
    except (RuntimeError, NotImplementedError):
        return None


def shares_memory(output: Any, arguments: list[torch.Tensor]) -> bool:
    """Whether `output` is one of `arguments` or a view of one.

    torch's own alias check compares addresses, which all meta tensors have in common.
    """
    if not isinstance(output, torch.Tensor):
        return False
    key = storage_key(output)
    return any(output is tensor or (key is not None and storage_key(tensor) == key) for tensor in arguments)


class Write(NamedTuple):
    """An in-place write that other tensors of the same memory have to learn of."""

    origin: ValueOrigin
    """Where the written tensor came from."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    """Shape, strides and dtype right after the write; keeping the tensor itself would outlive its use."""
    first: int
    end: int
    """The range of elements of the memory that it covers."""

    def stand_in(self) -> torch.Tensor:
        """A tensor like the one that was written, and made by what made that."""
        made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=_META)
        set_origin(made, self.origin)
        return made


class WrittenMemory:
    """All in-place writes of a trace, by the memory they went to, while anything uses that."""

    def __init__(self) -> None:
        self.writes: dict[int, list[Write]] = {}
        """By memory."""
        self._memory: dict[int, StorageWeakRef] = {}
        """The written memory: as long as it is referred to, no other gets its key."""
        self._search_at = _FEW
        self._alive: list[Any] = []
        self._twins: dict[int, torch.Tensor] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Note that `tensor` was written."""
        key = storage_key(tensor)
        if key is None:
            return
        writes = self.writes.get(key)
        if writes is None:
            self._forget_the_dead()
            writes = self.writes[key] = []
            self._memory[key] = StorageWeakRef(tensor.untyped_storage())
        origin = ensure_origin(tensor)
        writes.append(Write(origin, tuple(tensor.shape), tensor.stride(), tensor.dtype, *_extent(tensor)))
        origin.writes_seen = len(writes)

    def _forget_the_dead(self) -> None:
        if len(self.writes) < self._search_at:
            return
        for key in [key for key, memory in self._memory.items() if memory.expired()]:
            del self.writes[key], self._memory[key]
        self._search_at = max(_FEW, 2 * len(self.writes))

    def forget(self, tensor: torch.Tensor, origin: ValueOrigin) -> None:
        """A tensor that was just made contains all earlier writes."""
        key = storage_key(tensor)
        origin.writes_seen = len(self.writes.get(key, ())) if key is not None else 0

    def unseen(self, tensor: torch.Tensor) -> list[Write]:
        """Writes through other tensors to elements of this one since it was made or last read."""
        key = storage_key(tensor)
        writes = self.writes.get(key) if key is not None else None
        if not writes:
            return []
        origin = ensure_origin(tensor)
        recent = writes[origin.writes_seen :]
        origin.writes_seen = len(writes)
        if not recent:
            return []
        first, end = _extent(tensor)
        return [write for write in recent if write.first < end and first < write.end]

    # ------------------------------------------------------------------ constants that receive traced data

    def demote_to_meta(self, constant: torch.Tensor) -> None:
        """A real tensor receives traced data: from now on meta tensors stand for it and its views."""
        key = storage_key(constant)
        if key is not None and key not in self._twins:
            storage = constant.untyped_storage()
            self._alive.append(storage)
            count = storage.nbytes() // constant.element_size()
            # In or out of inference mode as the constant is: torch does not let one be a view of the other.
            with torch.inference_mode(constant.is_inference()):
                self._twins[key] = torch.empty((count,), dtype=constant.dtype, device=_META)

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Whether anything was written to the tensor's memory."""
        return bool(self.writes) and storage_key(tensor) in self.writes

    def is_demoted(self, tensor: torch.Tensor) -> bool:
        """Whether the values of this real tensor mean nothing any more."""
        return bool(self._twins) and storage_key(tensor) in self._twins

    def twin(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The meta tensor that stands for a real one; all of one memory share theirs."""
        base = self._twins.get(storage_key(tensor) or 0) if self._twins else None
        if base is None or base.dtype != tensor.dtype:
            return None
        with torch.inference_mode(base.is_inference()):
            return torch.as_strided(base, tensor.shape, tensor.stride(), tensor.storage_offset())


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    first = tensor.storage_offset()
    if tensor.numel() == 0:
        return first, first
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + last + 1
