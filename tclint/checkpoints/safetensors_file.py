"""Safetensors files padded some rows of a tensor at a time.

The format (huggingface/safetensors, README, 'Format'): eight bytes that give the header's length, the header
in JSON, then the tensors' bytes. The safetensors library writes only what is in memory as a whole.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from tclint.checkpoints.planned import planned_tensors
from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.entries import copy_entries
from tclint.graph.weights.plan import AxisPlan, TensorPlan, WeightPlan

_ITEMSIZE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_ONES = {
    "F64": 0x3FF0000000000000, "F32": 0x3F800000, "F16": 0x3C00, "BF16": 0x3F80,
    "F8_E4M3": 0x38, "F8_E5M2": 0x3C,
}  # fmt: skip
"""The bits of 1.0; of integers it is 1."""
_CHUNK_BYTES = 1 << 22
_CUT_SHORT = "The checkpoint ended early: it was changed while it was read; try again."
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    """Within the file."""


def pad_safetensors(source: str, target: str, plan: WeightPlan, *, is_part: bool) -> tuple[int, int]:
    """Write `source` padded to `target`; (padded, all) tensors.

    Raises:
        UsageError: it is no safetensors file, or does not fit the plan.
        OSError: it cannot be read or written.
    """
    with open(source, "rb") as file:
        entries, metadata = _read_header(file, source)
        shapes = {entry.name: entry.shape for entry in entries}
        planned = planned_tensors(shapes, plan, is_part=is_part)
        with open(target, "wb") as out:
            out.write(_header(entries, metadata, planned))
            for entry in entries:
                tensor = planned.get(entry.name)
                for part in _padded(file, entry, tensor) if tensor else _unchanged(file, entry):
                    out.write(part)
    return len(planned), len(entries)


def read_safetensors(path: str) -> Iterator[tuple[str, str, tuple[int, ...], bytearray]]:
    """Name, dtype, shape and bytes of each tensor.

    Raises:
        UsageError: it is no safetensors file.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        for entry in _read_header(file, path)[0]:
            data = bytearray()
            for part in _unchanged(file, entry):
                data += part
            yield entry.name, entry.dtype, entry.shape, data


def _read_header(file: BinaryIO, path: str) -> tuple[list[_Entry], dict[str, str] | None]:
    error = UsageError(f"{printable(path)} is not a readable safetensors file; is it complete?")
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if length > min(size, _MAX_HEADER_BYTES):
        raise error
    try:
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", None)
        first = 8 + length
        entries = [
            _Entry(
                name,
                data["dtype"],
                tuple(data["shape"]),
                *(first + offset for offset in data["data_offsets"]),
            )
            for name, data in header.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise error from None
    entries.sort(key=lambda entry: entry.start)
    if entries and entries[-1].end > size:
        raise error
    return entries, metadata


def _header(entries: list[_Entry], metadata: dict[str, str] | None, planned: dict[str, TensorPlan]) -> bytes:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    position = 0
    for entry in entries:
        shape, count = entry.shape, entry.end - entry.start
        if entry.name in planned:
            if entry.dtype not in _ITEMSIZE_BYTES:
                raise UsageError(
                    f"{printable(entry.name)} is stored as {printable(entry.dtype)}, which cannot be padded; "
                    "convert the checkpoint first."
                )
            shape = planned[entry.name].new_shape
            count = math.prod(shape) * _ITEMSIZE_BYTES[entry.dtype]
        offsets = [position, position + count]
        header[entry.name] = {"dtype": entry.dtype, "shape": list(shape), "data_offsets": offsets}
        position += count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _unchanged(file: BinaryIO, entry: _Entry) -> Iterator[bytes]:
    file.seek(entry.start)
    left = entry.end - entry.start
    while left:
        part = file.read(min(left, _CHUNK_BYTES))
        if not part:
            raise UsageError(_CUT_SHORT)
        left -= len(part)
        yield part


def _padded(file: BinaryIO, entry: _Entry, tensor: TensorPlan) -> Iterator[memoryview]:
    """The padded tensor's bytes, some rows at a time."""
    # Numbers are moved as they are, so that integers of their width stand for them.
    dtype = np.dtype(f"<u{_ITEMSIZE_BYTES[entry.dtype]}")
    one = _ONES.get(entry.dtype, 1)
    axes = {axis.axis: axis for axis in tensor.axes}
    rows = axes.pop(0, AxisPlan(0, ((0, 0, entry.shape[0]),)))
    row_bytes = dtype.itemsize * max(1, math.prod(tensor.new_shape[1:]))
    at_once = max(1, _CHUNK_BYTES // row_bytes)
    for is_old, first, count in _pieces(rows, tensor.new_shape[0]):
        for start in range(first, first + count, at_once):
            length = min(at_once, first + count - start)
            target = np.zeros((length, *tensor.new_shape[1:]), dtype=dtype)
            if is_old:
                copy_entries(_rows(file, entry, dtype, start, length), target, axes, one=one)
            elif rows.fill == 1.0:
                target[:] = one
            yield target.data.cast("B")


def _pieces(axis: AxisPlan, size: int) -> Iterator[tuple[bool, int, int]]:
    """(whether they are old, first of them, how many) of an axis's entries, in the order of the new axis."""
    position = 0
    for old, new, length in (*axis.segments, (0, size, 0)):
        if position < new:
            yield False, position, new - position
        if length:
            yield True, old, length
        position = new + length


def _rows(
    file: BinaryIO, entry: _Entry, dtype: np.dtype[Any], start: int, count: int
) -> np.ndarray[Any, Any]:
    shape = (count, *entry.shape[1:])
    row_bytes = dtype.itemsize * math.prod(entry.shape[1:])
    file.seek(entry.start + start * row_bytes)
    data = file.read(count * row_bytes)
    if len(data) != count * row_bytes:
        raise UsageError(_CUT_SHORT)
    return np.frombuffer(data, dtype).reshape(shape)
