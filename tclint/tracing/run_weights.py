"""The weights of a run: their names, and the values of those that it may write into."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tclint.graph import TensorSpec
from tclint.tracing.memory import storage_key

# Copies only when written to (torch >= 2.3): masks of many layers would double the memory.
lazy_clone: Callable[[torch.Tensor], torch.Tensor] = getattr(torch, "_lazy_clone", torch.clone)


class RunWeights:
    """Remembers the values of those that are written to."""

    def __init__(self) -> None:
        self.names: dict[int, str | TensorSpec] = {}
        """As `named_weights` takes them: for who looks at tensors of the run after it failed."""
        self._weights: list[torch.Tensor] = []
        self._by_memory: dict[int, list[torch.Tensor]] | None = None
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, weight: torch.Tensor) -> None:
        """Look after a weight, if it has values at all."""
        if not weight.is_meta and weight.layout == torch.strided:
            self._weights.append(weight)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Remember the values of the weights that share the memory of a tensor about to be written to."""
        if not self._weights:
            return
        if self._by_memory is None:
            self._by_memory = {}
            for weight in self._weights:
                self._by_memory.setdefault(storage_key(weight) or 0, []).append(weight)
        for weight in self._by_memory.pop(storage_key(tensor) or 0, ()):
            with torch.inference_mode(False):
                self._written.append((weight, lazy_clone(weight.detach())))

    def restore(self) -> None:
        """Give the weights the values that they had."""
        with torch.no_grad():
            for weight, values in self._written:
                weight.set_(values)
