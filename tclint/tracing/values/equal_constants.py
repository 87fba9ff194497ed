"""Keeps constants once that every layer computes again: index tables, masks, statistics of norms."""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tclint.graph.ops import numel
from tclint.graph.ops.spec import contiguous_strides
from tclint.tracing.kernels.pointwise_rules import FLOATING
from tclint.tracing.values.zero_pages import data_address, release_zero_pages

_MIN_BYTES = 4096
"""Smaller results are not compared with others: one page of memory is not worth the checksum."""
_FILLED_ELEMENTS = range(32, 4097)
"""Fewer take no more memory than a share in others' does; more are found by `share`, whatever filled them."""
_clone_on_write: Any = getattr(torch, "_lazy_clone", None)
_is_clone_on_write: Any = getattr(torch._C, "_is_cow_tensor", None)
_view_of_memory: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
_PyBUF_READ = 0x100
"""Of Python's C API."""
_use_count: Any = getattr(torch._C, "_storage_Use_Count", None)
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


def times_one(operator: str, args: tuple[Any, ...]) -> torch.Tensor | None:
    """A product with the number 1, as the scaling of rotary embeddings mostly is, without a copy.

    None for other calls, and where the result's memory would not be like a copy's.
    """
    if operator not in ("aten::mul.Tensor", "aten::mul.Scalar") or not _CAN_SHARE:
        return None
    tensor, number = args
    if type(number) not in (int, float) or number != 1 or type(tensor) is not torch.Tensor:
        return None
    if tensor.dtype not in FLOATING or tensor.layout is not torch.strided or tensor.nbytes < _MIN_BYTES:
        return None
    memory = tensor.untyped_storage()
    is_all = memory.nbytes() == tensor.nbytes and tensor.stride() == contiguous_strides(tuple(tensor.shape))
    # Others, such as numpy, may write to memory that cannot be resized.
    return lazy_clone(tensor) if is_all and memory.resizable() and not tensor.requires_grad else None


class EqualConstants:
    """The constants of a model, as long as anything else keeps them.

    Each stays a tensor of its own: what writes to one of them, or takes its address, makes a copy first.
    """

    def __init__(self) -> None:
        self._known: dict[Any, StorageWeakRef] = {}
        self._filled: dict[Any, torch.Tensor] = {}

    def filled(
        self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What `zeros`, `ones` or `full` make, all of them in the same memory; None for other operators.

        A model has as many tensors of statistics and scales as it has norms.
        """
        if name not in ("full", "ones", "zeros") or not _CAN_SHARE or not args:
            return None
        size, *values = args
        count = numel(size)
        if count not in _FILLED_ELEMENTS or kwargs.get("layout") not in (None, torch.strided):
            return None
        room = 1 << (count - 1).bit_length()  # whatever the width, few blocks, and no copy twice its size
        key = name, room, kwargs.get("dtype"), torch.get_default_dtype(), *((type(v), v) for v in values)
        try:
            base = self._filled.get(key)
        except TypeError:
            return None  # a value that cannot be hashed
        if base is None:
            base = self._filled[key] = function((room,), *values, **kwargs)
        memory = _clone_on_write(base).untyped_storage()
        made = torch.empty(0, dtype=base.dtype)
        return made.set_(memory, 0, tuple(size), contiguous_strides(tuple(size)))

    def is_filled_by(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a tensor holds what `fill_` or `zero_` would write into shared memory, without a copy."""
        if name not in ("fill_", "zero_") or not _CAN_SHARE or args[0].layout != torch.strided:
            return False
        value = args[1] if len(args) > 1 else 0
        if isinstance(value, torch.Tensor) or not _is_clone_on_write(args[0]):
            return False
        return bool((args[0] == value).all()) or self._refill(args[0], value)

    def _refill(self, written: torch.Tensor, value: Any) -> bool:
        """Give a tensor the memory of others that are filled so, unless anything else sees what it has."""
        if (
            _use_count is None
            or not written.is_floating_point()
            or not written.is_contiguous()
            or written.storage_offset()
            or _use_count(written.untyped_storage()._cdata) > 2
            or sys.getrefcount(written.untyped_storage()) > 2  # one that somebody holds is the same object
        ):
            return False
        filled = self.filled(torch.full, "full", (tuple(written.shape), value), {"dtype": written.dtype})
        if filled is None:
            return False
        written.set_(filled.untyped_storage(), 0, written.shape, written.stride())
        return True

    def share(self, made: Any, key: Any = None) -> Any:
        """A tensor that was just computed, in the memory of an earlier one that is equal, if there is one.

        Args:
            key: what `_key` says of the tensor, where that was asked already.
        """
        if not self._is_constant(made):
            return made
        if key is None:
            release_zero_pages(made)
            key = self._key(made)
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

    def share_in_place(self, written: torch.Tensor) -> None:
        """The same for a tensor that `copy_` has just filled, unless anything else sees its memory."""
        if not self._is_constant(written) or _use_count is None:
            return
        memory = written.untyped_storage()
        # Two uses are the tensor itself and `memory`; numpy's arrays are none, but fix the size.
        if _use_count(memory._cdata) > 2 or not memory.resizable() or memory.nbytes() != written.nbytes:
            return
        key = self._key(written)
        shared = self.share(written, key)
        if shared is not written:
            memory = shared.untyped_storage()
            written.set_(memory, 0, written.shape, written.stride())
            self._known[key] = StorageWeakRef(memory)  # what was copied may be gone soon

    @staticmethod
    def _is_constant(made: Any) -> bool:
        """Whether a tensor could share memory with others, and is large enough to."""
        return (
            _CAN_SHARE
            and type(made) is torch.Tensor
            and not made.is_meta
            and made.layout is torch.strided
            and not made.is_quantized
            and made.nbytes >= _MIN_BYTES
            and made.storage_offset() == 0
            and not made.requires_grad
            and made.is_contiguous()
            and not made.is_conj()
            and not made.is_neg()
        )

    @staticmethod
    def _key(tensor: torch.Tensor) -> Any:
        """Equal for equal constants."""
        # Not by way of numpy, after which the memory could not be resized.
        values = _view_of_memory(data_address(tensor), tensor.nbytes, _PyBUF_READ)
        return tensor.dtype, tensor.shape, zlib.crc32(values)
