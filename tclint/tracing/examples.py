"""Inputs for a model: given by the caller, provided by the target's file, or inferred from first layers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tclint.graph import Assumption
from tclint.tracing.inputs import InputSpec

_META = torch.device("meta")

BATCH = 8
SEQUENCE_LENGTH = 128
IMAGE_SIZE = 224
VIDEO_SIZE = (16, 112, 112)
SIGNAL_LENGTH = 1024


class InferenceFailed(ValueError):
    """The model's first layers do not tell what it takes."""


@dataclasses.dataclass(frozen=True)
class CallInputs:
    """Arguments of the model's forward."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    assumptions: tuple[Assumption, ...] = ()
    source: str = ""
    """Where they come from: '--input', 'the target', 'example_inputs()', 'inferred'."""

    def describe(self) -> str:
        """'x=float32[8,3,224,224]' for every tensor, nested ones by their place."""
        named = [(f"input {index}", value) for index, value in enumerate(self.args)]
        named += list(self.kwargs.items())
        return ", ".join(f"{name}={_describe(value)}" for name, value in named)


def given_inputs(value: Any, source: str) -> CallInputs:
    """Inputs as user code states them: a tensor, a tuple or list of arguments, a dict of keywords."""
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        return CallInputs((), dict(value), source=source)
    if type(value) is tuple or type(value) is list:
        return CallInputs(tuple(value), {}, source=source)
    return CallInputs((value,), {}, source=source)


def inputs_from_specs(specs: Sequence[InputSpec]) -> CallInputs:
    """Meta tensors as the `--input` options describe them."""
    args = tuple(_from_spec(spec) for spec in specs if spec.name is None)
    return CallInputs(args, {spec.name: _from_spec(spec) for spec in specs if spec.name}, source="--input")


def inputs_of_module(module: ModuleType) -> Callable[[], Any] | None:
    """The file's `example_inputs()` or `EXAMPLE_INPUTS`, as a function; None without one."""
    provided = getattr(module, "example_inputs", None)
    if callable(provided):
        function: Callable[[], Any] = provided
        return function
    if hasattr(module, "EXAMPLE_INPUTS"):
        return lambda: module.EXAMPLE_INPUTS
    return None


def with_batch(inputs: CallInputs, batch: int) -> CallInputs:
    """The same inputs with the leading dim of every tensor resized."""

    def resize(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _with_leading(value, batch)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(resize(item) for item in value))
        if type(value) in (list, tuple):
            return type(value)(resize(item) for item in value)
        if type(value) is dict:
            return {key: resize(item) for key, item in value.items()}
        return value

    return dataclasses.replace(
        inputs,
        args=tuple(resize(value) for value in inputs.args),
        kwargs={name: resize(value) for name, value in inputs.kwargs.items()},
    )


def infer_inputs(model: nn.Module) -> CallInputs:
    """An input that fits the first layer with weights, for a forward that needs one tensor.

    The policy: batch 8; 224x224 images, 112x112 videos of 16 frames, signals of 1,024 samples, sequences
    of 128. The first layer is the first one registered that takes its own kind of input (convolution,
    embedding, recurrent layer, linear). It is a guess, and the graph says so.

    Raises:
        InferenceFailed: with the reason.
    """
    required = _required_arguments(model)
    if len(required) > 1:
        raise InferenceFailed(f"its forward takes {len(required)} arguments ({', '.join(required)})")
    if not required:
        assumption = Assumption("the model was called without inputs, because its forward requires none")
        return CallInputs((), {}, (assumption,), "inferred")
    for name, layer in _layers(model):
        tensor = _input_of(layer)
        if tensor is not None:
            what = (
                f"input {required[0]} = {_describe(tensor)}, inferred from the first layer "
                f"({type(layer).__name__}{f' {name!r}' if name else ''}); --input sets another"
            )
            return CallInputs((tensor,), {}, (Assumption(what),), "inferred")
    raise InferenceFailed("no layer of it tells the shape of its input")


def _required_arguments(model: nn.Module) -> list[str]:
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return ["input"]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        # `forward(self, *inputs)` and `forward(self, x=None)` mostly want an input all the same.
        required = [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD][:1]
    return required


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            continue
        yield name, module


def _input_of(layer: nn.Module) -> torch.Tensor | None:
    def floats(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=_META)

    if isinstance(layer, nn.Embedding):
        return torch.empty((BATCH, SEQUENCE_LENGTH), dtype=torch.int64, device=_META)
    if isinstance(layer, nn.modules.conv._ConvNd):
        channels = layer.in_channels
        if channels == 0:  # a lazy layer: any number will do
            channels = 3
        sizes = {1: (SIGNAL_LENGTH,), 2: (IMAGE_SIZE, IMAGE_SIZE), 3: VIDEO_SIZE}
        return floats(BATCH, channels, *sizes[len(layer.kernel_size)])
    if isinstance(layer, nn.RNNBase):
        order = (BATCH, SEQUENCE_LENGTH) if layer.batch_first else (SEQUENCE_LENGTH, BATCH)
        return floats(*order, layer.input_size)
    if isinstance(layer, nn.RNNCellBase):
        return floats(BATCH, layer.input_size)
    if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        attention = layer.self_attn
        order = (BATCH, SEQUENCE_LENGTH) if attention.batch_first else (SEQUENCE_LENGTH, BATCH)
        return floats(*order, attention.embed_dim)
    if isinstance(layer, nn.Linear) and layer.in_features:
        return floats(BATCH, layer.in_features)
    return None


def _from_spec(spec: InputSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=_META)


def _with_leading(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """A meta tensor like `tensor`, its dims lying in memory in the same order, its first one resized."""
    if tensor.dim() == 0 or tensor.shape[0] == batch or tensor.layout != torch.strided:
        return tensor
    shape = (batch, *tensor.shape[1:])
    # The order of the strides is the memory format; sizes are laid out anew in that order.
    order = sorted(range(tensor.dim()), key=lambda axis: (tensor.stride()[axis], -axis))
    strides, step = [0] * tensor.dim(), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=_META)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = ",".join(str(size) for size in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_describe(item) for item in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_describe(item)}' for key, item in value.items())}}}"
    return type(value).__name__
