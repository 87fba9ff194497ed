"""How an elementwise kernel walks through its tensors: several elements at once, or one by one.

torch's TensorIterator (aten/src/ATen/TensorIterator.cpp) sorts the dims by the result's strides and merges
those that lie behind one another in every operand. What is left of one dim is loaded several elements at
once; otherwise a thread works out where each element lies in each operand (elementwise_kernel in
aten/src/ATen/native/cuda/CUDALoops.cuh), and the threads of a warp may want memory that lies far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from tclint.graph.lowering.work import Walk
from tclint.graph.ops.spec import TensorSpec, itemsize_bytes, numel

WARP = 32
SECTOR_BYTES = 32
"""What the L2 hands out at least."""
L1_BYTES = 192 << 10
"""Operands of no more than this stay beside the threads (the A100's L1)."""

Strides = tuple[int, ...]


def walk(result: TensorSpec, operands: Sequence[TensorSpec]) -> Walk | None:
    """The walk of a kernel that writes `result` from operands that broadcast to it; None: several at once."""
    shape = result.shape
    if result.strides is None or not result.numel or any(spec.strides is None for spec in operands):
        return None
    if all(spec.shape == shape and spec.strides == result.strides for spec in operands) and _is_dense(result):
        return None
    # A number, or a constant of no dims, is an argument of the kernel.
    specs = [result, *(spec for spec in operands if spec.shape or spec.source is not None)]
    strides = tuple(_broadcast(spec, shape) for spec in specs)
    drawn = tuple(itemsize_bytes(spec.dtype) if spec.bytes > L1_BYTES else 0 for spec in specs)
    return _walk(shape, strides, drawn)


@lru_cache(maxsize=4096)
def _walk(shape: tuple[int, ...], strides: tuple[Strides, ...], drawn: tuple[int, ...]) -> Walk | None:
    """The walk through operands with such strides; the blocks of a model ask for the same few.

    Args:
        drawn: per operand: bytes of an element, 0 where the operand stays beside the threads.
    """
    sizes, merged = _merged(shape, strides)
    if len(sizes) == 0 or (len(sizes) == 1 and all(own == (1,) for own in merged)):
        return None
    sectors = sum(
        _sectors(sizes, own, itemsize) for own, itemsize in zip(merged, drawn, strict=True) if itemsize
    )
    return Walk(numel(shape), len(strides), len(sizes), sectors)


def concatenation(result: TensorSpec, parts: Sequence[TensorSpec], axis: int) -> Walk | None:
    """The walk of `cat` and `stack`, whose kernels work out every element's place in the result; that in a
    part only where the part is not dense."""
    if result.strides is None or not parts or not result.numel:
        return None
    part = max(parts, key=lambda spec: spec.numel)
    if part.strides is None:
        return None
    if len(part.shape) < len(result.shape):
        axis %= len(result.shape)
        part = replace(
            part,
            shape=(*part.shape[:axis], 1, *part.shape[axis:]),
            strides=(*part.strides[:axis], 1, *part.strides[axis:]),
        )
    assert part.strides is not None
    sizes, strides = _merged(part.shape, [result.strides, part.strides])
    sectors = sum(_sectors(sizes, own, itemsize_bytes(result.dtype)) for own in strides)
    return Walk(result.numel, 1 if _is_dense(part) else 2, max(len(sizes), 1), sectors)


def _is_dense(spec: TensorSpec) -> bool:
    """Whether the elements fill their memory, in any order of the dims."""
    assert spec.strides is not None
    step = 1
    for stride, size in sorted(zip(spec.strides, spec.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _broadcast(spec: TensorSpec, shape: tuple[int, ...]) -> Strides:
    """Strides at the result's shape: 0 where the operand has one element for many."""
    assert spec.strides is not None
    missing = len(shape) - len(spec.shape)
    return (0,) * max(missing, 0) + tuple(
        stride if have == want else 0
        for have, want, stride in zip(spec.shape, shape[max(missing, 0) :], spec.strides, strict=False)
    )


def _merged(shape: Sequence[int], strides: Sequence[Strides]) -> tuple[list[int], list[Strides]]:
    """Sizes, innermost first, and every operand's strides of the dims that cannot be merged."""
    order = sorted(
        (dim for dim, size in enumerate(shape) if size != 1), key=lambda dim: [own[dim] for own in strides]
    )
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for dim in order:
        if sizes and all(own[dim] == row[-1] * sizes[-1] for own, row in zip(strides, found, strict=True)):
            sizes[-1] *= shape[dim]
            continue
        sizes.append(shape[dim])
        for own, row in zip(strides, found, strict=True):
            row.append(own[dim])
    return sizes, [tuple(row) for row in found]


def _sectors(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Sectors of memory that the threads of a warp, on neighbouring elements, draw from one operand."""
    seen = set()
    for lane in range(min(WARP, numel(sizes))):
        place, left = 0, lane
        for size, stride in zip(sizes, strides, strict=True):
            left, at = divmod(left, size)
            place += at * stride
        seen.add(place * itemsize // SECTOR_BYTES)
    return len(seen)
