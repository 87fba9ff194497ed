"""Safetensors files padded tensor by tensor.

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
from tclint.graph.weights.plan import TensorPlan, WeightPlan

_ITEMSIZE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""The item sizes of the dtypes whose tensors can be padded."""
_ITEMSIZE_BITS = {
    **{dtype: 8 * size for dtype, size in _ITEMSIZE_BYTES.items()},
    "C64": 64, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_ONES = {
    "F64": 0x3FF0000000000000, "F32": 0x3F800000, "F16": 0x3C00, "BF16": 0x3F80,
    "F8_E4M3": 0x38, "F8_E5M2": 0x3C,
}  # fmt: skip
"""The bits of 1.0; of integers it is 1."""
_CHUNK_BYTES = 1 << 22
_MAX_HEADER_BYTES = 100_000_000
_SHOWN = 100
"""Characters of a name."""
_MAX_DIGITS = 20
"""Sizes are numbers of 64 bits."""


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
    """The tensors in the order of their bytes, which fill the file without a gap, and the metadata."""
    try:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, _MAX_HEADER_BYTES):
            raise ValueError("it ends before its header does")
        header = _parsed(file.read(length))
        metadata = header.pop("__metadata__", None)
        if metadata is not None and not _is_text(metadata):
            raise ValueError("its metadata are more than names and texts")
        entries = [_entry(name, data, 8 + length) for name, data in header.items()]
        entries.sort(key=lambda entry: (entry.start, entry.end))
        position = 8 + length
        for entry in entries:
            if entry.start != position:
                what = "overlap those" if entry.start < position else "leave a gap after those"
                raise ValueError(f"the bytes of {entry.name[:_SHOWN]!r} {what} before it")
            position = entry.end
        if position != size:
            what = "ends before its tensors do" if position > size else "goes on after its tensors"
            raise ValueError(f"it {what}")
        _check_by_library(path)
    except ValueError as error:
        raise UsageError(
            f"{printable(path)} is not a readable safetensors file: {printable(str(error))}; "
            "download or save it again."
        ) from None
    return entries, metadata


def _check_by_library(path: str) -> None:
    """What the safetensors library itself refuses is refused, where it is installed.

    Raises:
        ValueError: it refuses the file.
    """
    try:
        import safetensors
    except ImportError:
        return
    try:
        with safetensors.safe_open(path, framework="numpy"):
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(f"the safetensors library says {str(error)!r}") from None


def _parsed(text: bytes) -> dict[str, Any]:
    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("its header has a name twice")
        "".join(part for pair in pairs for part in pair if isinstance(part, str)).encode()
        return found

    def number(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise ValueError("its header has a number that is no size")
        return int(digits)

    try:
        header = json.loads(text.decode(), object_pairs_hook=each_once, parse_int=number)
    except (UnicodeError, json.JSONDecodeError, RecursionError):
        raise ValueError("its header is not JSON in UTF-8") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no table of tensors")
    return header


def _is_text(metadata: object) -> bool:
    return isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())


def _entry(name: str, data: object, first: int) -> _Entry:
    """One tensor of the header; its bytes are counted from `first`.

    Raises:
        ValueError: what is said of it contradicts itself.
    """
    label = repr(name[:_SHOWN])
    if not isinstance(data, dict) or data.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{label} is not said by dtype, shape and offsets")
    dtype, shape, offsets = data["dtype"], data["shape"], data["data_offsets"]
    bits = _ITEMSIZE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise ValueError(f"{label} has the unknown dtype {str(dtype)[:_SHOWN]!r}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{label} has a shape or offsets that are no sizes")
    start, end = offsets
    if math.prod(shape) * bits != 8 * (end - start):
        count = f"{end - start} bytes" if start <= end else "offsets, which end before they start"
        size = "x".join(map(str, shape))[:_SHOWN] or "one number"
        raise ValueError(f"{label} ({size}, {dtype}) does not fit its {count}")
    return _Entry(name, dtype, tuple(shape), first + start, first + end)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


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
            raise UsageError("The checkpoint ended early: it was changed while it was read; try again.")
        left -= len(part)
        yield part


def _padded(file: BinaryIO, entry: _Entry, tensor: TensorPlan) -> Iterator[memoryview]:
    """The padded tensor's bytes."""
    # Numbers are moved as they are, so that integers of their width stand for them.
    dtype = np.dtype(f"<u{_ITEMSIZE_BYTES[entry.dtype]}")
    source = np.frombuffer(b"".join(_unchanged(file, entry)), dtype).reshape(entry.shape)
    target = np.zeros(tensor.new_shape, dtype)
    copy_entries(source, target, {axis.axis: axis for axis in tensor.axes}, one=_ONES.get(entry.dtype, 1))
    yield target.data.cast("B")
