"""What the recorder remembers about a tensor: who made it, whether it is a weight, what it may hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

_ATTRIBUTE = "_tclint_origin"


class ValueOrigin:
    """Kept on the tensor object itself, so that it lives exactly as long as the tensor.

    Mostly defaults, so that making one sets nothing.
    """

    maker: Node | None = None
    """The operator call that made the tensor, in a run's graph; None for inputs, weights and constants."""
    place: int | None = None
    """Which of the call's results it is, where the call returned several."""
    parameter: str | None = None
    """The parameter or buffer that the tensor is, or is computed from alone."""
    is_derived: bool = False
    """It is not the parameter itself, and was computed from it where nothing is recorded."""
    is_copy: bool = False
    """It was computed so, and does not lie in the parameter's memory."""
    input_name: str | None = None
    """The model input that the tensor is."""
    truth: bool | None = None
    """What a Boolean computed from data most likely is (`isnan(...).any()` is False)."""
    choices: int | None = None
    """The tensor holds indices below this number (top-k experts, argmax)."""
    density: float | None = None
    """Share of elements expected to be True, for masks such as `expert_index == 3`."""
    used: float | None = None
    """Share of the classes that occur, where a one-hot tensor has more of them than there are choices."""
    is_match: bool = False
    """Made by comparing data with a value for equality: rarely true everywhere."""
    mean: float | None = None
    """Expected mean of a tensor of counts (tokens per expert)."""
    value: float | None = None
    """What every element of a constant was when an operator last read it."""
    memory: tuple[int, int] | None = None
    """Where such a constant lies, as in TensorSpec."""
    corner: tuple[torch.Tensor, tuple[int, int]] | None = None
    """Of a large mask: what its first two rows and columns hold, and as of which write (triangles.py)."""
    is_running_sum: bool = False
    """The tensor holds the running sums of counts with that mean."""
    writes_seen: int = 0
    """In-place writes to the tensor's memory that its node accounts for (aliasing.py)."""

    def __init__(self, input_name: str | None = None) -> None:
        if input_name is not None:
            self.input_name = input_name

    def name_parameter(self, name: str, *, is_derived: bool = False, is_copy: bool = False) -> None:
        """The tensor is that parameter or buffer, or is computed from it alone."""
        self.parameter = name
        if is_derived:
            self.is_derived = True
        if is_copy:
            self.is_copy = True

    def made_by(self, maker: Node, place: int | None) -> None:
        """An operator made the tensor, or wrote to it."""
        self.maker, self.place = maker, place
        self.input_name = None  # what was written to is the model's input no more

    def forget_maker(self) -> None:
        """The tensor comes from an earlier run."""
        self.maker, self.place, self.writes_seen = None, None, 0

    def take_maker(self, other: ValueOrigin) -> None:
        """From now on the tensor is what made another one."""
        self.maker, self.place = other.maker, other.place
        self.input_name = other.input_name


class _Run:
    """What the running trace keeps once for many tensors."""

    def __init__(self, weights: dict[int, str]) -> None:
        self.weights = weights
        """By id the names of the model's weights, which have no origins of their own."""


_run = _Run({})


@contextlib.contextmanager
def named_weights(names: dict[int, str]) -> Iterator[None]:
    """For the length of the block, that of a run, tensors of these ids are weights of these names."""
    before = _run.weights
    _run.weights = names
    try:
        yield
    finally:
        _run.weights = before


def origin_of(tensor: torch.Tensor) -> ValueOrigin | None:
    """What is known about the tensor, or None; that it is a weight of the model may be known all the same."""
    found: ValueOrigin | None = getattr(tensor, _ATTRIBUTE, None)
    return found


def is_weight(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a parameter, a buffer, or made from them alone."""
    return parameter_of(tensor) is not None


def parameter_of(tensor: torch.Tensor) -> str | None:
    """The parameter or buffer that the tensor is, or is computed from alone."""
    origin = origin_of(tensor)
    return _run.weights.get(id(tensor)) if origin is None else origin.parameter


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor is, or is computed from, an input of the model or what the model computed."""
    origin = origin_of(tensor)
    return origin is not None and (origin.maker is not None or origin.input_name is not None)


def ensure_origin(tensor: torch.Tensor) -> ValueOrigin:
    """The tensor's origin, created where there is none."""
    known = tensor.__dict__
    found: ValueOrigin | None = known.get(_ATTRIBUTE)
    if found is None:
        found = known[_ATTRIBUTE] = ValueOrigin()
        found.parameter = _run.weights.get(id(tensor))
    return found


def new_origin(tensor: torch.Tensor) -> ValueOrigin:
    """The origin of a tensor that was just made: it is no weight, whichever tensor had its id before."""
    known = tensor.__dict__
    found: ValueOrigin | None = known.get(_ATTRIBUTE)
    if found is None:
        found = known[_ATTRIBUTE] = ValueOrigin()
    return found


def origin_for_reading(tensor: torch.Tensor) -> ValueOrigin:
    """An origin for a passing tensor that stands for this one: the tensor's own, unless it is a weight.

    What becomes of the passing tensor is then not known of the weight.
    """
    if origin_of(tensor) is not None or id(tensor) not in _run.weights:
        return ensure_origin(tensor)
    made = ValueOrigin()
    made.parameter = parameter_of(tensor)
    return made


def set_origin(tensor: torch.Tensor, origin: ValueOrigin) -> None:
    """Replace what is known about the tensor."""
    tensor.__dict__[_ATTRIBUTE] = origin


def clear_origin(tensor: torch.Tensor) -> None:
    """Forget what is known about the tensor."""
    if origin_of(tensor) is not None:
        delattr(tensor, _ATTRIBUTE)


def map_tensors(value: Any, function: Any) -> Any:
    """Apply `function` to every tensor in a value nested in plain lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([map_tensors(item, function) for item in value])
    if kind is dict:
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensor arguments of an operator call, lists one level deep included, in order."""
    found = []
    for argument in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple)):
            found.extend(item for item in argument if isinstance(item, torch.Tensor))
    return found
