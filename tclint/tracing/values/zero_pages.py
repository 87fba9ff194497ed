"""Gives back memory that holds nothing but zeros: a page of them reads the same without it."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tclint.graph.ops import numel

_MIN_BYTES = 1 << 16
"""Of smaller tensors too few pages could be given back."""
_WORD_BYTES = 8
_PAGES_AT_ONCE = 16
"""Looked at for values: torch takes a byte a word for that."""
_MAX_ITEM_BYTES = 16
"""Of complex128."""
_MADV_DONTNEED = 4
"""Of Linux's mman-common.h."""
data_address: Callable[[torch.Tensor], int] = getattr(torch._C, "_data_address", torch.Tensor.data_ptr)
"""Of the memory that a tensor is all of. What is shared stays so; older versions of torch copy it first."""


def _load_madvise() -> Any:
    # Elsewhere such a page need not read as zeros.
    madvise = getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None
    if madvise is not None:
        madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return madvise


_madvise = _load_madvise()


def zeros(size: Sequence[int], dtype: torch.dtype | None) -> torch.Tensor | None:
    """As `torch.zeros`, without memory until it is written to; None for small ones, and outside Linux."""
    if _madvise is None or numel(size) * _MAX_ITEM_BYTES < _MIN_BYTES:
        return None
    made = torch.empty(size, dtype=dtype)
    pages = _pages_of(made)
    if pages is None:
        return None
    values = made.view(-1).view(torch.uint8)
    values[: pages.skipped_bytes].zero_()
    values[pages.skipped_bytes + pages.whole * mmap.PAGESIZE :].zero_()
    if _madvise(pages.start, pages.whole * mmap.PAGESIZE, _MADV_DONTNEED) != 0:  # locked or huge pages
        made.zero_()
    return made


def release_zero_pages(made: torch.Tensor) -> None:
    """Give back pages of a dense tensor's values that hold nothing but zeros.

    Masks are mostly zeros: of the three tables of 600 KiB that windowed attention computes its mask with, a
    quarter is not.
    """
    pages = _pages_of(made)
    if pages is None or pages.skipped_bytes % _WORD_BYTES:
        return
    size_bytes = pages.whole * mmap.PAGESIZE
    values = made.view(-1).view(torch.uint8)[pages.skipped_bytes : pages.skipped_bytes + size_bytes]
    words = values.view(torch.int64).view(pages.whole, mmap.PAGESIZE // _WORD_BYTES)
    first = 0
    # By parts, as torch would convert all of the words.
    is_used = itertools.chain.from_iterable(part.any(dim=1).tolist() for part in words.split(_PAGES_AT_ONCE))
    for used, run in itertools.groupby(is_used):
        count = len(list(run))
        if not used:
            _madvise(pages.start + first * mmap.PAGESIZE, count * mmap.PAGESIZE, _MADV_DONTNEED)
        first += count


class _Pages(NamedTuple):
    """The whole pages of a tensor's memory."""

    start: int
    """The first one's address."""
    skipped_bytes: int
    """Of the tensor, in front of it."""
    whole: int
    """How many of them."""


def _pages_of(made: torch.Tensor) -> _Pages | None:
    """None where it is small, or its memory not all its own and torch's: a file's would come back."""
    if made.nbytes < _MIN_BYTES or _madvise is None:
        return None
    memory = made.untyped_storage()
    if not memory.resizable() or made.storage_offset() or memory.nbytes() != made.nbytes:
        return None
    address = data_address(made)
    skipped_bytes = -address % mmap.PAGESIZE
    return _Pages(address + skipped_bytes, skipped_bytes, (made.nbytes - skipped_bytes) // mmap.PAGESIZE)
