"""Tensors and source positions, without torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

MemoryFormat = Literal["contiguous", "channels_last", "channels_last_3d", "strided"]

# Bytes per element of torch dtypes; sub-byte types are rounded up to what a tensor of them occupies.
ITEMSIZE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
}

FLOATING_DTYPES = frozenset(name for name in ITEMSIZE_BYTES if name.startswith(("float", "bfloat")))


def itemsize_bytes(dtype: str) -> int:
    """Bytes per element of a torch dtype named without its prefix ('float16').

    Raises:
        KeyError: the dtype is unknown.
    """
    return ITEMSIZE_BYTES[dtype]


def numel(shape: Iterable[int]) -> int:
    """Number of elements of a shape; 1 for a scalar's empty shape."""
    count = 1
    for size in shape:
        count *= size
    return count


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an N,C,spatial... tensor whose channels are innermost (NHWC, NDHWC), in elements."""
    batch, channels, *spatial = shape
    inner: list[int] = []
    step = max(channels, 1)
    for size in reversed(spatial):
        inner.append(step)
        step *= max(size, 1)
    del batch
    return (step, 1, *reversed(inner))


def _dense_in_order(shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    # The stride of a dimension of size 1 never matters, so torch may store anything there.
    return all(size == 1 or have == want for size, have, want in zip(shape, strides, expected, strict=True))


@dataclass(frozen=True, slots=True)
class Site:
    """A line of source code: where a layer was constructed or an operator called."""

    path: str
    """As the interpreter knew the file; absolute for files on disk."""
    line: int
    function: str = ""

    def __deepcopy__(self, _memo: object) -> Site:
        return self  # modules, which are copied, carry theirs

    def as_trace(self) -> str:
        """The line as Python's tracebacks, and torch.fx's `stack_trace`, have it."""
        return f'File "{self.path}", line {self.line}, in {self.function}'

    def to_json(self) -> list[Any]:
        return [self.path, self.line, self.function]

    @classmethod
    def from_json(cls, data: list[Any] | None) -> Site | None:
        return None if data is None else cls(data[0], data[1], data[2])


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that an operator reads or writes: its metadata and where it came from."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix: 'float32', 'bfloat16', 'int64'."""
    strides: tuple[int, ...] | None = None
    """In elements; None where torch has none (sparse layouts)."""
    parameter: str | None = None
    """Qualified name of the parameter or buffer that this tensor is, or is computed from alone."""
    producer: int | None = None
    """Index of the op that made this tensor; None for inputs, parameters and constants."""
    output_index: int = 0
    """Which output of the producer it is."""
    input_name: str | None = None
    """Name of the graph input that this tensor is, if it is one."""
    is_derived: bool = False
    """It is not the parameter itself, and was computed from it where nothing is recorded."""
    value: float | None = None
    """What every element of a constant is, where the trace knows it: zeros, a scale."""
    memory: tuple[int, int] | None = None
    """For a constant that holds values: a number shared by all tensors in the same memory, and the size of
    that memory in bytes."""

    triangle: tuple[float, float] | None = None
    """Of a constant with two values in the square of its last two dims: the one up to the diagonal, and that
    above it."""

    def reshaped(self, shape: tuple[int, ...]) -> TensorSpec:
        """A what-if: a row-major tensor of another shape."""
        return replace(self, shape=shape, strides=contiguous_strides(shape))

    def resized(self, axis: int, size: int) -> TensorSpec:
        """A what-if: the tensor with another size of one dim, in the same memory format."""
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        if self.memory_format in ("channels_last", "channels_last_3d"):
            return replace(self, shape=shape, strides=channels_last_strides(shape))
        return self.reshaped(shape)

    @property
    def numel(self) -> int:
        return numel(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes if dense; expanded (stride 0) dimensions count once, as memory holds them."""
        if self.strides is None:
            return self.numel * itemsize_bytes(self.dtype)
        stored = numel(size if stride else 1 for size, stride in zip(self.shape, self.strides, strict=True))
        return stored * itemsize_bytes(self.dtype)

    @property
    def is_floating(self) -> bool:
        return self.dtype in FLOATING_DTYPES

    @property
    def source(self) -> tuple[Any, ...] | None:
        """Equal for two reads of one tensor; None where that cannot be known (constants)."""
        if self.producer is not None:
            return ("op", self.producer, self.output_index)
        if self.parameter is not None:
            return ("parameter", self.parameter)
        return None if self.input_name is None else ("input", self.input_name)

    @property
    def memory_format(self) -> MemoryFormat:
        """How the elements lie in memory; a tensor that is both (C = 1, or 1x1 images) is 'contiguous'."""
        if self.strides is None:
            return "strided"
        if _dense_in_order(self.shape, self.strides, contiguous_strides(self.shape)):
            return "contiguous"
        if len(self.shape) in (4, 5) and _dense_in_order(
            self.shape, self.strides, channels_last_strides(self.shape)
        ):
            return "channels_last" if len(self.shape) == 4 else "channels_last_3d"
        return "strided"

    def to_json(self) -> dict[str, Any]:
        """JSON values by the fields' names, without what is as by default."""
        return {
            name: value for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        strides = data.get("strides")
        memory = data.get("memory")
        listed = {
            "shape": tuple(data["shape"]),
            "strides": None if strides is None else tuple(strides),
            "memory": None if memory is None else tuple(memory),
            "triangle": None if data.get("triangle") is None else tuple(data["triangle"]),
        }
        return cls(**(data | listed))


_DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(TensorSpec)}
