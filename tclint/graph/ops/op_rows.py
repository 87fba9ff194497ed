"""Two numbers for each operator of a trace, in little memory: what models repeat is packed."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Iterator, Sequence

_BLOCK_ROWS = 512
"""Rows that lie together, in 4 KiB: one array that grows is copied again and again, and each copy leaves a
hole in the heap."""
_WINDOW_BITS = 12
"""All of a block; by itself zlib looks further back, and takes 260 KiB of memory where this takes 24."""
_MEMORY_LEVEL = 4


class OpRows:
    """Rows of two numbers below 2 ** 32: the last block as it is, those before packed."""

    def __init__(self) -> None:
        self.count = 0
        self._packed: list[bytes] = []
        self._last = _blank()
        self._read: tuple[int, array[int]] | None = None
        """The packed block that was read last, and its place."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> OpRows:
        """Rows of which these are the numbers, one after the other."""
        rows = cls()
        for at in range(0, len(numbers), 2):
            rows.append(numbers[at], numbers[at + 1])
        return rows

    def append(self, first: int, second: int) -> None:
        """One row more."""
        if self.count % _BLOCK_ROWS == 0 and self.count:
            self._packed.append(_pack(self._last))
            self._last = _blank()
        self.count += 1
        self[self.count - 1] = first, second

    def truncate(self, count: int) -> None:
        """Leave the first `count` rows."""
        while len(self._packed) * _BLOCK_ROWS >= max(count, 1):
            self._last = _unpack(self._packed.pop())
            self._read = None
        self.count = count

    def __getitem__(self, index: int) -> tuple[int, int]:
        place, at = divmod(index, _BLOCK_ROWS)
        block = self._block(place)
        return block[2 * at], block[2 * at + 1]

    def __setitem__(self, index: int, row: tuple[int, int]) -> None:
        place, at = divmod(index, _BLOCK_ROWS)
        block = self._block(place)
        block[2 * at], block[2 * at + 1] = row
        if place < len(self._packed):
            self._packed[place] = _pack(block)

    def _block(self, place: int) -> array[int]:
        if place == len(self._packed):
            return self._last
        if self._read is None or self._read[0] != place:
            self._read = place, _unpack(self._packed[place])
        return self._read[1]

    def numbers(self) -> Iterator[int]:
        """All numbers, row by row."""
        blocks = itertools.chain(map(_unpack, self._packed), (self._last,))
        return itertools.islice(itertools.chain.from_iterable(blocks), 2 * self.count)


def _blank() -> array[int]:
    return array("I", bytes(8 * _BLOCK_ROWS))


def _pack(block: array[int]) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL)
    return packer.compress(block.tobytes()) + packer.flush()


def _unpack(packed: bytes) -> array[int]:
    return array("I", zlib.decompress(packed, -_WINDOW_BITS))
