"""What the operators of a trace have in common, once for all that repeat each other."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tclint.graph.ops.numbered import Numbered
from tclint.graph.ops.op import Cast, Checkpoint, OpKind

_SITES = 4


class Common(NamedTuple):
    """All of an operator but its tensors, its attributes and its lines, by the names that Op has for it.

    The parent is told by its distance.
    """

    name: str
    operator: str
    kind: OpKind
    input_names: tuple[str, ...]
    module_type: str
    parent: int | None
    in_place: bool
    differentiable: bool
    has_own_backward: bool
    checkpoint: Checkpoint | None
    autocast_disabled: bool
    casts: tuple[Cast, ...]


class Pattern(NamedTuple):
    """Operators that repeat each other; what is not common to others is a number in a list of their log."""

    common: Common
    attributes: int
    sites: tuple[int, ...]
    """Of the construction, its library line, the call and its library line."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class OpPatterns:
    """Patterns by their numbers, from 1 on.

    Each is kept in four bytes for every number in it: a quarter of what tuples take.
    """

    def __init__(self) -> None:
        self._packed: Numbered[bytes] = Numbered()
        self._common: Numbered[Common] = Numbered()

    def __len__(self) -> int:
        return len(self._packed.values)

    def number_of(
        self,
        common: Common,
        attributes: int,
        sites: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> int:
        """The number of a pattern, described as Pattern has it; a new one if it was not asked for before."""
        numbers = [self._common.number(common), attributes, *sites, len(inputs), *inputs, *outputs]
        return self._packed.number(array("I", numbers).tobytes()) + 1

    def get(self, number: int) -> Pattern:
        """The pattern of that number."""
        common, attributes, *rest = memoryview(self._packed.values[number - 1]).cast("I")
        first = _SITES + 1
        last = first + rest[_SITES]
        return Pattern(
            self._common.values[common],
            attributes,
            tuple(rest[:_SITES]),
            tuple(rest[first:last]),
            tuple(rest[last:]),
        )

    def __iter__(self) -> Iterator[Pattern]:
        return map(self.get, range(1, len(self) + 1))
