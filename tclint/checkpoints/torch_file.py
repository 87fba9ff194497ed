"""State dicts and torch's files padded, wherever in a file they are; tied weights stay one tensor."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tclint.checkpoints.planned import planned_tensors, prefix_of
from tclint.checkpoints.safetensors_file import read_safetensors
from tclint.checkpoints.torch_archive import is_sound_archive
from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import AxisPlan, ParameterShape, TensorPlan, WeightPlan
from tclint.tracing.equality.weights import padded

Pad = Callable[[Any, Mapping[int, AxisPlan], tuple[int, ...]], Any]


def is_optimizer_state(value: Any) -> bool:
    """Whether it is what `torch.optim.Optimizer.state_dict()` returns."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("state"), dict)
        and isinstance(value.get("param_groups"), list)
        and all(isinstance(group, dict) and "params" in group for group in value["param_groups"])
    )


def pad_optimizer(state: dict[str, Any], plan: WeightPlan, pad: Pad) -> dict[str, Any]:
    """The state with what it keeps of padded parameters padded.

    Raises:
        UsageError: it does not tell which state is whose, or keeps something of another shape.
    """
    names = _names(state, plan)
    tensors = {name: tensor for tensor in plan.tensors for name in tensor.names}
    result = {}
    for number, kept in state["state"].items():
        tensor = tensors.get(names.get(number, ""))
        result[number] = kept if tensor is None else _padded(kept, tensor, pad)
    return {**state, "state": result}


def _padded(kept: Any, tensor: TensorPlan, pad: Pad) -> Any:
    if not isinstance(kept, dict):
        return kept
    return {key: _padded_value(key, value, tensor, pad) for key, value in kept.items()}


def _padded_value(key: Any, value: Any, tensor: TensorPlan, pad: Pad) -> Any:
    shape = getattr(value, "shape", None)
    if shape is None or value.numel() <= 1:
        return value
    for dims in _kept_dims(len(tensor.old_shape)):
        if tuple(shape) == tuple(tensor.old_shape[dim] for dim in dims):
            axes = {
                dims.index(axis.axis): replace(axis, axis=dims.index(axis.axis), fill=0.0)
                for axis in tensor.axes
                if axis.axis in dims
            }
            return pad(value, axes, tuple(tensor.new_shape[dim] for dim in dims))
    raise UsageError(
        f"The optimizer keeps {printable(str(key))} of shape {tuple(shape)} for {printable(tensor.name)}, "
        f"whose shape is {tensor.old_shape}: how that grows is not known; leave out --optimizer."
    )


def _kept_dims(rank: int) -> Iterator[list[int]]:
    """All dims, or those that Adafactor's rows and columns keep."""
    dims = list(range(rank))
    yield dims
    if rank > 1:
        yield dims[:-1]
        yield [*dims[:-2], dims[-1]]


# ------------------------------------------------------------------------------ whose state is whose


def _names(state: dict[str, Any], plan: WeightPlan) -> dict[Any, str]:
    """The parameter's name of each number; an optimizer knows parameters by their order only."""
    groups = state["param_groups"]
    numbers = [number for group in groups for number in group["params"]]
    if all(isinstance(number, str) for number in numbers):
        return {number: _known(number, plan) for number in numbers}
    if all(len(group.get("param_names") or ()) == len(group["params"]) for group in groups):
        named = [name for group in groups for name in group["param_names"]]
        return {number: _known(name, plan) for number, name in zip(numbers, named, strict=True)}
    padded = {tensor.name for tensor in plan.tensors}
    fitting = {
        tuple(parameter.name if parameter.name in padded else "" for parameter in order)
        for order in _orders(plan.parameters, [len(group["params"]) for group in groups])
        if _fits(state["state"], numbers, order)
    }
    if len(fitting) == 1:
        return dict(zip(numbers, fitting.pop(), strict=True))
    raise UsageError(
        "The optimizer's state does not say which parameters it belongs to: they are in none of the "
        "usual orders, or fit several; make it with model.named_parameters() (torch 2.6) or leave "
        "out --optimizer."
    )


