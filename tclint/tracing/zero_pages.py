"""Gives back memory that holds nothing but zeros: a page of them reads the same without it."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable
from typing import Any

import torch

_MIN_BYTES = 1 << 16
"""Of smaller tensors too few pages could be given back."""
_WORD_BYTES = 8
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


def release_zero_pages(made: torch.Tensor) -> None:
    """Give back pages of a dense tensor's values, if the memory is torch's own: a file's would come back.

    Masks are mostly zeros: of the three tables of 600 KiB that windowed attention computes its mask with, a
    quarter is not.
    """
    if made.nbytes < _MIN_BYTES or _madvise is None:
        return
    memory = made.untyped_storage()
    if not memory.resizable() or made.storage_offset() or memory.nbytes() != made.nbytes:
        return
    page_bytes = mmap.PAGESIZE
    start = data_address(made)
    skipped = -start % page_bytes
    pages = (made.nbytes - skipped) // page_bytes
    if skipped % _WORD_BYTES:
        return
    words = made.view(-1).view(torch.uint8)[skipped : skipped + pages * page_bytes].view(torch.int64)
    is_used = words.view(pages, page_bytes // _WORD_BYTES).any(dim=1).tolist()
    first = 0
    for used, run in itertools.groupby(is_used):
        count = len(list(run))
        if not used:
            _madvise(start + skipped + first * page_bytes, count * page_bytes, _MADV_DONTNEED)
        first += count
