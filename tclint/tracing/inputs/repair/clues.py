"""What a failed run tells about the inputs it should have had: clashing sizes, ranks and dtypes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tclint.tracing.values.makers import call_of, maker_of
from tclint.tracing.values.origin import origin_of

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SizeClash:
    """A dim has one size and should have another."""

    have: int
    want: int
    sources: frozenset[str] = frozenset()
    """Names of the inputs that the tensor was computed from; empty: not known."""
    before: tuple[tuple[str, Shape], ...] = ()
    """Names and shapes of what the tensor was computed from, nearest first."""


@dataclass(frozen=True)
class RankClash:
    """A tensor should have some dims more (positive) or less."""

    more: int
    sources: frozenset[str] = frozenset()
    is_likely: bool = False
    """Likelier than the clashing sizes of the same failure."""


@dataclass
class Clues:
    """Everything that one failure tells."""

    sizes: list[SizeClash] = field(default_factory=list)
    rows: list[SizeClash] = field(default_factory=list)
    """Those of `sizes` that are likeliest about the leading dim: nodes of a graph that the model holds."""
    ranks: list[RankClash] = field(default_factory=list)
    classes: list[tuple[frozenset[str], Shape]] = field(default_factory=list)
    """Inputs that should have been one class for each of so many elements."""
    integers: frozenset[str] | None = None
    """Inputs that should have been indices; empty: some of them."""
    floats: frozenset[str] | None = None
    divisors: list[tuple[int, int]] = field(default_factory=list)
    """(size, number that should divide it)."""
    is_small: bool = False
    """A feature map became smaller than a window."""
    small_axes: tuple[int, ...] = (-1, -2)
    """Its axes, from the end, that may be the small ones."""
    is_single: bool = False
    """The model asks for one value where a batch has several."""
    is_uneven: bool = False
    """Feature maps that were halved and doubled again no longer fit each other."""
    is_list: frozenset[str] | None = None
    """Inputs that should have been lists of tensors."""
    swapped: bool = False
    """Time stands where the batch should, and the other way round."""
    names: dict[str, str] = field(default_factory=dict)
    """Inputs that should have been one of some names, with the first of them."""
    missing: list[str] = field(default_factory=list)
    """Optional arguments of the forward that were None where a value was needed."""
    unused: list[str] = field(default_factory=list)
    """Optional arguments that were None and stand in the line that failed, for whichever reason."""

    def clash(self) -> Hashable:
        """What does not fit what, to be compared with another failure's; None where no sizes clash."""
        if not self.sizes and not self.ranks:
            return None
        sizes = sorted((clash.have, clash.want, *sorted(clash.sources)) for clash in self.sizes)
        ranks = sorted((clash.more, *sorted(clash.sources)) for clash in self.ranks)
        return tuple(sizes), tuple(ranks), tuple(self.divisors), self.integers, self.floats


def clash_of(tensor: torch.Tensor, have: int, want: int) -> SizeClash:
    """One of the tensor's sizes should be another."""
    before = tuple((name, shape) for name, shape, _ in _ancestors(tensor))
    return SizeClash(have, want, sources_of(tensor), before)


def _ancestors(tensor: torch.Tensor) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """What the tensor was computed from, nearest first: name, shape, and whether it is an input of the model.

    Of operators with several results the first.
    """
    origin = origin_of(tensor)
    if origin is not None and origin.input_name is not None:
        yield origin.input_name, tuple(tensor.shape), True
    waiting, seen = deque([maker_of(tensor)]), set[str]()
    while waiting:
        node = waiting.popleft()
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op == "placeholder":
            yield node.meta["tclint"].input_name, tuple(node.meta["val"].shape), True
        elif node.op == "call_function":
            value = node.meta["val"]
            first = value if isinstance(value, torch.Tensor) else value[0]
            yield node.name, tuple(first.shape), False
            waiting.extend(call_of(given) or given for given in node.all_input_nodes)


def sources_of(tensor: Any) -> frozenset[str]:
    """Names of the model's inputs that a tensor was computed from."""
    if not isinstance(tensor, torch.Tensor):
        return frozenset()
    return frozenset(name for name, _, is_input in _ancestors(tensor) if is_input)
