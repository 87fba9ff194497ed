"""What a failed run tells about the inputs it should have had: clashing sizes, ranks and dtypes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tclint.tracing.values.makers import call_of, maker_of
from tclint.tracing.values.origin import origin_of


@dataclass(frozen=True)
class SizeClash:
    """A dim has one size and should have another."""

    have: int
    want: int
    sources: frozenset[str] = frozenset()
    """Names of the inputs that the tensor was computed from; empty: not known."""


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
    ranks: list[RankClash] = field(default_factory=list)
    integers: frozenset[str] | None = None
    """Inputs that should have been indices; empty: some of them."""
    is_small: bool = False
    """A feature map became smaller than a window."""
    is_list: bool = False
    """The model takes a list of tensors."""
    parts: int = 0
    """How many tensors an argument is unpacked into."""
    swapped: bool = False
    """Time stands where the batch should, and the other way round."""
    are_nodes: bool = False
    """What was taken for examples are the nodes of a graph, which the edges among the inputs index."""
    missing: list[str] = field(default_factory=list)
    """Optional arguments of the forward that were None where a value was needed."""
    unused: list[str] = field(default_factory=list)
    """Optional arguments that were None and stand in the line that failed, for whichever reason."""
    compared: torch.Tensor | None = None
    """What a loss of PyTorch got, where it lacked what to compare with."""
    has_classes: bool = False
    """Whether that loss compares with the indices of classes."""

    def clash(self) -> Hashable:
        """What does not fit what, to be compared with another failure's; None where no sizes clash."""
        if not self.sizes and not self.ranks:
            return None
        sizes = sorted((clash.have, clash.want, *sorted(clash.sources)) for clash in self.sizes)
        ranks = sorted((clash.more, *sorted(clash.sources)) for clash in self.ranks)
        return tuple(sizes), tuple(ranks), self.integers

    def add_size(self, tensor: torch.Tensor, have: int, want: int) -> None:
        """One of the tensor's sizes should be another."""
        self.sizes.append(SizeClash(have, want, sources_of(tensor)))

    def add_rank(self, tensor: torch.Tensor, rank: int, *, is_likely: bool = False) -> None:
        """The tensor should have so many dims, if it has others."""
        if tensor.dim() != rank:
            self.ranks.append(RankClash(rank - tensor.dim(), sources_of(tensor), is_likely))


def _inputs_of(tensor: torch.Tensor) -> Iterator[str]:
    """Names of the model's inputs that the tensor was computed from, nearest first."""
    origin = origin_of(tensor)
    if origin is not None and origin.input_name is not None:
        yield origin.input_name
    waiting, seen = deque([maker_of(tensor)]), set[str]()
    while waiting:
        node = waiting.popleft()
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op == "placeholder":
            yield node.meta["tclint"].input_name
        elif node.op == "call_function":
            waiting.extend(call_of(given) or given for given in node.all_input_nodes)


def sources_of(tensor: Any) -> frozenset[str]:
    """Names of the model's inputs that a tensor was computed from."""
    return frozenset(_inputs_of(tensor)) if isinstance(tensor, torch.Tensor) else frozenset()
