"""Weights for a comparison: the same random ones in the original and, padded, in the larger model."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import torch
from torch import nn

from tclint.graph.weights.entries import copy_entries
from tclint.graph.weights.plan import AxisPlan, TensorPlan, WeightPlan
from tclint.tracing.session.build import list_parameters
from tclint.tracing.session.weights import is_lazy, named_tensors

_GAIN = math.sqrt(2.0)
"""Signals of nets with rectifiers keep their size (He et al., https://arxiv.org/abs/1502.01852)."""


_DISTINCT = 1_000_003
"""Random numbers made for one weight; a larger one repeats them. Their count is prime, so that no two rows of
a weight are alike, and drawing a hundred million numbers for each run would take longer than the run."""


class OtherWeights(Exception):
    """A model has not the weights that a plan speaks of; the message is half a sentence."""


class NamedWeights:
    """A model's parameters and persistent buffers by their first names, tied ones once.

    Args:
        model: whose weights are filled in place.
        plan: the model is the padded one; None: it is the original.
    """

    def __init__(self, model: nn.Module, plan: WeightPlan | None = None) -> None:
        named: dict[str, tuple[nn.Module | None, torch.Tensor]] = {}
        for some in named_tensors(model):
            for name, owner, tensor in some:
                named.setdefault(name, (owner, tensor))
        planned = {name: tensor for tensor in plan or () for name in tensor.names}
        self._planned: dict[str, TensorPlan] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._is_given: dict[str, bool] = {}
        """Whether the original's values are taken, because random ones would be none for it."""
        self._is_variance: dict[str, bool] = {}
        for listed in list_parameters(model):
            owner, tensor = named[listed.name]
            if is_lazy(tensor):
                raise OtherWeights(f"{listed.name} has no shape before a forward")
            if not listed.is_persistent:
                continue
            self.tensors[listed.name] = tensor
            last = listed.name.rpartition(".")[2]
            statistics = last in ("running_mean", "running_var") and hasattr(owner, "running_mean")
            self._is_given[listed.name] = not tensor.is_floating_point() or (
                listed.is_buffer and not statistics
            )
            self._is_variance[listed.name] = statistics and last == "running_var"
            found = planned.pop(listed.name, None)
            if found is not None:
                self._planned[listed.name] = found
                if tuple(tensor.shape) != found.new_shape:
                    shape = tuple(tensor.shape)
                    raise OtherWeights(f"{listed.name} has the shape {shape}, not {found.new_shape}")
                for name in found.names:
                    planned.pop(name, None)
        if planned:
            raise OtherWeights(f"the padded model has no {next(iter(planned))}")

    def given(self) -> dict[str, torch.Tensor]:
        """What the other model has to be given, beside random numbers: copies."""
        return {
            name: tensor.detach().clone() for name, tensor in self.tensors.items() if self._is_given[name]
        }

    def values(self) -> dict[str, torch.Tensor]:
        """All of them: copies."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def fill(self, given: Mapping[str, torch.Tensor], seed: int) -> None:
        """Fill them.

        Args:
            given: of the original model; the others are random.
            seed: of the random ones.

        Raises:
            OtherWeights: a weight has another shape than the original's.
        """
        for name, tensor in self.tensors.items():
            plan = self._planned.get(name)
            if name in given:
                value = given[name]
            elif self._is_given[name]:
                raise OtherWeights(f"the original has no {name}")
            else:
                shape = tuple(tensor.shape) if plan is None else plan.old_shape
                value = self._random(name, shape, seed)
            if plan is not None:
                value = padded(value, {axis.axis: axis for axis in plan.axes}, plan.new_shape)
            if value.shape != tensor.shape:
                raise OtherWeights(f"{name} grows, and the plan does not pad it")
            with torch.no_grad():
                tensor.copy_(value)

    def _random(self, name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + seed)
        count = math.prod(shape)
        value = torch.rand(min(count, _DISTINCT), generator=generator, dtype=torch.float32)
        if self._is_variance[name]:
            value += 0.5
        elif len(shape) >= 2:
            # Uniform between +-sqrt(3) has a variance of 1.
            scale = _GAIN * math.sqrt(3.0) / math.sqrt(max(1, math.prod(shape[1:])))
            value.mul_(2).sub_(1).mul_(scale)
        elif name.endswith(("bias", "running_mean")):
            value.sub_(0.4).mul_(0.5)
        else:
            # A factor per channel, or one for all: none is zero, and half the seeds have negative ones too.
            value += 0.5
            signs = torch.rand(value.shape, generator=generator) < (0.3 if seed % 2 and count > 1 else 0.0)
            value = torch.where(signs, -value, value)
        repeats = -(-count // _DISTINCT)
        return (value.repeat(repeats)[:count] if repeats > 1 else value).view(shape)


def padded(tensor: torch.Tensor, axes: Mapping[int, AxisPlan], shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor in a larger shape."""
    with torch.no_grad():
        source = tensor.detach()
        made = torch.zeros(shape, dtype=source.dtype, device=source.device)
        copy_entries(source, made, axes, one=1)
    return made


def old_entries(tensor: torch.Tensor, axes: Mapping[int, AxisPlan]) -> torch.Tensor:
    """What `padded` made larger, as it was."""
    for number, axis in axes.items():
        parts = [tensor.narrow(number, start, length) for _, start, length in axis.segments]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts, number)
    return tensor
