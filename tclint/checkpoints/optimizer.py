"""Optimizer states padded: what an optimizer keeps per parameter grows as the parameter does, by zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.graph.weights.plan import AxisPlan, ParameterShape, TensorPlan, WeightPlan

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
