"""State dicts and torch's files padded, wherever in a file they are; tied weights stay one tensor."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tclint.checkpoints.entries import copy_entries
from tclint.checkpoints.names import planned_tensors
from tclint.checkpoints.optimizer import is_optimizer_state, pad_optimizer
from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import AxisPlan, TensorPlan, WeightPlan


def pad_state_dict(state: Mapping[str, Any], plan: WeightPlan) -> dict[str, Any]:
    """A state dict with the plan's weights padded; the other values are the same objects.

    Raises:
        UsageError: a weight is missing, or has another shape than the plan was made for.
    """
    return _Padder(plan).state_dict(state)


def pad_torch_file(
    source: str, target: str, plan: WeightPlan, *, optimizer: bool
) -> tuple[int, int, list[str]]:
    """Write what `torch.save` wrote to `source` padded to `target`; (padded, all) tensors, and remarks.

    Tensors that do not change are read from a map of the source while they are written.

    Raises:
        UsageError: it cannot be loaded without running its code, or does not fit the plan.
        OSError: it cannot be read or written.
    """
    padder = _Padder(plan, optimizer=optimizer)
    loaded = padder.anything(_load(source))
    if not padder.state_dicts and not padder.optimizers:
        raise UsageError(
            f"{printable(source)} has none of the weights that the plan pads; is it of this model?"
        )
    try:
        with open(target, "wb") as file:  # of a path, torch would make the name of an archive
            torch.save(loaded, file)
    except RuntimeError as error:
        # torch's writer has no OSError for a full disk.
        raise OSError(str(error).splitlines()[0]) from None
    return padder.padded, padder.tensors, padder.remarks


def _load(path: str) -> Any:
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:
            # Files of before torch 1.6 cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UsageError(
            f"{printable(path)} holds more than tensors, and loading it would run code; save the "
            "state dict alone, as torch.save(model.state_dict(), ...)."
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{printable(path)} cannot be loaded by torch: {printable(reason)}") from None


@dataclass(slots=True)
class _Padder:
    plan: WeightPlan
    optimizer: bool = False
    padded: int = 0
    tensors: int = 0
    state_dicts: int = 0
    optimizers: int = 0
    remarks: list[str] = field(default_factory=list)
    _made: dict[Any, torch.Tensor] = field(default_factory=dict)

    def anything(self, value: Any, key: str = "") -> Any:
        """What a checkpoint holds, with every state dict of the model in it padded."""
        if isinstance(value, dict):
            if is_optimizer_state(value):
                return self._optimizer(value, key)
            if self._is_state_dict(value):
                return self.state_dict(value)
            made = {name: self.anything(item, str(name)) for name, item in value.items()}
            return _as(value, {name: item for name, item in made.items() if item is not _LEFT_OUT})
        if isinstance(value, list):
            items = [self.anything(item, key) for item in value]
            if items and all(item is _LEFT_OUT for item in items):
                return _LEFT_OUT
            return [item for item in items if item is not _LEFT_OUT]
        return value

    def _is_state_dict(self, value: dict[Any, Any]) -> bool:
        names = [name for name, item in value.items() if isinstance(name, str) and _is_tensor(item)]
        wanted = {name for tensor in self.plan.tensors for name in tensor.names}
        return any(name in wanted or any(name.endswith("." + own) for own in wanted) for name in names)

    def state_dict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        shapes = {name: tuple(value.shape) for name, value in state.items() if _is_tensor(value)}
        planned = planned_tensors(shapes, self.plan)
        self.state_dicts += 1
        self.tensors += len(shapes)
        self.padded += len(planned)
        made = {
            name: self._tensor(value, planned[name]) if name in planned else value
            for name, value in state.items()
        }
        return _as(state, made)

    def _tensor(self, tensor: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
        # The names of a tied weight share one tensor's memory, and go on doing so.
        key = plan.name, tensor.data_ptr(), tensor.device, tensor.dtype
        made = self._made.get(key)
        if made is None or tensor.is_meta:
            made = self._made[key] = padded(tensor, {axis.axis: axis for axis in plan.axes}, plan.new_shape)
        if isinstance(tensor, torch.nn.Parameter) and not isinstance(made, torch.nn.Parameter):
            made = self._made[key] = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made

    def _optimizer(self, state: dict[str, Any], key: str) -> Any:
        if not self.optimizer:
            where = f" under {printable(key)}" if key else ""
            self.remarks.append(f"the optimizer state{where} is left out; --optimizer pads it too")
            return _LEFT_OUT
        self.optimizers += 1
        return pad_optimizer(state, self.plan, padded)


_LEFT_OUT = object()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _as(before: Mapping[Any, Any], made: dict[Any, Any]) -> dict[Any, Any]:
    """The same kind of dict, with what torch hangs on state dicts."""
    if type(before) is dict or not isinstance(before, dict):
        return made
    result = type(before)(made)
    if hasattr(before, "_metadata"):
        result._metadata = before._metadata  # type: ignore[attr-defined]
    return result


def padded(tensor: torch.Tensor, axes: Mapping[int, AxisPlan], shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor in a larger shape."""
    with torch.no_grad():
        source = tensor.detach()
        made = torch.zeros(shape, dtype=source.dtype, device=source.device)
        copy_entries(source, made, axes, one=1)
    return made
