"""Measures how much memory a process takes beyond what it had before, whatever it had kept free."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_MADV_POPULATE_READ = 22
_COUNTERS_KIB = 512
"""How much VmHWM may be off."""


def memory_baseline_kib() -> int:
    """Resident KiB now, after mapping in the files that the parent had mapped; resets the peak.

    A forked child starts without the page tables of shared libraries; touching them later would count as
    growth, though a fresh process that had imported them would not grow.
    """
    gc.collect()
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    with open("/proc/self/maps", encoding="utf-8") as stream:
        for line in stream:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ [1-9]\d*\s+/", line)
            if found:
                start, end = (int(text, 16) for text in found.groups())
                libc.madvise(
                    ctypes.c_void_p(start), ctypes.c_size_t((end - start) // page * page), _MADV_POPULATE_READ
                )
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # what is free is not resident either, whatever was freed since the last time
    reset_peak()
    return status_kib("VmRSS")


class _MallocInfo(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


_HOLES_BYTES = (1 << 16, 1 << 14, 1 << 12, 1 << 10, 512, 256, 128, 64, 32)
"""Sizes of the blocks that holes are filled with, down to glibc's smallest."""
_BLOCK_HEADER_BYTES = 16
"""What glibc adds to a block, at most."""


def fill_free_memory() -> None:
    """Take, and never give back, what is free of Python's and of the C library's memory.

    What was freed since the process started is resident and would hide as much growth: more in one process
    than in another that imported other things.
    """
    gc.collect()
    _fill_python_pools()
    _fill_heap()


_POOL_LINE = re.compile(r"^ *\d+ +(\d+) +\d+ +\d+ +(\d+)$", re.MULTILINE)
"""A line in which CPython reports its small blocks of one size: bytes of a block, and how many are free."""
_UNUSED_POOLS = re.compile(r"^(\d+) unused pools \* (\d+) bytes", re.MULTILINE)
_POOL_HEADER_BYTES = 48
"""`struct pool_header` of CPython's Include/internal/pycore_obmalloc.h, on 64 bits."""
_LARGEST_SMALL_BLOCK_BYTES = 512
"""Larger ones are the C library's."""


def _fill_python_pools() -> None:
    """Use up what Python keeps free for small objects, so that the next one needs a new arena."""
    take = ctypes.pythonapi.PyObject_Malloc
    take.restype, take.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    stats = _pool_stats()
    for size_bytes, count in _POOL_LINE.findall(stats):
        for _ in range(int(count)):
            take(int(size_bytes))
    for count, pool_bytes in _UNUSED_POOLS.findall(stats):
        for _ in range(int(count) * ((int(pool_bytes) - _POOL_HEADER_BYTES) // _LARGEST_SMALL_BLOCK_BYTES)):
            take(_LARGEST_SMALL_BLOCK_BYTES)


def _pool_stats() -> str:
    """What `sys._debugmallocstats` prints, from C."""
    with tempfile.TemporaryFile() as stream:
        before = os.dup(2)
        os.dup2(stream.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(before, 2)
            os.close(before)
        stream.seek(0)
        return stream.read().decode()


def _fill_heap() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return
    libc.mallinfo2.restype = _MallocInfo
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc_trim(0)
    for size in _HOLES_BYTES:
        heap = libc.mallinfo2().arena
        while libc.mallinfo2().arena == heap and libc.mallinfo2().fordblks > size:
            before = libc.mallinfo2().fordblks
            libc.malloc(size - _BLOCK_HEADER_BYTES)
            if libc.mallinfo2().fordblks >= before:
                break


def exact_peaks(folder: Path) -> dict[str, str]:
    """What a process needs in its environment so that its peaks are exact; empty without a C compiler.

    Args:
        folder: for the compiled library, as long as such processes start.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    library = folder / "peak_memory.so"
    source = Path(__file__).with_name("peak_memory.c")
    made = subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=False)
    return {"LD_PRELOAD": str(library)} if made.returncode == 0 else {}


def _exact() -> ctypes.PyDLL | None:
    """The functions of peak_memory.c, where that is preloaded."""
    loaded = ctypes.PyDLL(None)
    if not hasattr(loaded, "peak_kib"):
        return None
    loaded.peak_kib.restype = ctypes.c_long
    return loaded


def reset_peak() -> None:
    """Let the peak start again from what is resident now."""
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as stream:
        stream.write("5")
    exact = _exact()
    if exact is not None:
        exact.peak_reset()


def peak_kib() -> int:
    """The most that was resident since the reset; up to a quarter of a MiB off where it is the kernel's."""
    exact, kernels_kib = _exact(), status_kib("VmHWM")
    if exact is None:
        return kernels_kib
    exact_kib = int(exact.peak_kib())
    # More than the counters can be off: what shrank unseen, within the C library.
    return kernels_kib if kernels_kib - exact_kib > _COUNTERS_KIB else exact_kib


def status_kib(key: str) -> int:
    with open("/proc/self/status", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return 0
