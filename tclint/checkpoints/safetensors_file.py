"""Safetensors files padded tensor by tensor; never more than one padded tensor is in memory.

The format (huggingface/safetensors, README, 'Format'): eight bytes that give the header's length, the header
in JSON, then the tensors' bytes. The safetensors library writes only what is in memory as a whole.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from tclint.checkpoints.entries import copy_entries
from tclint.checkpoints.names import planned_tensors
from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import TensorPlan, WeightPlan

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
                for part in _padded(source, entry, tensor) if tensor else _unchanged(file, entry):
                    out.write(part)
    return len(planned), len(entries)


def _read_header(file: BinaryIO, path: str) -> tuple[list[_Entry], dict[str, str] | None]:
    error = UsageError(f"{printable(path)} is no safetensors file that could be read; is it whole?")
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
            count = int(np.prod(shape, dtype=np.int64)) * _ITEMSIZE_BYTES[entry.dtype]
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
            raise UsageError("The checkpoint ended early: it was changed while it was read; try again.")
        left -= len(part)
        yield part


def _padded(path: str, entry: _Entry, tensor: TensorPlan) -> Iterator[memoryview]:
    # Numbers are moved as they are, so that integers of their width stand for them.
    dtype = np.dtype(f"<u{_ITEMSIZE_BYTES[entry.dtype]}")
    source = np.memmap(path, dtype=dtype, mode="r", offset=entry.start, shape=entry.shape)
    target = np.zeros(tensor.new_shape, dtype=dtype)
    copy_entries(source, target, {axis.axis: axis for axis in tensor.axes}, one=_ONES.get(entry.dtype, 1))
    yield target.data.cast("B")
