"""What the recorder remembers about a tensor: who made it, whether it is a weight, what it may hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tclint.graph.ops import Op, TensorSpec
from tclint.tracing.values.dtypes import DTYPE_NAMES

_ATTRIBUTE = "_tclint_origin"


class Origin:
    """Kept on the tensor object itself, so that it lives exactly as long as the tensor.

    Mostly defaults, so that making one sets nothing.
    """

    ops: Sequence[Op | None] | None = None
    """The operators of the run in which the tensor was made; None in the place of one that still runs."""
    producer: int | None = None
    """Which of them made the tensor; None for inputs, weights and constants."""
    position: int = 0
    """Which of its outputs that are tensors it is."""
    spec: TensorSpec | None = None
    """The tensor as an operator's input, made when first asked for (`spec_of`)."""
    parameter: str | None = None
    """The parameter or buffer that the tensor is, or is computed from alone."""
    is_derived: bool = False
    """As in TensorSpec."""
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
    is_running_sum: bool = False
    """The tensor holds the running sums of counts with that mean."""
    writes_seen: int = 0
    """In-place writes to the tensor's memory that its node accounts for (aliasing.py)."""

    def __init__(self, input_name: str | None = None) -> None:
        if input_name is not None:
            self.input_name = input_name

    def name_parameter(self, name: str, *, is_derived: bool = False) -> None:
        """The tensor is that parameter or buffer, or is computed from it alone."""
        self.parameter = name
        if is_derived:
            self.is_derived = True
        self.spec = None

    @property
    def maker(self) -> Op | None:
        """The operator that made the tensor."""
        return None if self.producer is None else self.op_of(self.producer)

    def op_of(self, producer: int) -> Op | None:
        """Any operator of the run; None while it runs, and where it was taken back."""
        return self.ops[producer] if self.ops is not None and producer < len(self.ops) else None

    def made_by(self, ops: Sequence[Op | None], spec: TensorSpec) -> None:
        """An operator made the tensor, or wrote to it."""
        self.ops = ops
        self.producer, self.position = spec.producer, spec.output_index
        # What was written to is the model's input no more, though the operator's output it still is.
        self.spec = spec if spec.input_name is None else None
        self.input_name = None

    def forget_maker(self) -> None:
        """The tensor comes from an earlier run."""
        self.ops, self.producer, self.position, self.writes_seen = None, None, 0, 0

    def take_maker(self, other: Origin) -> None:
        """From now on the tensor is what made another one."""
        self.ops, self.producer, self.position = other.ops, other.producer, other.position
        self.input_name = other.input_name
        self.spec = None


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


def origin_of(tensor: torch.Tensor) -> Origin | None:
    """What is known about the tensor, or None; that it is a weight of the model may be known all the same."""
    found: Origin | None = getattr(tensor, _ATTRIBUTE, None)
    return found


def is_weight(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a parameter, a buffer, or made from them alone."""
    origin = origin_of(tensor)
    return id(tensor) in _run.weights if origin is None else origin.parameter is not None


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor is, or is computed from, an input of the model or what the model computed."""
    origin = origin_of(tensor)
    return origin is not None and (origin.producer is not None or origin.input_name is not None)


def ensure_origin(tensor: torch.Tensor) -> Origin:
    """The tensor's origin, created where there is none."""
    known = tensor.__dict__
    found: Origin | None = known.get(_ATTRIBUTE)
    if found is None:
        found = known[_ATTRIBUTE] = Origin()
        found.parameter = _run.weights.get(id(tensor))
    return found


def new_origin(tensor: torch.Tensor) -> Origin:
    """The origin of a tensor that was just made: it is no weight, whichever tensor had its id before."""
    known = tensor.__dict__
    found: Origin | None = known.get(_ATTRIBUTE)
    if found is None:
        found = known[_ATTRIBUTE] = Origin()
    return found


def origin_for_reading(tensor: torch.Tensor) -> Origin:
    """An origin for a passing tensor that stands for this one: the tensor's own, unless it is a weight.

    What becomes of the passing tensor is then not known of the weight.
    """
    if origin_of(tensor) is not None or id(tensor) not in _run.weights:
        return ensure_origin(tensor)
    made = Origin()
    made.spec = spec_of(tensor)
    made.parameter = made.spec.parameter
    return made


def set_origin(tensor: torch.Tensor, origin: Origin) -> None:
    """Replace what is known about the tensor."""
    tensor.__dict__[_ATTRIBUTE] = origin


def clear_origin(tensor: torch.Tensor) -> None:
    """Forget what is known about the tensor."""
    if origin_of(tensor) is not None:
        delattr(tensor, _ATTRIBUTE)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype, strides, and the op that made the tensor or the weight or input that it is."""
    origin = origin_of(tensor)
    shape, dtype = tensor.shape, DTYPE_NAMES[tensor.dtype]
    strides = tensor.stride() if tensor.layout is torch.strided else None
    if origin is not None and origin.spec is not None:
        spec = origin.spec
        # Tensors of other metadata may share an origin: casts, detached ones, those set through `.data`.
        if spec.shape == shape and spec.strides == strides and spec.dtype == dtype:
            return spec
    sizes = tuple(shape)
    if origin is None:
        return TensorSpec(sizes, dtype, strides, _run.weights.get(id(tensor)))
    origin.spec = TensorSpec(
        sizes,
        dtype,
        strides,
        origin.parameter,
        origin.producer,
        origin.position,
        origin.input_name,
        origin.is_derived and origin.producer is None,
    )
    return origin.spec


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
