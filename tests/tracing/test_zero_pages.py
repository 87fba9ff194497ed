"""Pages of zeros are given back; what a tensor holds stays as it is."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy
import pytest
import torch
from hypothesis import given

from tclint.tracing.values.zero_pages import release_zero_pages, zeros

_DTYPES = [torch.bool, torch.uint8, torch.float16, torch.int32, torch.float64, torch.complex64]


@given(st.sampled_from(_DTYPES), st.integers(60_000, 300_000), st.lists(st.integers(0, 10**6), max_size=6))
def test_values_stay(dtype: torch.dtype, size_bytes: int, places: list[int]) -> None:
    made = torch.zeros(size_bytes // dtype.itemsize, dtype=dtype)
    for place in places:
        made[place % len(made)] = 1
    before = made.clone()
    release_zero_pages(made)
    assert torch.equal(made, before)
    made += before  # can be written to
    assert torch.equal(made != 0, before != 0)


@given(st.sampled_from(_DTYPES), st.integers(0, 300_000))
def test_zeros_are_zeros(dtype: torch.dtype, size_bytes: int) -> None:
    size = size_bytes // dtype.itemsize
    dirty = torch.ones(size, dtype=dtype)
    del dirty  # its memory may be what comes next
    made = zeros((size,), dtype)
    assert made is None or torch.equal(made, torch.zeros(size, dtype=dtype))
    assert made is None or sys.platform == "linux"
    assert made is not None or size_bytes < 1 << 17 or sys.platform != "linux"


def test_zeros_in_the_middle_of_memory() -> None:
    before, after = torch.ones(1 << 15), torch.ones(1 << 15)
    made = zeros((3, 11, 1009), torch.float64)
    assert made is None or not bool(made.any())
    if made is not None:
        made += 1
    assert bool((before == 1).all())
    assert bool((after == 1).all())


def test_what_lies_before_a_part_stays() -> None:
    whole = torch.cat([torch.ones(1 << 16), torch.zeros(1 << 16)])
    release_zero_pages(whole[1 << 16 :])
    release_zero_pages(whole[1:])
    assert int(whole.sum()) == 1 << 16


def test_minus_zero_is_a_value() -> None:
    made = -torch.zeros(100_000)
    release_zero_pages(made)
    assert bool(made.signbit().all())


def test_a_files_values_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "ones"
    path.write_bytes(b"\1" * 100_000)
    made = torch.from_numpy(numpy.memmap(path, mode="c", dtype=numpy.uint8))
    made.zero_()
    release_zero_pages(made)
    assert not bool(made.any())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the pages")
def test_pages_of_zeros_are_not_resident() -> None:
    made = torch.zeros(64, 1 << 12)
    made[5] = made[40] = 1
    before = _resident_pages(made)
    release_zero_pages(made)
    row = made.nbytes // 64 // mmap.PAGESIZE
    assert before >= 63 * row
    assert 2 * row <= _resident_pages(made) <= 2 * row + 4


@pytest.mark.skipif(sys.platform != "linux", reason="other systems make them as torch does")
def test_zeros_are_not_resident() -> None:
    made = zeros((64, 1 << 12), None)
    assert made is not None
    assert made.dtype == torch.get_default_dtype()
    assert _resident_pages(made) <= 2


def _resident_pages(tensor: torch.Tensor) -> int:
    start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    count = -(-(tensor.data_ptr() + tensor.nbytes - start) // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * count)()
    libc = ctypes.CDLL(None)
    assert libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(count * mmap.PAGESIZE), found) == 0
    return sum(flags & 1 for flags in found)