def _known(name: str, plan: WeightPlan) -> str:
    """The model's own name of a parameter that a wrapper put its name before."""
    known = {parameter.name for parameter in plan.parameters}
    while name not in known and "." in name:
        name = name.partition(".")[2]
    return name


def _orders(parameters: Sequence[ParameterShape], counts: Sequence[int]) -> Iterator[list[ParameterShape]]:
    """The model's order; or, of two groups, the usual way to part what weight decay is for."""
    ordered = [parameter for parameter in parameters if parameter.trainable]
    if len(counts) == 1:
        for candidate in (ordered, list(parameters)):
            if len(candidate) == counts[0]:
                yield candidate
                return
        return
    parts: list[Callable[[ParameterShape], bool]] = [
        lambda parameter: len(parameter.shape) >= 2,
        lambda parameter: not parameter.name.endswith("bias"),
        lambda parameter: len(parameter.shape) >= 2 and not parameter.name.endswith("bias"),
    ]
    for is_first in parts:
        first = [parameter for parameter in ordered if is_first(parameter)]
        second = [parameter for parameter in ordered if not is_first(parameter)]
        for one, other in ((first, second), (second, first)):
            if [len(one), len(other)] == list(counts):
                yield [*one, *other]


def _fits(state: dict[Any, Any], numbers: list[Any], order: list[ParameterShape]) -> bool:
    """Whether everything kept per parameter has a shape that goes with the parameter's."""
    if len(numbers) != len(order):
        return False
    for number, parameter in zip(numbers, order, strict=True):
        kept = state.get(number)
        for value in kept.values() if isinstance(kept, dict) else ():
            shape = getattr(value, "shape", None)
            if shape is None or value.numel() <= 1:
                continue
            possible = [[parameter.shape[dim] for dim in dims] for dims in _kept_dims(len(parameter.shape))]
            if list(shape) not in possible:
                return False
    return True


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


def save_weights(source: str, plan: WeightPlan, target: str) -> None:
    """Save the model's weights in a checkpoint under the model's own names, as `torch.save` writes them.

    Raises:
        UsageError: it cannot be read, or is not of the model.
        OSError: one of the files cannot be read or written.
    """
    stored: Any = _load(source)
    state = next(_state_dicts(stored, _Padder(plan)), {})
    tensors = {name: value for name, value in state.items() if _is_tensor(value)}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    planned_tensors(shapes, plan, is_part=source.endswith(".safetensors"))
    prefix = prefix_of(shapes, plan)
    torch.save({name.removeprefix(prefix): value for name, value in tensors.items()}, target)


def _state_dicts(value: Any, padder: _Padder) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if padder.is_state_dict(value):
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _state_dicts(item, padder)


_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip


def _load_safetensors(path: str) -> dict[str, torch.Tensor]:
    found = {}
    for name, dtype, shape, data in read_safetensors(path):
        if dtype in _DTYPES and data:
            found[name] = torch.frombuffer(data, dtype=_DTYPES[dtype]).reshape(shape)
    return found


def _load(path: str) -> Any:
    if path.endswith(".safetensors"):
        return _load_safetensors(path)
    try:
        # Files of before torch 1.6 are no archives, and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_sound_archive(path))
    except pickle.UnpicklingError:
        raise UsageError(
            f"{printable(path)} holds more than tensors, and loading it would run code; save the "
            "state dict alone, as torch.save(model.state_dict(), ...)."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
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
            if self.is_state_dict(value):
                return self.state_dict(value)
            made = {name: self.anything(item, str(name)) for name, item in value.items()}
            return _as(value, {name: item for name, item in made.items() if item is not _LEFT_OUT})
        if isinstance(value, list):
            items = [self.anything(item, key) for item in value]
            if items and all(item is _LEFT_OUT for item in items):
                return _LEFT_OUT
            return [item for item in items if item is not _LEFT_OUT]
        return value

    def is_state_dict(self, value: dict[Any, Any]) -> bool:
        """Whether it holds weights that the plan speaks of."""
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
