"""Memory in huge pages, so that forks of this process are cheap.

A fork copies the entries of the page table and counts a reference to every page: with torch loaded that takes
longer than a small trace. An entry of a huge page stands for 512 of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys

_MADV_COLLAPSE = 25
_HUGE_BYTES = 2 << 20
_WRITABLE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 +(?:\[heap\])?$", re.MULTILINE)


def use_huge_pages() -> None:
    """Move this process's private memory into huge pages, where the system can (Linux 6.1 or newer)."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            ranges = _WRITABLE.findall(file.read())
        for first, end in ranges:
            start = -(-int(first, 16) // _HUGE_BYTES) * _HUGE_BYTES
            for address in range(start, int(end, 16) - _HUGE_BYTES + 1, _HUGE_BYTES):
                advise(address, _HUGE_BYTES, _MADV_COLLAPSE)
